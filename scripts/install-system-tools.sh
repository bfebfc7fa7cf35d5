#!/usr/bin/env bash
# Installs what the packaging checks take from the system, on Debian and its kin: systemd itself, with RELEASE=true an emulator and the
# libraries that the arm64 executable needs, what the lines of docs/install.md and docs/team.md call, readelf, and
# the compiler of lib/crypto/ghash.
# Nothing is done where it is all there.
set -euo pipefail

missing=()
command -v systemd-analyze >/dev/null && command -v systemd-notify >/dev/null || missing+=(systemd)
if [ -n "${RELEASE:-}" ] && [ "$(uname -m)" = x86_64 ]; then
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  [ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || missing+=(libc6-arm64-cross)
  [ -e /usr/aarch64-linux-gnu/lib/libstdc++.so.6 ] || missing+=(libstdc++6-arm64-cross)
  [ -e /usr/aarch64-linux-gnu/lib/libatomic.so.1 ] || missing+=(libatomic1-arm64-cross)
fi
command -v unshare >/dev/null || missing+=(util-linux)
command -v readelf >/dev/null || missing+=(binutils)
command -v curl >/dev/null || missing+=(curl)
command -v jq >/dev/null || missing+=(jq)
[ -x /usr/bin/rustc ] && [ -x /usr/bin/cargo ] || missing+=(rustc cargo)
[ -d /usr/lib/rustlib/wasm32-unknown-unknown ] || missing+=(libstd-rust-dev-wasm32)
[ -x /usr/bin/wasm-ld-14 ] || missing+=(lld-14)
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
