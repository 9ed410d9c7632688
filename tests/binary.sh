# shellcheck shell=bash
# Which build the suites use; to be sourced. CI builds tests and binary once, with the profile `ci` of Cargo.toml.

: "${NUTHATCH_PROFILE:=ci}"
export NUTHATCH_PROFILE

# Where cargo puts what it builds, given the repository.
target_dir() { echo "${CARGO_TARGET_DIR:-$1/target}"; }

# The server to test, given the repository: NUTHATCH_BINARY, else the newest of this checkout's builds.
nuthatch_binary() {
    local build newest="" path=${NUTHATCH_BINARY-}
    if [ -n "$path" ]; then
        [ -x "$path" ] || { echo "NUTHATCH_BINARY=$path is no program" >&2; return 2; }
        echo "$path"
        return
    fi
    for build in ci release debug; do
        path=$(target_dir "$1")/$build/nuthatch
        if [ -x "$path" ] && { [ -z "$newest" ] || [ "$path" -nt "$newest" ]; }; then newest=$path; fi
    done
    [ -n "$newest" ] || { echo "no server: build nuthatch first, or give --server-cmd or NUTHATCH_BINARY" >&2; return 2; }
    echo "$newest"
}
