#!/usr/bin/env bash
# Puts the programs that check the Helm chart, the Compose file and the alert rules into .tools/bin: built at pinned versions with
# Go 1.24 or later, and promtool from Debian's package, whose signature apt checks, unless the machine has one.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v go >/dev/null || { echo "install-chart-tools: Go is missing" >&2; exit 1; }
export GOBIN="$PWD/.tools/bin"
mkdir -p "$GOBIN"

install() { # module@version
  local stamp="$GOBIN/.${1//[\/@]/_}"
  [ -e "$stamp" ] || { nice -n 19 go install "$1" && touch "$stamp"; }
}
install helm.sh/helm/v3/cmd/helm@v3.19.0
install sigs.k8s.io/kubectl-validate@v0.0.4
# The parser of Docker Compose, with the JSON schema of the Compose Specification in it; Go calls the program by its directory.
install github.com/compose-spec/compose-go/v2/cmd@v2.16.2
[ ! -e "$GOBIN/cmd" ] || mv "$GOBIN/cmd" "$GOBIN/compose-go"

# Unpacked rather than installed: the package would start a Prometheus server as a service of the system.
if [ ! -x "$GOBIN/promtool" ] && ! command -v promtool >/dev/null; then
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  (
    cd "$unpacked"
    apt-get download prometheus || { "${as_root[@]}" apt-get update && apt-get download prometheus; }
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
  )
  mv "$unpacked/usr/bin/promtool" "$GOBIN/promtool"
fi
