{{/* Name of the application in labels. */}}
{{- define "privatemode-proxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of every object: <chart>-<release>, which is also the service's host name (a DNS label: 63 characters, no dots). */}}
{{- define "privatemode-proxy.fullname" -}}
{{- $default := printf "%s-%s" (include "privatemode-proxy.name" .) .Release.Name }}
{{- default $default .Values.fullnameOverride | replace "." "-" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "privatemode-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ include "privatemode-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "privatemode-proxy.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "privatemode-proxy.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "privatemode-proxy.image" -}}
{{- if .Values.image.image -}}
{{ .Values.image.image }}
{{- else if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}
