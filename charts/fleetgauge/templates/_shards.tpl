{{/* Shards: how many pods share one run of W&B. No other collector can be divided. */}}

{{/* How many pods a CronJob starts: list of the root and of the names of its collectors. */}}
{{- define "fleetgauge.shards" -}}
{{- has "wandb" (index . 1) | ternary (index . 0).Values.shards 1 }}
{{- end }}

{{/* What makes a Job Indexed: list of the root and of the number of shards. A failed index does not stop the others. */}}
{{- define "fleetgauge.jobShape" -}}
{{- $root := index . 0 }}
{{- $shards := index . 1 }}
{{- if le $shards 1 }}
backoffLimit: {{ $root.Values.backoffLimit }}
{{- else }}
completionMode: Indexed
completions: {{ $shards }}
parallelism: {{ $shards }}
{{- if semverCompare ">=1.29.0-0" $root.Capabilities.KubeVersion.Version }}
backoffLimitPerIndex: {{ $root.Values.backoffLimit }}
{{- else }}
backoffLimit: {{ $shards }}
{{- end }}
{{- end }}
{{- end }}

{{/* What to do instead of dividing a collector that cannot be. */}}
{{- define "fleetgauge.insteadOfShards" -}}
run host, and collectors of records on nodes' disks, on every node by daemonSet; for records in S3 or on a shared file system install several releases, each with paths of its own
{{- end }}

{{/* What is wrong with shards, and with a claim that several pods would share, as a JSON list. */}}
{{- define "fleetgauge.wrongShards" -}}
{{- $wrong := list }}
{{- $shards := int .Values.shards }}
{{- $runs := include "fleetgauge.runs" . | fromJsonArray }}
{{- $fix := "enable collectors.wandb, or write shards: 1" }}
{{- range $runs }}
{{- if has "wandb" .names }}
{{- $fix = without .names "wandb" | join ", " }}
{{- $fix = empty $fix | ternary "" (printf "set collectors.wandb.schedule, for a CronJob without %s" $fix) }}
{{- end }}
{{- end }}
{{- if and (gt $shards 1) $fix }}
{{- $wrong = append $wrong (printf "shards: only W&B can be divided between pods; %s. For other collectors: %s" $fix (include "fleetgauge.insteadOfShards" .)) }}
{{- end }}
{{- $onNodes := include "fleetgauge.nodeLocal" . | fromJsonArray }}
{{- if and .Values.state.existingClaim (or (gt $shards 1) $onNodes (ne (len $runs) 1)) }}
{{- $wrong = append $wrong "state.existingClaim: a claim is for one CronJob without shards, and for no DaemonSet that reads records; set state.s3 instead, or leave state empty" }}
{{- end }}
{{- toJson $wrong }}
{{- end }}
