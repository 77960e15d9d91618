#!/bin/sh
# Puts the guest kernel of the container image into a store that has none, then becomes the command.
set -eu
kernels=$(dirname "$0")/guest-kernels

# A volume's own folder may belong to root or be open to a group; a folder inside it is ours alone.
mkdir -p "$FORKD_HOME"
if [ -O "$FORKD_HOME" ]; then chmod go-rwx "$FORKD_HOME"; fi

if [ ! -e "$FORKD_HOME/guest-kernels/current" ]; then
  mkdir -p "$FORKD_HOME/guest-kernels"
  cp -R "$kernels"/base-* "$FORKD_HOME/guest-kernels/"
  # last: it says that the others are complete
  cp "$kernels/current" "$FORKD_HOME/guest-kernels/"
fi
exec "$@"
