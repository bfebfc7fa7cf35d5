{{/* The command line. */}}
{{- define "privatemode-proxy.args" -}}
{{- $config := .Values.config }}
{{- $args := list (printf "--listen-address=%s" $config.listenAddress) }}
{{- $args = append $args (printf "--port=%d" (int $config.port)) }}
{{- $args = append $args (printf "--workspace=%s" $config.workspace.mountPath) }}
{{- $args = append $args (printf "--log-format=%s" .Values.log.format) }}
{{- $args = append $args (printf "--log-level=%v" .Values.log.level) }}
{{- $args = append $args (printf "--shutdown-grace=%ds" (int .Values.shutdownGraceSeconds)) }}
{{- if gt (int .Values.shutdownDelaySeconds) 0 }}
{{- $args = append $args (printf "--shutdown-delay=%ds" (int .Values.shutdownDelaySeconds)) }}
{{- end }}
{{- if $config.apiEndpoint.enabled }}
{{- $args = append $args (printf "--api-endpoint=%s" $config.apiEndpoint.apiEndpoint) }}
{{- end }}
{{- if $config.apiKey.enabled }}
{{- $args = append $args "--api-key=@/etc/privatemode-proxy/api-key/apiKey" }}
{{- end }}
{{- with $config.apiKey.fallback }}
{{- $args = append $args (printf "--api-key-fallback=%s" .) }}
{{- end }}
{{- with $config.corsAllowedOrigins }}
{{- $args = append $args (printf "--cors-allowed-origins=%s" (join "," .)) }}
{{- end }}
{{- if $config.sharedPromptCache.enabled }}
{{- $args = append $args "--disable-prompt-cache=false" }}
{{- if $config.sharedPromptCache.promptCacheSalt.enabled }}
{{- $args = append $args "--prompt-cache-salt=@/etc/privatemode-proxy/prompt-cache-salt/promptCacheSalt" }}
{{- end }}
{{- end }}
{{- if $config.tls.enabled }}
{{- $args = append $args "--tls-cert-path=/etc/privatemode-proxy/tls/tls.crt" }}
{{- $args = append $args "--tls-key-path=/etc/privatemode-proxy/tls/tls.key" }}
{{- end }}
{{- if $config.manifest.enabled }}
{{- $args = append $args (printf "--manifest-path=%s" $config.manifest.mountPath) }}
{{- end }}
{{- if $config.receipts }}
{{- $args = append $args "--receipts=true" }}
{{- end }}
{{- if .Values.clients.existingSecret }}
{{- $args = append $args (printf "--clients=/etc/privatemode-proxy/clients/%s" .Values.clients.fileName) }}
{{- end }}
{{- if gt (int .Values.limits.maxInFlight) 0 }}
{{- $args = append $args (printf "--max-in-flight=%d" (int .Values.limits.maxInFlight)) }}
{{- end }}
{{- if .Values.limits.store.existingSecret }}
{{- $args = append $args (printf "--limits-store=@/etc/privatemode-proxy/limits-store/%s" .Values.limits.store.key) }}
{{- $args = append $args (printf "--limits-store-failure=%s" .Values.limits.storeFailure) }}
{{- end }}
{{- if .Values.metrics.enabled }}
{{- $args = append $args (printf "--metrics-address=%s:%d" (ternary "[::]" $config.listenAddress (eq $config.listenAddress "::")) (int .Values.metrics.port)) }}
{{- end }}
{{- toYaml (concat $args (default list .Values.extraArgs)) }}
{{- end }}

