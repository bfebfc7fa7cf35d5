{{/* Values that contradict each other, in words; all of them at once. What one value alone gets wrong, values.schema.json tells. */}}
{{- define "privatemode-proxy.checks" -}}
{{- $problems := list }}
{{- $config := .Values.config }}

{{- $none := dict
  "ingress" "Make an Ingress of your own for the service; it has to stream answers."
  "serviceAccount" "No token is mounted. Name an account that exists in serviceAccountName."
  "preStopSeconds" "The proxy waits by itself: set shutdownDelaySeconds." }}
{{- range $name, $instead := $none }}
{{- if hasKey $.Values $name }}
{{- $problems = append $problems (printf "%s: this chart has none. %s" $name $instead) }}
{{- end }}
{{- end }}

{{- if contains "edgelesssys/" (.Values.image.image | default "") }}
{{- $problems = append $problems "image.image names the image of the vendor's program, which knows few of the flags that this chart sets. Leave it out, or name an image of this program." }}
{{- end }}

{{- if and (include "privatemode-proxy.singleWriter" .) (gt (int .Values.replicaCount) 1) }}
{{- $problems = append $problems (printf "replicaCount is %d, but the claim %q is mounted as %s, by one pod only. Use a ReadWriteMany claim (config.workspace.accessMode), or set replicaCount to 1." (int .Values.replicaCount) $config.workspace.volumeClaimName $config.workspace.accessMode) }}
{{- end }}

{{- if and $config.sharedPromptCache.promptCacheSalt.enabled (not $config.sharedPromptCache.enabled) }}
{{- $problems = append $problems "config.sharedPromptCache.promptCacheSalt.enabled: a salt has no use while the cache is not shared. Set config.sharedPromptCache.enabled as well." }}
{{- end }}

{{- if $config.customCA.enabled }}
{{- if not (or $config.customCA.configMapName $config.customCA.secretName) }}
{{- $problems = append $problems "config.customCA.enabled: name the object that holds the bundle, in config.customCA.configMapName or config.customCA.secretName." }}
{{- end }}
{{- range $config.extraEnv }}
{{- if eq .name "SSL_CERT_FILE" }}
{{- $problems = append $problems "config.extraEnv sets SSL_CERT_FILE, which config.customCA sets already. Use one of the two." }}
{{- end }}
{{- end }}
{{- end }}

{{- if and (gt (len $config.corsAllowedOrigins) 1) (has "*" $config.corsAllowedOrigins) }}
{{- $problems = append $problems "config.corsAllowedOrigins: '*' allows every origin already. List either '*' or exact origins." }}
{{- end }}

{{- if .Values.metrics.enabled }}
{{- if eq (int .Values.metrics.port) (int $config.port) }}
{{- $problems = append $problems "metrics.port and config.port are the same. The metrics need a port of their own." }}
{{- end }}
{{- end }}

{{- if .Values.metrics.serviceMonitor.enabled }}
{{- if not .Values.metrics.enabled }}
{{- $problems = append $problems "metrics.serviceMonitor.enabled: there is nothing to monitor while metrics.enabled is false." }}
{{- end }}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
{{- $problems = append $problems "metrics.serviceMonitor.enabled: this cluster knows no monitoring.coreos.com/v1. Install the Prometheus operator first (with helm template, add --api-versions monitoring.coreos.com/v1)." }}
{{- end }}
{{- end }}

{{- if and .Values.metrics.dashboard.enabled (not .Values.metrics.enabled) }}
{{- $problems = append $problems "metrics.dashboard.enabled: there is nothing to show while metrics.enabled is false." }}
{{- end }}

{{- if .Values.metrics.rules.enabled }}
{{- if not .Values.metrics.enabled }}
{{- $problems = append $problems "metrics.rules.enabled: there is nothing to watch while metrics.enabled is false." }}
{{- end }}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
{{- $problems = append $problems "metrics.rules.enabled: this cluster knows no monitoring.coreos.com/v1. Install the Prometheus operator first (with helm template, add --api-versions monitoring.coreos.com/v1)." }}
{{- end }}
{{- end }}

{{- if and .Values.limits.store.existingSecret (not .Values.clients.existingSecret) }}
{{- $problems = append $problems "limits.store.existingSecret: there are no limits to count without clients. Name the secret with their file in clients.existingSecret." }}
{{- end }}

{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.extraEgress) }}
{{- $unknown := list }}
{{- if .Values.limits.store.existingSecret }}
{{- $unknown = append $unknown "limits.store" }}
{{- end }}
{{- /* A value may end in a variable, as in http://proxy:$(PORT). */}}
{{- range $config.extraEnv }}
{{- if and (has .name (list "https_proxy" "HTTPS_PROXY")) (or (hasKey . "valueFrom") (regexMatch "[$][(][^)]*[)]/?$" (default "" .value))) }}
{{- $unknown = append $unknown .name }}
{{- end }}
{{- end }}
{{- range $unknown }}
{{- $problems = append $problems (printf "networkPolicy.enabled closes the port of %s, whose address the chart does not know. Let the proxy reach it by a rule in networkPolicy.extraEgress." .) }}
{{- end }}
{{- end }}

{{- /* With their older spellings, which the proxy accepts too. */}}
{{- $own := list "api-key" "apiKey" "api-key-fallback" "cors-allowed-origins" "disable-prompt-cache" "sharedPromptCache" "prompt-cache-salt" "promptCacheSalt" "workspace" "port" "listen-address" "tls-cert-path" "tlsCertPath" "tls-key-path" "tlsKeyPath" "manifest-path" "manifestPath" "api-endpoint" "apiEndpoint" "log-format" "log-level" "shutdown-grace" "shutdown-delay" "receipts" "clients" "max-in-flight" "limits-store" "limits-store-failure" "metrics-address" }}
{{- range .Values.extraArgs }}
{{- $flag := regexFind "^--[^=]+" . | trimPrefix "--" }}
{{- if has $flag $own }}
{{- $problems = append $problems (printf "extraArgs: --%s is set by the chart. Use the value that stands for it." $flag) }}
{{- end }}
{{- end }}

{{- if $problems }}
{{- fail (printf "\n\n%s\n" (join "\n" $problems)) }}
{{- end }}
{{- end }}
