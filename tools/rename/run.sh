#!/usr/bin/env bash
# Renames the tree in the current directory, a clean checkout. See README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
test -z "$(git status --porcelain --untracked-files=no)" || { echo "not a clean checkout" >&2; exit 1; }
python3 "$here/rename.py"
cargo fmt --all
git add -A
git status --short | awk '{print substr($1,1,1)}' | sort | uniq -c
