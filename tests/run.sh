#!/usr/bin/env bash
# The test command: everything that must pass, from a fresh checkout.
# Needs cargo and go (for the nats-server that ours is compared with); the client suites also need
# python3, node with npm, java with maven, openssl and a Chromium (on Debian: apt-get install
# python3-venv npm golang maven default-jdk-headless openssl chromium), and say so. The monitoring step fetches a
# Prometheus (Debian: the package is unpacked below target, not installed).
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
step() { printf '\n-- %s (%s s)\n' "$1" "$SECONDS"; }

step "dependencies"
persistently cargo_fetch Cargo.toml

step "build"
cargo build --release --locked -p nuthatch

step "the server that ours is compared with"
./tests/peers.sh

step "unit, property, crash and differential tests"
cargo test --workspace --locked --no-fail-fast

step "a server in an Azurite"
./tests/stores.sh azurite

step "third-party clients"
./tests/clients/run.sh

step "backups with jsm.go"
./tests/clients/backup/run.sh

step "alerts and dashboards"
./tests/monitoring/run.sh

step "metrics, websocket, a browser, TLS, examples, the documentation"
./tests/clients/net/run.sh
