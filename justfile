# The one door to everyday work. `just --list` shows what there is.

# Build the server as it is shipped.
build:
    cargo build --release --locked

# Tarball, deb, rpm and image of a release, in target/dist: static where musl can be had (packaging/artefacts.py).
artefacts *ARGS:
    packaging/artefacts.py {{ARGS}}

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

# The same against a cluster, at a node without JetStream.
clients-cluster *ARGS:
    ./tests/clients/cluster/run.sh {{ARGS}}

# The real server on an Azurite, a fake-gcs-server and a MinIO: `just stores azurite` runs one.
stores *PARTS:
    ./tests/stores.sh {{PARTS}}

# /metrics, websocket in Node and in a browser, TLS, the examples, the programs and links of the pages: `just net docs` runs one part.
net *ARGS:
    ./tests/clients/net/run.sh {{ARGS}}

# The broker inside of other programs: C, the address sanitizer, Go, Python.
embed:
    ./tests/embed/run.sh

# Milvus's log on Nuthatch: Milvus's conformance test, crashes, fencing, truncation.
milvus *ARGS:
    ./tests/milvus/run.sh {{ARGS}}

# Plug-ins that people run on NATS, against our server: FastStream, taskiq, Watermill, NestJS, Moleculer.
plugins:
    ./tests/plugins/run.sh

# The same operations against a real nats-server and against ours; transcripts must be equal.
differential:
    ./tests/peers.sh
    cargo test -p nuthatch --test differential --locked

# Every long campaign on fresh seeds, sharing the time: `just proof --minutes 60`, or one: `just proof --part kill`.
# Appends to docs/proof-ledger.md; what fails is kept in tests/kept-seeds, which the tests replay.
proof *ARGS:
    ./tests/proof.py {{ARGS}}

# Tests of clusters with syncs that take 60 ms: `just slow-disks`, or `just slow-disks cluster_members quorum`.
slow-disks *TESTS:
    ./tests/slow-disks/run.sh {{TESTS}}

# Real processes keep a quorum log under faults: `just ring3`, or `just ring3 --seed 7 --seconds 600 --nodes 5`.
ring3 *ARGS:
    ./tests/ring3/run.sh {{ARGS}}

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

# Licences, advisories and duplicate versions of dependencies, as far as this machine can check them;
# says what it cannot (cargo-deny is missing, or the database of advisories on GitHub is out of reach).
deny:
    ./tests/deny.sh

# A hostile client against the release binary and against a nats-server, in turn, while a canary in another
# account measures its delays: `just hostile bomb,restore` runs the attacks that are named so.
hostile ONLY="":
    ./tests/peers.sh
    NUTHATCH_HOSTILE_PEER=1 NUTHATCH_HOSTILE_ONLY={{ONLY}} \
        cargo test --release -p nuthatch --test hostile --locked -- --nocapture

# Rules of durability switched off one at a time: the random schedules of their crate must fail for each.
# Long, so no part of `just ci`. `just mutations nuthatch-log` runs one crate's.
mutations +CRATES="nuthatch-log nuthatch-object nuthatch-streams":
    for crate in {{CRATES}}; do \
        cargo test --locked -p $crate --features mutations --test mutations -- --nocapture || exit 1; \
    done
