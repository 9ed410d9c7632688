#!/usr/bin/env bash
# The test command: everything that must pass, from a fresh checkout. It builds once, with the profile `ci`.
# Needs cargo and go (for the nats-server that ours is compared with); the client suites also need
# python3, node with npm, java with maven, openssl and a Chromium (on Debian: apt-get install
# python3-venv npm golang maven default-jdk-headless openssl chromium), and say so. Fetches a Prometheus and
# an etcd (Debian: the packages are unpacked below target, not installed; elsewhere put an etcd at target/peers/etcd).
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
. tests/binary.sh
. tests/steps.sh
. tests/lanes.sh

step "dependencies"
persistently cargo_fetch Cargo.toml

step "the server that ours is compared with"
./tests/peers.sh
./tests/etcd.sh

# Tests and binary in one build, with what release artefacts have; the client suites below start the same binary.
step "build"
cargo test --profile "$NUTHATCH_PROFILE" --workspace --features nuthatch/otlp,nuthatch/etcd --locked --no-run
NUTHATCH_BINARY=$(target_dir "$PWD")/$NUTHATCH_PROFILE/nuthatch
# The C libraries come with their tests; a build of them alone has other features of dependencies, and takes minutes.
NUTHATCH_LIBRARIES=$(target_dir "$PWD")/$NUTHATCH_PROFILE/deps
export NUTHATCH_BINARY NUTHATCH_LIBRARIES

# From here on in two lanes: the tests of the workspace in one, the scripts in the other, and what is left in both.
job "unit, property, crash and differential tests" \
  cargo test --profile "$NUTHATCH_PROFILE" --workspace --features nuthatch/otlp,nuthatch/etcd --locked --no-fail-fast
job "third-party clients" ./tests/clients/run.sh
# All five take as long as the job before; `just clients-cluster` and `just proof` run them.
job "third-party clients at a node without JetStream" ./tests/clients/cluster/run.sh nats-go nats-py
job "metrics, websocket, a browser, TLS, examples, the documentation" ./tests/clients/net/run.sh
job "inside of other programs" ./tests/embed/run.sh
job "a server in an Azurite" ./tests/stores.sh azurite
job "three servers, one quorum log, one killed" ./tests/clients/quorum/run.sh
job "clusters on slow disks" ./tests/slow-disks/run.sh
job "ring 3: processes, links, disks and power fail" ./tests/ring3/run.sh
job "backups with jsm.go" ./tests/clients/backup/run.sh
job "packages and chart" ./tests/packaging/run.sh
job "alerts and dashboards" ./tests/monitoring/run.sh
job "the console in a browser" ./tests/console/run.sh
run_jobs
