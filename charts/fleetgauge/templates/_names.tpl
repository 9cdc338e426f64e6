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

{{- define "fleetgauge.claimName" -}}
{{- with .Values.checkpoints.persistentVolumeClaim }}
{{- if .existingClaim }}{{ .existingClaim }}
{{- else if .create }}{{ include "fleetgauge.fullname" $ }}-checkpoints
{{- end }}
{{- end }}
{{- end }}

{{- define "fleetgauge.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}
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
{{- end }}
