#!/usr/bin/env bash
# curl and nothing else; prints a line per feature for scripts/clients.ts, and waits for one after each.
set -uo pipefail

question='Say this back, word by word'
twenty=$(seq -s ' ' -f 't%g' 0 19)

# MODEL [FURTHER MEMBERS]: asks.
ask() {
  curl --silent --show-error --no-buffer "$BASE_URL/v1/chat/completions" --header 'content-type: application/json' \
    --data "{\"model\":\"$1\",\"messages\":[{\"role\":\"user\",\"content\":\"$question\"}]${2-}}"
}

# FEATURE RESULT EXPECTED [COUNTED]
report() {
  if [ "$2" = "$3" ]; then
    printf '{"feature":"%s","ok":true%s}\n' "$1" "${4:+,\"counted\":$4}"
  else
    printf '{"feature":"%s","ok":false,"detail":"%s"}\n' "$1" "$(printf %s "$2" | tr -cd '[:alnum:] .,:' | cut -c1-200)"
  fi
  read -r _
}

contents() { grep -o '"content": *"[^"]*"' | sed 's/^"content": *"//; s/"$//' | tr -d '\n'; }
number() { grep -o "\"$1\": *[0-9]*" | tail -1 | grep -o '[0-9]*$'; }

report whole "$(ask sim-echo | contents)" "$question"
report stream "$(ask sim-20x0 ',"stream":true' | contents)" "$twenty"
report loop "$(ask sim-20x0 ',"stream":true' | grep -c '"choices": *\[\]')" 0
unasked=$(ask sim-20x0 ',"stream":true' | grep -c '"usage"')
asked=$(ask sim-20x0 ',"stream":true,"stream_options":{"include_usage":true}' | grep '"usage"')
report usage "$unasked, $(printf '%s\n' "$asked" | wc -l)" '0, 1' \
  "[$(printf %s "$asked" | number prompt_tokens),$(printf %s "$asked" | number completion_tokens)]"
tool='{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}'
report tools "$(ask sim-tools ",\"tools\":[$tool]" | grep -o '"arguments": *"[^}]*}"' | tr -cd '[:alpha:]')" argumentscitysim
words=''
for status in 401 429; do words+=$(ask "sim-error-$status" | grep -o "the simulated model answers $status"); done
report errors "$words" 'the simulated model answers 401the simulated model answers 429'
report abort "$(ask sim-500x20 ',"stream":true' 2>/dev/null | head -c 6)" 'data: '
