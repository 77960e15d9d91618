#!/usr/bin/env bash
# Full test of KVM on this machine: the probe, the tests on real VMs, and the benchmarks with and without KVM.
# Usage: scripts/kvm.sh [REPORT.md]
set -euo pipefail
cd "$(dirname "$0")/.."
report=${1:-kvm-report.md}

if [ ! -r /dev/kvm ] || [ ! -w /dev/kvm ]; then
  echo "kvm: /dev/kvm cannot be opened by $(id -un); './forkd doctor' says what to do." >&2
  exit 1
fi
scripts/setup.sh --tests
if ! env -u FORKD_ACCELERATOR ./forkd doctor --json | grep -q '"accelerator": *"kvm"'; then
  ./forkd doctor || true
  echo "kvm: KVM does not work on this machine; the line 'accelerator' above says why." >&2
  exit 1
fi
# No fallback: a test without KVM must fail.
FORKD_ACCELERATOR=kvm make test-e2e
./forkd bench kvm >"$report"
cat "$report"