{{- define "privatemode-proxy.env" -}}
{{- if .Values.config.customCA.enabled }}
- name: SSL_CERT_FILE
  value: /etc/privatemode-proxy/custom-ca/{{ .Values.config.customCA.fileName }}
{{- end }}
{{- with .Values.config.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "privatemode-proxy.volumeMounts" -}}
{{- $config := .Values.config -}}
- name: workspace
  mountPath: {{ $config.workspace.mountPath }}
{{- if $config.apiKey.enabled }}
- name: api-key
  mountPath: /etc/privatemode-proxy/api-key
  readOnly: true
{{- end }}
{{- if and $config.sharedPromptCache.enabled $config.sharedPromptCache.promptCacheSalt.enabled }}
- name: prompt-cache-salt
  mountPath: /etc/privatemode-proxy/prompt-cache-salt
  readOnly: true
{{- end }}
{{- if .Values.clients.existingSecret }}
- name: clients
  mountPath: /etc/privatemode-proxy/clients
  readOnly: true
{{- end }}
{{- if .Values.limits.store.existingSecret }}
- name: limits-store
  mountPath: /etc/privatemode-proxy/limits-store
  readOnly: true
{{- end }}
{{- if $config.tls.enabled }}
- name: tls
  mountPath: /etc/privatemode-proxy/tls
  readOnly: true
{{- end }}
{{- if $config.customCA.enabled }}
- name: custom-ca
  mountPath: /etc/privatemode-proxy/custom-ca
  readOnly: true
{{- end }}
{{- if $config.manifest.enabled }}
- name: manifest
  mountPath: {{ $config.manifest.mountPath }}
  subPath: {{ $config.manifest.fileName }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "privatemode-proxy.volumes" -}}
{{- $config := .Values.config -}}
- name: workspace
{{- if $config.workspace.enabled }}
  persistentVolumeClaim:
    claimName: {{ $config.workspace.volumeClaimName }}
{{- else }}
  emptyDir: {}
{{- end }}
{{- if $config.apiKey.enabled }}
- name: api-key
  secret:
    secretName: {{ $config.apiKey.apiKeySecretName }}
    defaultMode: 288 # 0440
    items:
      - { key: apiKey, path: apiKey }
{{- end }}
{{- if and $config.sharedPromptCache.enabled $config.sharedPromptCache.promptCacheSalt.enabled }}
- name: prompt-cache-salt
  secret:
    secretName: {{ $config.sharedPromptCache.promptCacheSalt.secretName }}
    defaultMode: 288 # 0440
    items:
      - { key: promptCacheSalt, path: promptCacheSalt }
{{- end }}
{{- with .Values.clients.existingSecret }}
# A directory with all keys of the secret: a file that is mounted alone would never change.
- name: clients
  secret:
    secretName: {{ . }}
    defaultMode: 288 # 0440
{{- end }}
{{- with .Values.limits.store }}
{{- if .existingSecret }}
- name: limits-store
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 288 # 0440
    items:
      - { key: {{ .key }}, path: {{ .key }} }
{{- end }}
{{- end }}
{{- if $config.tls.enabled }}
- name: tls
  secret:
    secretName: {{ $config.tls.secretName }}
    defaultMode: 288 # 0440
{{- end }}
{{- if $config.customCA.enabled }}
- name: custom-ca
{{- if $config.customCA.configMapName }}
  configMap:
    name: {{ $config.customCA.configMapName }}
{{- else }}
  secret:
    secretName: {{ $config.customCA.secretName }}
    defaultMode: 288 # 0440
{{- end }}
{{- end }}
{{- if $config.manifest.enabled }}
- name: manifest
  configMap:
    name: {{ $config.manifest.configMapName }}
{{- end }}
{{- end }}

{{/* Checksums of what is read at start-up only. */}}
{{- define "privatemode-proxy.podAnnotations" -}}
{{- $config := .Values.config }}
{{- $annotations := dict }}
{{- $read := dict }}
{{- if $config.customCA.enabled }}
{{- if $config.customCA.configMapName }}
{{- $_ := set $read "custom-ca" (list . "ConfigMap" $config.customCA.configMapName) }}
{{- else }}
{{- $_ := set $read "custom-ca" (list . "Secret" $config.customCA.secretName) }}
{{- end }}
{{- end }}
{{- if and $config.sharedPromptCache.enabled $config.sharedPromptCache.promptCacheSalt.enabled }}
{{- $_ := set $read "prompt-cache-salt" (list . "Secret" $config.sharedPromptCache.promptCacheSalt.secretName) }}
{{- end }}
{{- with .Values.limits.store.existingSecret }}
{{- $_ := set $read "limits-store" (list $ "Secret" .) }}
{{- end }}
{{- if $config.manifest.enabled }}
{{- $_ := set $read "manifest" (list . "ConfigMap" $config.manifest.configMapName) }}
{{- end }}
{{- range $name, $object := $read }}
{{- with include "privatemode-proxy.objectVersion" $object }}
{{- $_ := set $annotations (printf "checksum/%s" $name) . }}
{{- end }}
{{- end }}
{{- if and .Values.podSecurityContext.seccompProfile (not (include "privatemode-proxy.since" (list . "1.19"))) }}
{{- $_ := set $annotations "seccomp.security.alpha.kubernetes.io/pod" "runtime/default" }}
{{- end }}
{{- with mergeOverwrite $annotations .Values.podAnnotations }}
{{- toYaml . }}
{{- end }}
{{- end }}
