#!/usr/bin/env bash
# The broker inside of other programs: the C libraries with their header from C, plain and under the address sanitizer,
# the Go module with nats.go, the Python wheel with nats-py. Needs cargo, gcc, pkg-config, go, and python3 with venv.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
# shellcheck source=../patience.sh
. "$repo/tests/patience.sh"
# shellcheck source=../binary.sh
. "$repo/tests/binary.sh"
# shellcheck source=../steps.sh
. "$repo/tests/steps.sh"
for tool in cargo gcc pkg-config go python3; do
    command -v "$tool" >/dev/null || { echo "embed/run.sh: $tool is needed and not there" >&2; exit 2; }
done
work=$(target_dir "$repo")/embed
prefix=$work/prefix
data=$(mktemp -d)
trap 'show_steps; rm -rf "$data"' EXIT
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib

step "embed: the libraries"
"$repo/packaging/c-library.sh" "$prefix"
ls -l --block-size=K "$prefix"/lib/libnuthatch.* | awk '{ print $5, $9 }'

step "embed: C"
flags="-std=c11 -Wall -Wextra -Werror -pedantic -O1 -g -pthread"
# shellcheck disable=SC2046,SC2086
{
    gcc $flags "$here/c/interface.c" -o "$work/interface" $(pkg-config --cflags --libs nuthatch)
    # The static library: what it allocates goes through the sanitizer too.
    gcc $flags -fsanitize=address,undefined "$here/c/interface.c" -o "$work/interface-asan" \
        $(pkg-config --cflags nuthatch) "$prefix/lib/libnuthatch.a" \
        $(pkg-config --static --libs-only-l nuthatch | sed 's/-lnuthatch//')
    # A header is C++ too.
    echo '#include <nuthatch.h>' | g++ -x c++ -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags nuthatch) -
}
# Nothing else leaves the shared library, but for what its checksum library exports by itself.
exported=$(nm -D --defined-only "$prefix/lib/libnuthatch.so.1" | awk '$2 == "T" { print $3 }' | grep -Ev '^(nuthatch|crc_fast)_' || true)
[ -z "$exported" ] || { echo "the shared library exports $exported" >&2; exit 1; }
"$work/interface" "$data/c"
ASAN_OPTIONS=detect_leaks=1 "$work/interface-asan" "$data/c-asan"

step "embed: Go"
cd "$repo/bindings/go"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "gofmt: $unformatted" >&2; exit 1; }
persistently go_fetch ./...
GOFLAGS=-mod=readonly go vet ./...
GOFLAGS=-mod=readonly go test -count=1 ./...

step "embed: Python"
if [ ! -x "$work/python/bin/python" ]; then
    python3 -m venv "$work/python"
fi
persistently "$work/python/bin/pip" install -q nats-py==2.16.0 hatchling==1.27.0
rm -rf "$work/wheel"
NUTHATCH_LIBRARY=$prefix/lib/libnuthatch.so.1 "$work/python/bin/pip" wheel -q --no-deps --no-build-isolation \
    -w "$work/wheel" "$repo/bindings/python"
ls -l --block-size=K "$work/wheel" | awk 'NR > 1 { print $5, $9 }'
"$work/python/bin/pip" install -q --no-deps --force-reinstall "$work"/wheel/*.whl
PYTHONDONTWRITEBYTECODE=1 "$work/python/bin/python" "$repo/bindings/python/tests/test_broker.py"
