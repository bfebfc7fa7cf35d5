#!/bin/bash
# Stands in for each agent: notes below $NOTES how it was started, then does what $WHAT says. It is no program for Node, which takes ten
# times as long to start. Arguments and variables are noted as the system has them, because bash changes its own.
if [[ $1 = --version ]]; then
  [[ -v OPENAI_API_KEY ]] && exit 1 # a key of the caller
  echo "${PI_VERSION:-0.87.1}" >&"${PI_OUTPUT:-1}"
  exit
fi
cat /proc/$$/cmdline >"$NOTES/args"
cat /proc/$$/environ >"$NOTES/env"
pwd -P >"$NOTES/cwd"

url='http://127\.0\.0\.1:([0-9]+)([^"]*)'
[[ $ANTHROPIC_BASE_URL =~ $url ]] || [[ $* =~ base_url=\"$url ]] || [[ $LOCAL_PROXY_PROVIDER$OPENCODE_CONFIG_CONTENT =~ \"baseU..\":\"$url ]]
port=${BASH_REMATCH[1]}
path=${BASH_REMATCH[2]}

request() { # METHOD PATH BODY
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' "$1" "$2" "$port" ${#3} "$3" >&3
  response=$(cat <&3)
  exec 3>&-
}

case $WHAT in
  ask)
    request POST "$path/messages" '{}'
    printf %s "${response##*$'\r\n\r\n'}" | tee "$NOTES/answer"
    ;;
  fail)
    request POST "$path/" '{}'
    exit 7
    ;;
  die)
    request POST "$path/" '{}'
    kill -KILL $$
    ;;
  wait)
    trap 'exit 9' TERM
    printf waiting
    while :; do sleep 0.05; done
    ;;
  whole) # the end of a chunked body, without its last line feed
    request POST "$path/" '{}'
    [[ $response == *$'\r\n0\r\n\r' ]] || exit 8
    ;;
  lose)
    for ((i = 0; i < REQUESTS; i++)); do request POST "$path/" '{}'; done
    ;;
  look) request GET "$path/v1/models" '' ;;
esac
exit 0
