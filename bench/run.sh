#!/usr/bin/env bash
# tidegate beside nginx with git http-backend, in one run on loopback.
#   bench/run.sh              prints the comparison
#   bench/run.sh --write      also writes bench/RESULTS.md
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
exec python3 -B bench/compare.py --tidegate "${TIDEGATE_BIN:-$target/release/tidegate}" "$@"
