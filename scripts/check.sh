#!/usr/bin/env bash
# Runs all static checks, even after a failure, and prints a summary.
# Usage: scripts/check.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH="$PWD/node_modules/.bin:$PATH"

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
names=()
started=$SECONDS

# check NAME COMMAND...: runs in the background and keeps the output for later
check() {
  local name=$1
  shift
  names+=("$name")
  (
    "$@" >"$results/$name.out" 2>&1
    echo $? >"$results/$name.status"
  ) &
}

skip() {
  names+=("$1")
  echo "$2" >"$results/$1.out"
  echo skip >"$results/$1.status"
}

rust_check() {
  cargo clippy --locked --quiet --all-targets -- -D warnings &&
    clippy-driver --edition 2021 --crate-type cdylib -C panic=abort -D warnings -o "$results/preload.so" warden/preload/read_only.rs
}

rust_format() {
  cargo fmt --all --check && rustfmt --edition 2021 --check warden/preload/read_only.rs
}

python_tool() {
  local tool=$1
  shift
  cd python && "../dist/python-tools/bin/$tool" "$@"
}

check types tsc -p tsconfig.json
check types-ui tsc -p packages/ui/tsconfig.json
check lint oxlint --type-aware --deny-warnings
check format oxfmt --check
check dead-code knip --no-progress --no-config-hints
check rooms node scripts/check-rooms.ts
check docs node scripts/check-docs.ts
check generated node scripts/gen.ts --check
if cargo fmt --version >/dev/null 2>&1; then
  check rust-format rust_format
else
  skip rust-format "cargo fmt is not installed"
fi
if cargo clippy --version >/dev/null 2>&1; then
  check rust-lint rust_check
else
  skip rust-lint "cargo clippy is not installed"
fi
if command -v shellcheck >/dev/null; then
  check shell shellcheck forkd .ci/run scripts/*.sh examples/run deploy/docker/*.sh
else
  skip shell "shellcheck is not installed"
fi
if command -v python3 >/dev/null; then
  check python-halves python3 python/tools/unasync.py --check
else
  skip python-halves "python3 is not installed"
fi
if [ -e dist/python-tools/installed ]; then
  check python-format python_tool ruff format --check --quiet --diff . ../examples
  check python-lint python_tool ruff check --quiet . ../examples
  check python-types python_tool mypy --no-error-summary
else
  for name in python-format python-lint python-types; do skip "$name" "ruff and mypy come with 'scripts/setup.sh --tests'"; done
fi
wait

failed=()
for name in "${names[@]}"; do
  status=$(cat "$results/$name.status")
  case "$status" in
    0) echo "check: $name ok" ;;
    skip) echo "check: $name skipped: $(cat "$results/$name.out")" ;;
    *)
      echo "check: $name FAILED"
      sed 's/^/    /' "$results/$name.out"
      failed+=("$name")
      ;;
  esac
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "check: failed: ${failed[*]} ($((SECONDS - started)) s)"
  exit 1
fi
echo "check: all ok ($((SECONDS - started)) s)"
