{{/*
Names. A CronJob's may have 52 characters, and the longest ending here, of a backfill, has 16: what is longer
than 36 is cut, with a hash of the whole, so that two long names that begin alike stay two. Dots become dashes:
the name of an Indexed Job is part of a host's, which may have none.
*/}}
{{- define "fleetgauge.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimAll "-." }}
{{- end }}

{{- define "fleetgauge.fullname" -}}
{{- $whole := .Values.fullnameOverride }}
{{- if not $whole }}
{{- $name := include "fleetgauge.name" . }}
{{- $whole = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- end }}
{{- $whole = replace "." "-" $whole }}
{{- if gt (len $whole) 36 }}
{{- $whole = printf "%s-%s" ($whole | trunc 29 | trimAll "-") ($whole | sha256sum | trunc 6) }}
{{- end }}
{{- $whole }}
{{- end }}

{{- define "fleetgauge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "fleetgauge.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* A registry is what comes before the first slash and has a dot or a port. */}}
{{- define "fleetgauge.image" -}}
{{- $repository := .Values.image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- with .Values.image }}
{{- if .digest }}{{ $repository }}@{{ .digest }}
{{- else }}{{ $repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
{{- end }}

{{/* The secrets for the registry, as a JSON list; the charts of others write them as names or as objects. */}}
{{- define "fleetgauge.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat .Values.image.pullSecrets (.Values.global.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "map" . | ternary . (dict "name" .)) }}
{{- end }}
{{- uniq $secrets | toJson }}
{{- end }}

{{/* What a pod is found by; it may never change. */}}
{{- define "fleetgauge.selector" -}}
app.kubernetes.io/name: {{ include "fleetgauge.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "fleetgauge.labels" -}}
{{ include "fleetgauge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What the image is, as its points and its pods say. */}}
{{- define "fleetgauge.version" -}}
{{- .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels of a pod. Datadog joins by some of them; a tag that is no label is left out. What is said of pods wins. */}}
{{- define "fleetgauge.podLabels" -}}
{{- $labels := include "fleetgauge.labels" .root | fromYaml }}
{{- $_ := set $labels "app.kubernetes.io/component" .component }}
{{- $tags := dict "version" (include "fleetgauge.version" .root) "env" .root.Values.datadog.env "service" .root.Values.datadog.service }}
{{- range $key, $tag := $tags }}
{{- if regexMatch "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" $tag }}
{{- $_ := set $labels (printf "tags.datadoghq.com/%s" $key) $tag }}
{{- end }}
{{- end }}
{{- merge (deepCopy .root.Values.podLabels) $labels | toYaml }}
{{- end }}

{{/* Where the runs of a CronJob keep their state: in S3, on the claim at /state, or nowhere. */}}
{{- define "fleetgauge.state" -}}
{{- empty .Values.state.existingClaim | ternary .Values.state.s3 "/state" }}
{{- end }}
