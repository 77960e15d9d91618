#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to where forkd runs. Cheap when there is nothing to do.
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

# Two runs at once (make test beside make demo) would build into each other's folders.
exec 9<scripts/setup.sh
flock 9

# Daemons and file-system tools live in sbin, which is not in the PATH of an ordinary user.
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
  say "installing packages: $*"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${command[@]}" -qq >/dev/null
}

# Debian's npm depends on hundreds of packages; any Node from 18 on with npm does as well.
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

# Tests that need one of these skip themselves with a reason, so their absence is no failure.
test_packages() {
  local missing=()
  have docker-registry || missing+=(docker-registry)
  have runc || missing+=(runc)
  have mkfs.btrfs || missing+=(btrfs-progs)
  have shellcheck || missing+=(shellcheck)
  have ip || missing+=(iproute2)
  have git || missing+=(git)
  # Debian keeps a part of python3's own library in this package, which depends on the rest.
  python3 -c "import ensurepip" 2>/dev/null || missing+=(python3-venv)
  # rustup brings both with it; the distribution's cargo does not.
  if dpkg-query -W cargo >/dev/null 2>&1; then
    have cargo-fmt || missing+=(rustfmt)
    have cargo-clippy || missing+=(rust-clippy)
  fi
  if [ ${#missing[@]} -gt 0 ] && ! install_packages "${missing[@]}"; then
    say "warning: going on without ${missing[*]}; tests and checks that need them are skipped"
  fi
  # By itself: Ubuntu has no such package, and the others must not go with it.
  if ! have chromium && ! install_packages chromium; then
    say "warning: going on without chromium; tests with a browser are skipped"
  fi
}

# Lint, types and packaging of the Python SDK. Its other tests need only python3 itself.
python_tools() {
  local venv=dist/python-tools wanted=python/requirements-dev.txt
  if ! have python3; then return; fi
  # Another python3 in place of the one that it was made with leaves it without an interpreter.
  if cmp -s "$wanted" "$venv/installed" && "$venv/bin/python" -c "" 2>/dev/null; then return; fi
  say "installing ruff, mypy and hatchling into $venv"
  rm -rf "$venv"
  if python3 -m venv "$venv" >/dev/null && "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"; then
    cp "$wanted" "$venv/installed"
  else
    rm -rf "$venv"
    say "warning: going on without ruff, mypy and hatchling (python3-venv or the package index is missing); what needs them is skipped"
  fi
}

node_packages() {
  if [ -e node_modules/.package-lock.json ] && [ ! package-lock.json -nt node_modules/.package-lock.json ]; then return; fi
  say "installing npm packages"
  # Not "npm ci": it refuses the lock file when a registry lacks the optional packages of other platforms.
  # With --no-save the lock file is obeyed, digests included, and never rewritten.
  npm install --no-save --loglevel=error --no-audit --no-fund >/dev/null
  # npm keeps the time stamps of the archive; what counts is that this lock file is installed now.
  touch node_modules/.package-lock.json
}

rust_is_current() {
  local binary
  for binary in dist/bin/forkd-agent dist/bin/forkd-warden dist/bin/forkd-read-only.so; do
    [ -x "$binary" ] || return 1
    [ -z "$(find Cargo.toml Cargo.lock .cargo guest warden -name target -prune -o -type f -newer "$binary" -print -quit)" ] || return 1
  done
}

rust_binaries() {
  if rust_is_current; then return; fi
  say "building the guest agent and the warden"
  cargo build --release --locked --quiet
  mkdir -p dist/bin
  local name
  for name in forkd-agent forkd-warden; do
    # A new file in place of the old one: the old one may be running.
    cp "${CARGO_TARGET_DIR:-target}/release/$name" "dist/bin/$name.new"
    mv -f "dist/bin/$name.new" "dist/bin/$name"
  done
  rustc --edition 2021 --crate-type cdylib -O -C panic=abort -C strip=symbols -o dist/bin/read-only.new warden/preload/read_only.rs
  mv -f dist/bin/read-only.new dist/bin/forkd-read-only.so
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
rust_binaries
guest_kernel
say "ready"
