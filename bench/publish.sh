#!/usr/bin/env bash
# Takes the measurements of a campaign and publishes them: the tables into docs/benchmarks-peers.md,
# a picture of the report's top into docs/images/report.png (with headless Chromium, Debian's package
# `chromium`). Wants a machine that does nothing else; the report says so when it does.
#
#   bench/publish.sh [CAMPAIGN] [DIRECTORY OF THE RESULTS]
set -euo pipefail
cd "$(dirname "$0")/.."
campaign=${1:-bench/campaigns/seeds-short.toml}
results=${2:-bench-results}

cargo build --release --locked -p nuthatch
cargo build --release --locked -p nuthatch-bench --features peers
nuthatch=${CARGO_TARGET_DIR:-target}/release/nuthatch
"$nuthatch" bench run "$campaign" --out "$results"
"$nuthatch" bench report "$results" --markdown docs/benchmarks-peers.md
if command -v chromium >/dev/null; then
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1240,1592 \
        --screenshot=docs/images/report.png "file://$(realpath "$results")/report.html"
else
    echo "no chromium: docs/images/report.png stays as it is" >&2
fi
