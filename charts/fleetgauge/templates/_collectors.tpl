{{/*
Collectors: which of them run together, and what each is told. The names of their variables come from
files/settings.yaml, which is made from the code.
*/}}

{{/* The enabled collectors as a JSON list; `with` decides about a schedule of their own: "own", "shared" or "all". */}}
{{- define "fleetgauge.enabled" -}}
{{- $names := list }}
{{- range $name := keys .root.Values.collectors | sortAlpha }}
{{- $one := get $.root.Values.collectors $name }}
{{- $own := empty $one.schedule | ternary "shared" "own" }}
{{- if and $one.enabled (has $.with (list "all" $own)) }}
{{- $names = append $names $name }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* The collectors that measure a node, as a JSON list: each of their runs must know which one. */}}
{{- define "fleetgauge.perNode" -}}
{{- $names := list }}
{{- range $name, $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- if $known.per_node }}
{{- $names = append $names $name }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* The CronJobs as a JSON list: the ending of their names, their collectors, and what is their own. */}}
{{- define "fleetgauge.runs" -}}
{{- $runs := list }}
{{- with include "fleetgauge.enabled" (dict "root" . "with" "shared") | fromJsonArray }}
{{- $runs = append $runs (dict "suffix" "" "names" . "own" dict) }}
{{- end }}
{{- range include "fleetgauge.enabled" (dict "root" . "with" "own") | fromJsonArray }}
{{- $runs = append $runs (dict "suffix" (printf "-%s" (replace "_" "-" .)) "names" (list .) "own" (get $.Values.collectors .)) }}
{{- end }}
{{- toJson $runs }}
{{- end }}

{{/* A value as a variable holds it: lists by commas, and large numbers without an exponent. */}}
{{- define "fleetgauge.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if kindIs "float64" . }}{{ eq . (floor .) | ternary (int64 . | toString) (toString .) }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{/* One variable, or nothing where there is no value: list of its name and value. */}}
{{- define "fleetgauge.variable" -}}
{{- $text := kindIs "invalid" (index . 1) | ternary "" (include "fleetgauge.text" (index . 1)) }}
{{- if $text }}
- name: {{ index . 0 }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}

{{/* The variables of collectors: their settings, and references to their secrets. */}}
{{- define "fleetgauge.collectorVariables" -}}
{{- $known := .root.Files.Get "files/settings.yaml" | fromYaml }}
{{- range $name := .names }}
{{- $settings := (get $.root.Values.collectors $name).settings | default dict }}
{{- range $key := keys $settings | sortAlpha }}
{{- include "fleetgauge.variable" (list (get (get $known $name).variables $key) (get $settings $key)) }}
{{- end }}
{{- include "fleetgauge.secretVariables" (dict "root" $.root "variables" (get $known $name).secrets) }}
{{- end }}
{{- end }}

{{/* References to the existing secret, by variable and whether it is required; from AWS the service reads itself. */}}
{{- define "fleetgauge.secretVariables" -}}
{{- if .root.Values.existingSecret }}
{{- range $variable, $required := .variables }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef:
      name: {{ $.root.Values.existingSecret | quote }}
      key: {{ $variable }}
      {{- if not $required }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where runs go: for each kind of pod but those of nodes. */}}
{{- define "fleetgauge.placement" -}}
{{- pick .Values "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" | toJson }}
{{- end }}
