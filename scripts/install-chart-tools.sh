#!/usr/bin/env bash
# Builds the programs that check the Helm chart and the Compose file, at pinned versions, into .tools/bin. Needs Go 1.24 or
# later.
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
