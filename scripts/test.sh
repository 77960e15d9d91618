#!/usr/bin/env bash
# Runs the named suites, all of them even when one fails, and sums up.
# Usage: scripts/test.sh SUITE...   (check, unit, python, rust, e2e, recipes)
set -uo pipefail
cd "$(dirname "$0")/.." || exit
PATH="$PWD/node_modules/.bin:$PATH"

node_tests() {
  local concurrency=$1
  shift
  local files=()
  mapfile -t files < <(find "$@" -name '*.test.ts' -not -path '*/node_modules/*' 2>/dev/null | sort)
  if [ ${#files[@]} -eq 0 ]; then
    echo "no test files in $*"
    return 0
  fi
  node --test --test-concurrency="$concurrency" --disable-warning=ExperimentalWarning --test-reporter=spec "${files[@]}"
}

# The machine's own Python, and the oldest and the newest that are supported where it has them.
python_tests() {
  local status=0 seen="" name version
  if command -v pyenv >/dev/null; then
    PYENV_VERSION="$(pyenv version-name):$(pyenv versions --bare | paste -sd:)"
    export PYENV_VERSION
  fi
  for name in python3 python3.9 python3.13; do
    version=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case " $seen " in *" $version "*) continue ;; esac
    seen="$seen $version"
    echo "--- Python $version"
    PYTHONPATH=python/src "$name" python/tests/run.py unit || status=1
  done
  if [ -z "$seen" ]; then echo "skipped: there is no python3"; fi
  return "$status"
}

run_suite() {
  case "$1" in
    check) scripts/check.sh ;;
    unit) node_tests 2 packages/*/test examples/model/test ;;
    # Real VMs: two test files at once would measure and starve each other.
    e2e) node_tests 1 tests/e2e ;;
    recipes) node_tests 1 tests/recipes ;;
    python) python_tests ;;
    rust) cargo test --release --locked --quiet ;;
    *)
      echo "unknown suite: $1" >&2
      return 2
      ;;
  esac
}

summary=()
status=0
for suite in "$@"; do
  echo "=== $suite"
  started=$SECONDS
  if run_suite "$suite"; then
    summary+=("$suite ok ($((SECONDS - started)) s)")
  else
    summary+=("$suite FAILED ($((SECONDS - started)) s)")
    status=1
  fi
done

line=$(printf '%s, ' "${summary[@]}")
if [ "$status" -eq 0 ]; then
  echo "=== test: passed: ${line%, }"
else
  echo "=== test: FAILED: ${line%, }"
fi
exit "$status"
