{{/* Shards: how many pods share the work of one run, and what cannot be shared. */}}

{{/* How many pods a run has: its own number, or that of all. */}}
{{- define "fleetgauge.shards" -}}
{{- .own.shards | default .root.Values.shards | int }}
{{- end }}

{{/* What makes the Job of a run Indexed. One index that fails costs its own share only, and never the Job. */}}
{{- define "fleetgauge.jobShape" -}}
{{- $shards := include "fleetgauge.shards" . | int }}
{{- $perIndex := semverCompare ">=1.29.0-0" .root.Capabilities.KubeVersion.Version }}
{{- if gt $shards 1 }}
completionMode: Indexed
completions: {{ $shards }}
parallelism: {{ $shards }}
{{- end }}
{{- if le $shards 1 }}
backoffLimit: {{ .root.Values.backoffLimit }}
{{- else if $perIndex }}
backoffLimitPerIndex: {{ .root.Values.backoffLimit }}
{{- else }}
backoffLimit: {{ $shards }}
{{- end }}
{{- end }}

{{/* What is wrong with shards, and with a store that pods on several nodes share, as a JSON list. */}}
{{- define "fleetgauge.wrongShards" -}}
{{- $wrong := list }}
{{- $perNode := include "fleetgauge.perNode" . | fromJsonArray }}
{{- $apart := include "fleetgauge.nodeLocal" . | fromJsonArray | empty | ternary list (list "daemonSet.collectors") }}
{{- range $run := include "fleetgauge.runs" . | fromJsonArray }}
{{- if gt (include "fleetgauge.shards" (dict "root" $ "own" $run.own) | int) 1 }}
{{- $key := $run.own.shards | empty | ternary "shards" (printf "collectors.%s.shards" (first $run.names)) }}
{{- $apart = append $apart $key }}
{{- range $name := $run.names }}
{{- if has $name $perNode }}
{{- $wrong = append $wrong (printf "%s: %s measures the node it runs on, which no other pod can do for it; run it on every node by daemonSet, or give it a schedule of its own with shards: 1" $key $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $claim := .Values.checkpoints.persistentVolumeClaim }}
{{- if and $apart (include "fleetgauge.claimName" .) }}
{{- $modes := $claim.accessModes }}
{{- if $claim.existingClaim }}
{{- $modes = dig "spec" "accessModes" (list "ReadWriteMany") (lookup "v1" "PersistentVolumeClaim" .Release.Namespace $claim.existingClaim) }}
{{- end }}
{{- if not (has "ReadWriteMany" $modes) }}
{{- $wrong = append $wrong (printf "%s: pods on several nodes share the checkpoints, and the claim %s is for one node at a time; use checkpoints.s3, or a claim with ReadWriteMany" (uniq $apart | join ", ") (include "fleetgauge.claimName" .)) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}
