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

# Format, lint, tests: what CI runs.
ci:
    ./.ci/run

# Nanoseconds of the hot paths.
bench:
    cargo bench --workspace

# Licences, advisories and duplicate versions of dependencies (needs cargo-deny).
deny:
    cargo deny check
