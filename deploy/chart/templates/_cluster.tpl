{{/* What the cluster's version allows: "true", or nothing. Usage: include "privatemode-proxy.since" (list . "1.18") */}}
{{- define "privatemode-proxy.since" -}}
{{- $root := index . 0 }}
{{- if semverCompare (printf ">=%s.0-0" (index . 1)) $root.Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}

{{/* True where pods are replaced one by one: their claim cannot be mounted by two at a time. */}}
{{- define "privatemode-proxy.singleWriter" -}}
{{- $workspace := .Values.config.workspace }}
{{- if and $workspace.enabled (ne $workspace.accessMode "ReadWriteMany") }}true{{ end }}
{{- end }}

{{/*
State of an object that the proxy reads at start-up only, so that an upgrade restarts the pods after it changed. The
object's version is hashed, not its content, which may be secret. Nothing where no cluster is asked (helm template).
Usage: include "privatemode-proxy.objectVersion" (list . "Secret" "name")
*/}}
{{- define "privatemode-proxy.objectVersion" -}}
{{- $root := index . 0 }}
{{- $object := lookup "v1" (index . 1) $root.Release.Namespace (index . 2) }}
{{- if $object }}{{ printf "%s %s" $object.metadata.uid $object.metadata.resourceVersion | sha256sum }}{{ end }}
{{- end }}
