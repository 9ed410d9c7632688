# The one door to everyday work. `just --list` shows what there is.

# Build the server as it is shipped.
build:
    cargo build --release --locked

# Run a broker on 127.0.0.1:4222 with its data in ./data.
serve *ARGS:
    cargo run --release --locked -- serve -a 127.0.0.1 -js -sd ./data {{ARGS}}

# Everything that must pass before a change lands: unit, property, crash and client tests.
test:
    ./tests/run.sh

# Only what needs no server process: quick.
unit:
    cargo test --workspace --lib --locked

# Five unmodified NATS clients against a fresh server.
clients *ARGS:
    ./tests/clients/run.sh {{ARGS}}

# The real server on an Azurite, a fake-gcs-server and a MinIO: `just stores azurite` runs one.
stores *PARTS:
    ./tests/stores.sh {{PARTS}}

# /metrics, websocket in Node and in a browser, TLS, the examples, the programs and links of the pages: `just net docs` runs one part.
net *ARGS:
    ./tests/clients/net/run.sh {{ARGS}}

# The same operations against a real nats-server and against ours; transcripts must be equal.
differential:
    ./tests/peers.sh
    cargo test -p nuthatch --test differential --locked

# Longer: many more rounds of kill -9.
soak ROUNDS="300":
    NUTHATCH_KILL_ROUNDS={{ROUNDS}} cargo test --release -p nuthatch --test kill9 --locked -- --nocapture

# Mixed features with reloads, consumer churn, slow readers and killed clients: an hour, or less.
soak-features SECONDS="3600":
    NUTHATCH_SOAK_SECONDS={{SECONDS}} cargo test --release -p nuthatch --test soak --locked -- --nocapture

# Every fuzz target for a minute (needs a nightly compiler and `cargo install cargo-fuzz --locked`).
# The test `fuzz_corpus` runs the same targets for a second each on the stable compiler.
fuzz SECONDS="60":
    for target in $(cargo +nightly fuzz list); do \
        cargo +nightly fuzz run $target -- -max_total_time={{SECONDS}} -max_len=8192 -timeout=20 || exit 1; \
    done

# Format, lint, tests: what CI runs.
ci:
    ./.ci/run

# Nanoseconds of the hot paths.
bench:
    cargo bench --workspace

# Licences, advisories and duplicate versions of dependencies (needs cargo-deny, and the network for the
# database of advisories). `cargo deny check licenses bans sources` needs no network: with cargo-deny
# 0.20.2 it passed on 2026-11-22, with warnings about crates of which the tree has two versions. The
# advisories have not been checked yet.
deny:
    cargo deny check
