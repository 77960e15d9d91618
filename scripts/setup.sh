#!/usr/bin/env bash
# Installs everything that forkd needs on Debian or Ubuntu. Fast if nothing is missing.
# Usage: scripts/setup.sh [--tests]
set -euo pipefail
cd "$(dirname "$0")/.."

with_tests=no
case "${1:-}" in
  "") ;;
  --tests) with_tests=yes ;;
  *) echo "usage: scripts/setup.sh [--tests]" >&2; exit 2 ;;
esac

say() { echo "setup: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }

log=$(mktemp)
# Only in this shell: the ticker inherits the trap until it has started, and removes the log if it is killed before.
trap 'if [ "$BASHPID" = "$$" ]; then rm -f "$log"; fi' EXIT

# step TITLE COMMAND...: prints the title, then every few seconds the elapsed time and the newest line of output, so
# that a slow machine does not look stuck. Prints all output if the command fails.
step() {
  local title=$1 ticker status=0
  shift
  say "$title"
  : >"$log"
  tick "$title" &
  ticker=$!
  # In the foreground: bash makes background commands ignore Ctrl-C.
  "$@" >"$log" 2>&1 || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
  if [ "$status" -ne 0 ]; then cat "$log" >&2; fi
  return "$status"
}

tick() {
  local title=$1 began=$SECONDS wait=5 line
  if [ -t 2 ]; then wait=1; fi
  # Hold neither the lock nor the pipes, which a caller of the set-up waits for, and end with the set-up.
  exec 9<&-
  # Waits without a process: a killed ticker would leave its sleep behind. The pipe has a writer, so only the time ends read.
  exec 8<> <(:)
  while true; do
    read -rt "$wait" -u 8 || true
    kill -0 $$ 2>/dev/null || return 0
    line=$(tail -n 1 "$log" | tr -d '[:cntrl:]' | sed 's/^ *//')
    line="setup: $title ($((SECONDS - began)) s)${line:+: $line}"
    if [ -t 2 ]; then printf '\r\033[K%s' "${line:0:79}" >&2; else echo "$line" >&2; fi
  done
}

# Two concurrent runs (make test and make demo) would build into the same folders.
exec 9<scripts/setup.sh
flock 9

# Daemons and file-system tools are in sbin, which is not in the PATH of an unprivileged user.
PATH="$PATH:/usr/sbin:/sbin"

install_packages() {
  local command=(apt-get install --yes --no-install-recommends "$@")
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if have sudo && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      echo "setup: these packages are missing and only root can install them. Run:" >&2
      echo "  sudo apt-get update && sudo ${command[*]}" >&2
      return 1
    fi
  fi
  if ! have apt-get; then
    echo "setup: this is not Debian or Ubuntu. Install what corresponds to: $*" >&2
    return 1
  fi
  step "fetching the lists of packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update &&
    step "installing packages: $*" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${command[@]}"
}

# Debian's npm depends on hundreds of packages; any Node from 18 on with npm works too.
node_major() { (node --version 2>/dev/null || echo v0) | sed -n 's/^v\([0-9]*\).*/\1/p'; }

distribution_packages() {
  local missing=()
  have qemu-system-x86_64 || missing+=(qemu-system-x86)
  have qemu-img || missing+=(qemu-utils)
  have mkfs.ext4 || missing+=(e2fsprogs)
  have mmdebstrap || missing+=(mmdebstrap)
  have sqfstar || missing+=(squashfs-tools)
  have newuidmap || missing+=(uidmap)
  have xz || missing+=(xz-utils)
  have zstd || missing+=(zstd)
  have gcc || missing+=(gcc libc6-dev)
  if ! have npm || [ "$(node_major)" -lt 18 ]; then missing+=(nodejs npm); fi
  have cargo || missing+=(cargo rustc)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  if [ ${#missing[@]} -gt 0 ]; then install_packages "${missing[@]}"; fi
}

# Tests that need one of these skip themselves with a reason, so a missing package is not an error.
test_packages() {
  local missing=()
  have docker-registry || missing+=(docker-registry)
  have runc || missing+=(runc)
  have mkfs.btrfs || missing+=(btrfs-progs)
  have shellcheck || missing+=(shellcheck)
  have ip || missing+=(iproute2)
  have git || missing+=(git)
  have zsh || missing+=(zsh)
  have fish || missing+=(fish)
  # Debian splits venv from python3; this package depends on the other parts.
  python3 -c "import ensurepip" 2>/dev/null || missing+=(python3-venv)
  # rustup includes both; the distribution's cargo does not.
  if dpkg-query -W cargo >/dev/null 2>&1; then
    have cargo-fmt || missing+=(rustfmt)
    have cargo-clippy || missing+=(rust-clippy)
  fi
  if [ ${#missing[@]} -gt 0 ] && ! install_packages "${missing[@]}"; then
    say "warning: continuing without ${missing[*]}; tests and checks that need them are skipped"
  fi
  # Separately: a distribution may lack one of these packages, which must not make the others fail.
  if ! compgen -G "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-x86_64.a" >/dev/null && ! install_packages libclang-rt-dev; then
    say "warning: continuing without libFuzzer; the Rust parsers are tested with their corpora only"
  fi
  if ! have chromium && ! install_packages chromium; then
    say "warning: continuing without chromium; tests with a browser are skipped"
  fi
}

# Lint, types and packaging of the Python SDK. Its other tests need only python3.
python_tools() {
  local venv=dist/python-tools wanted=python/requirements-dev.txt
  if ! have python3; then return; fi
  # A replaced python3 leaves the environment without an interpreter.
  if cmp -s "$wanted" "$venv/installed" && "$venv/bin/python" -c "" 2>/dev/null; then return; fi
  rm -rf "$venv"
  if step "making $venv" python3 -m venv "$venv" &&
    step "installing ruff, mypy and hatchling into $venv" "$venv/bin/pip" install --disable-pip-version-check -r "$wanted"; then
    cp "$wanted" "$venv/installed"
  else
    rm -rf "$venv"
    say "warning: continuing without ruff, mypy and hatchling (python3-venv or the package index is missing); checks and tests that need them are skipped"
  fi
}

node_packages() {
  if [ -e node_modules/.package-lock.json ] && [ ! package-lock.json -nt node_modules/.package-lock.json ]; then return; fi
  # Not "npm ci": it rejects the lock file if a registry lacks the optional packages of other platforms. With --no-save
  # npm follows the lock file, including digests, and does not rewrite it.
  step "installing npm packages" npm install --no-save --loglevel=error --no-audit --no-fund
  # npm keeps the timestamps of the archive; mark this lock file as installed now.
  touch node_modules/.package-lock.json
}

rust_is_current() {
  local binary
  for binary in dist/bin/forkd-agent dist/bin/forkd-warden dist/bin/forkd-read-only.so; do
    [ -x "$binary" ] || return 1
    [ -z "$(find Cargo.toml Cargo.lock .cargo vendor guest warden wire -name target -prune -o -type f -newer "$binary" -print -quit)" ] || return 1
  done
}

rust_binaries() {
  if rust_is_current; then return; fi
  # Frozen: the crates are in vendor/, so cargo needs no crate index.
  step "building the guest agent and the warden" cargo build --release --frozen
  mkdir -p dist/bin
  local name
  for name in forkd-agent forkd-warden; do
    # Replace the file by a rename: the old one may be running.
    cp "${CARGO_TARGET_DIR:-target}/release/$name" "dist/bin/$name.new"
    mv -f "dist/bin/$name.new" "dist/bin/$name"
  done
  rustc --edition 2021 --crate-type cdylib -O -C panic=abort -C strip=symbols -o dist/bin/read-only.new warden/preload/read_only.rs
  mv -f dist/bin/read-only.new dist/bin/forkd-read-only.so
}

ui_is_current() {
  [ -e dist/ui/index.html ] || return 1
  [ -z "$(find packages/ui packages/sdk/src node_modules/.package-lock.json -type f -newer dist/ui/index.html -print -quit)" ]
}

dashboard() {
  if ui_is_current; then return; fi
  step "building the dashboard" node_modules/.bin/node packages/ui/build.ts
}

guest_kernel() {
  ./forkd image kernel --quiet
}

distribution_packages
if [ "$with_tests" = yes ]; then
  test_packages
  python_tools
fi
node_packages
dashboard
rust_binaries
guest_kernel
say "ready"
