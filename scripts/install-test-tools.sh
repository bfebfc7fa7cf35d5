#!/usr/bin/env bash
# Installs the programs of others that the tests run, on Debian and its kin: a browser, an HTTP proxy, and one that opens
# TLS. Tests of an absent program are skipped, by name, unless CI=true, where they fail. Nothing is done where it is all there.
set -euo pipefail

missing=()
for program in chromium tinyproxy mitmdump; do
  case $program in
    mitmdump) package=mitmproxy ;;
    *) package=$program ;;
  esac
  command -v "$program" >/dev/null || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update
# Installing tinyproxy starts it as a service of the system; nothing here wants that.
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --yes --no-install-recommends "${missing[@]}"
