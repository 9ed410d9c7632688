#!/usr/bin/env bash
# The real server on stores that others wrote, over HTTP: Azurite (npm), fake-gcs-server and MinIO (both built with go).
#
#   stores.sh [azurite|fake-gcs|minio ...]
#
# On demand (`just stores`); the test command runs the part azurite. Programs are kept in NUTHATCH_PEERS, else
# ~/.cache/nuthatch-peers. Needs python3, node with npm for the first two, go for the last two, curl for fake-gcs.
# A missing tool is an error, never a skip.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/binary.sh

here=$PWD/tests/stores
home=${NUTHATCH_PEERS:-$HOME/.cache/nuthatch-peers}
fake_gcs=github.com/fsouza/fake-gcs-server@v1.56.1
minio=github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
ready_limit_s=30
tries=3

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(azurite fake-gcs minio)

die() { echo "stores.sh: $*" >&2; exit 2; }
need() { local tool; for tool in "$@"; do command -v "$tool" >/dev/null || die "$tool is needed and not there"; done; }

# Registries fail now and then.
again() {
    local left=$tries
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || die "failed $tries times: $*"
        sleep 3
    done
}

scratch=$(mktemp -d)
started=()
cleanup() {
    local pid
    for pid in "${started[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT

start() { # name, command…: in the background, its output kept
    local name=$1
    shift
    "$@" >"$scratch/$name.log" 2>&1 &
    started+=($!)
}

free_port() {
    python3 "$here/../ports.py"
}

wait_for() { # name, port
    local waited
    for ((waited = 0; waited < ready_limit_s * 10; waited++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return 0
        sleep 0.1
    done
    tail -30 "$scratch/$1.log" >&2
    die "$1 does not answer"
}

check() { # address, test, VARIABLE=VALUE…
    local store=$1 test=$2
    shift 2
    env "$@" NUTHATCH_TEST_STORE="$store" \
        cargo test --profile "$NUTHATCH_PROFILE" --workspace --features nuthatch/otlp,nuthatch/etcd --test stores --locked -- --ignored --exact "$test"
}

lives=what_was_acknowledged_outlives_the_machine_and_one_owner_goes_on
refused=a_store_that_lacks_something_is_refused_in_plain_words

run_azurite() {
    need node npm
    local dir=$home/azurite sum port
    sum=$(cksum <"$here/package-lock.json")
    if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$sum" ]; then
        mkdir -p "$dir"
        cp "$here/package.json" "$here/package-lock.json" "$dir/"
        again npm ci --no-audit --no-fund --ignore-scripts --silent --prefix "$dir"
        echo "$sum" >"$dir/stamp"
    fi
    port=$(free_port)
    start azurite node "$dir/node_modules/azurite/dist/src/blob/main.js" \
        --blobPort "$port" --inMemoryPersistence --silent --disableTelemetry
    wait_for azurite "$port"
    node "$here/container.mjs" "http://127.0.0.1:$port" logs
    check az://logs/tests "$lives" \
        AZURE_STORAGE_USE_EMULATOR=true AZURITE_BLOB_STORAGE_URL="http://127.0.0.1:$port"
}

run_fake_gcs() {
    need node go curl
    local port front
    [ -x "$home/fake-gcs-server" ] || again env GOBIN="$home" go install "$fake_gcs"
    port=$(free_port)
    start fake-gcs "$home/fake-gcs-server" -backend memory -scheme http -host 127.0.0.1 \
        -port "$port" -public-host "127.0.0.1:$port" -log-level warn
    wait_for fake-gcs "$port"
    curl -fsS -m 10 -o /dev/null -H 'content-type: application/json' -d '{"name": "logs"}' \
        "http://127.0.0.1:$port/storage/v1/b?project=tests"
    # It does not know the uploads of the API that the client speaks, and the server says so.
    check gs://logs/tests "$refused" "${gcs[@]}" GOOGLE_BASE_URL="http://127.0.0.1:$port" \
        NUTHATCH_TEST_STORE_LACKS="400 Bad Request"
    front=$(free_port)
    start gcs-puts node "$here/gcs-puts.mjs" "$front" "http://127.0.0.1:$port"
    wait_for gcs-puts "$front"
    check gs://logs/tests "$lives" "${gcs[@]}" GOOGLE_BASE_URL="http://127.0.0.1:$front"
    # Uploads without their condition: whatever is there would be replaced.
    front=$(free_port)
    start gcs-unconditional node "$here/gcs-puts.mjs" "$front" "http://127.0.0.1:$port" unconditional
    wait_for gcs-unconditional "$front"
    check gs://logs/tests "$refused" "${gcs[@]}" GOOGLE_BASE_URL="http://127.0.0.1:$front" \
        NUTHATCH_TEST_STORE_LACKS="does not support conditional creation"
}
gcs=(
    GOOGLE_ALLOW_HTTP=true
    GOOGLE_SERVICE_ACCOUNT_KEY='{"private_key": "none", "private_key_id": "none", "client_email": "none", "disable_oauth": true}'
)

run_minio() {
    need node go
    local port
    [ -x "$home/minio" ] || again env GOBIN="$home" go install "$minio"
    port=$(free_port)
    # A bucket is a directory of the drive.
    mkdir -p "$scratch/drive/logs"
    MINIO_ROOT_USER=nuthatch MINIO_ROOT_PASSWORD=nuthatch-tests MINIO_BROWSER=off \
        start minio "$home/minio" server --quiet --address "127.0.0.1:$port" "$scratch/drive"
    wait_for minio "$port"
    check s3://logs/tests "$lives" AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true \
        AWS_ACCESS_KEY_ID=nuthatch AWS_SECRET_ACCESS_KEY=nuthatch-tests AWS_REGION=us-east-1
}

mkdir -p "$home"
for part in "${parts[@]}"; do
    echo "-- a server in $part"
    case $part in
    azurite) run_azurite ;;
    fake-gcs) run_fake_gcs ;;
    minio) run_minio ;;
    *) die "unknown part $part; parts are azurite, fake-gcs, minio" ;;
    esac
done
