# shellcheck shell=bash
# What the scripts of the test command share; to be sourced. Patience with package registries, and with processes.

# Runs a command up to five times, with growing pauses: registries have hiccups. NUTHATCH_RETRY_PAUSES="1 1" gives others.
persistently() {
    local pause
    for pause in ${NUTHATCH_RETRY_PAUSES-5 10 20 40}; do
        if "$@"; then return 0; fi
        echo "failed, again in $pause s: $*" >&2
        sleep "$pause"
    done
    "$@"
}

# Ends a process that this shell has started: asks, and insists after a minute.
end_process() {
    local pid=$1 _
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 600); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}

# Unpacks Debian's packages into a new directory. Nothing is installed; apt-get update, as root or with sudo, only where there
# are no package lists.
unpack_debian() {
    local into=$1 root=() package
    shift
    rm -rf "$into"
    mkdir -p "$into"
    fetch_debian() { (cd "$into" && apt-get -q download "$@" >/dev/null); }
    if ! fetch_debian "$@" 2>/dev/null; then
        [ "$(id -u)" = 0 ] || root=(sudo -n)
        persistently "${root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update >/dev/null
        persistently fetch_debian "$@"
    fi
    for package in "$into"/*.deb; do
        dpkg-deb -x "$package" "$into"
    done
}

# Fetches the modules of a Go package, which is in the current directory or below it; builds one. The first alone needs a registry.
go_fetch() { GOFLAGS=-mod=readonly go list -deps "$1" >/dev/null; }
go_build() { CGO_ENABLED=0 GOFLAGS=-mod=readonly go build "$@"; }

# Fetches the crates that this machine needs for a workspace, given by a manifest.
cargo_fetch() { cargo fetch --locked --manifest-path "$1" --target "$(rustc -vV | sed -n 's/^host: //p')"; }
