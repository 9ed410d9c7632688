#!/usr/bin/env bash
# Licences, sources and known advisories of the dependencies, as far as this machine can tell: says what it
# could not check, and fails for what it found alone. Needs cargo-deny (cargo install cargo-deny --locked
# --version 0.20.2); NUTHATCH_INSTALL_DENY=1 builds it here, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/patience.sh
if ! cargo deny --version >/dev/null 2>&1 && [ -n "${NUTHATCH_INSTALL_DENY-}" ]; then
  persistently cargo install cargo-deny --locked --version 0.20.2
fi
if ! cargo deny --version >/dev/null 2>&1; then
  echo "NOT CHECKED: licences, sources, advisories (cargo-deny is not installed; NUTHATCH_INSTALL_DENY=1 installs it)"
  exit 0
fi
cargo deny check licenses bans sources
# The database of advisories is a repository on GitHub, which not every machine reaches.
if ! timeout "${NUTHATCH_DENY_FETCH_SECONDS:-120}" cargo deny fetch db; then
  echo "NOT CHECKED: advisories (their database cannot be fetched from here)"
  exit 0
fi
cargo deny check --disable-fetch advisories
