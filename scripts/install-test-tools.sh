#!/usr/bin/env bash
# Installs the programs of others that the tests run: from Debian's packages and its kin a browser, a Redis
# server, and what pages of docs call; into .tools/bin a Valkey server; into .tools/python the Python SDKs. Tests of an absent
# program are skipped, by name, unless CI=true, where they fail. Nothing is done where it is all there.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
for program in chromium redis-server python3 openssl jq; do
  command -v "$program" >/dev/null || missing+=("$program")
done
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update
  # Installing redis-server starts it as a service of the system; nothing here wants that.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install --yes --no-install-recommends "${missing[@]}"
fi

# From Debian's package, whose signature apt checks: of the release itself, or of its backports, which need not be among the sources of the
# machine. The server is in valkey-tools, under the name of a checker; the package valkey-server would start it as a service.
if [ ! -x .tools/bin/valkey-server ] && ! command -v valkey-server >/dev/null; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p .tools/bin "$scratch"/{sources,lists/partial}
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $release" 'Component: main' | head -n 1)
  printf 'Types: deb\nURIs: %s\nSuites: %s %s-backports\nComponents: main\nSigned-By: %s\n' "$archive" "$release" "$release" \
    /usr/share/keyrings/debian-archive-keyring.gpg >"$scratch/sources/debian.sources"
  apt=(apt-get -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$scratch/sources" -o "Dir::State::lists=$scratch/lists")
  "${apt[@]}" update
  (cd "$scratch" && "${apt[@]}" download valkey-tools && dpkg-deb --fsys-tarfile valkey-tools_*.deb | tar -x ./usr/bin/valkey-check-rdb)
  mv "$scratch/usr/bin/valkey-check-rdb" .tools/bin/valkey-server
fi

clients=(openai==3.54.0 anthropic==2.12.0)
stamp=".tools/python/.${clients[*]}"
if [ ! -e "$stamp" ]; then
  rm -rf .tools/python
  python3 -m venv .tools/python
  .tools/python/bin/pip install --quiet --disable-pip-version-check "${clients[@]}"
  touch "$stamp"
fi
