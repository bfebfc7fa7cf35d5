#!/usr/bin/env bash
# Builds the two programs that check the Helm chart, at pinned versions, into .tools/bin. Needs Go 1.24 or later.
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
