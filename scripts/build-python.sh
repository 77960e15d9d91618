#!/usr/bin/env bash
# Builds the wheel and the source archive of the Python SDK in dist/python, or in FOLDER. Needs no network.
# Usage: scripts/build-python.sh [FOLDER]
set -euo pipefail
out=$(realpath -m "${1:-$(dirname "$0")/../dist/python}")
cd "$(dirname "$0")/../python"

hatchling=../dist/python-tools/bin/hatchling
if [ ! -x "$hatchling" ]; then
  echo "build-python: there is no $(realpath -m "$hatchling"). Run scripts/setup.sh --tests." >&2
  exit 1
fi
rm -f "$out"/forkd_vm-*.whl "$out"/forkd_vm-*.tar.gz
"$hatchling" build -t sdist -t wheel -d "$out"
echo "The package is in $out. Publish it with 'twine upload $out/*'."
