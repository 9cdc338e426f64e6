{{/*
What a release runs, as JSON. `known` is files/settings.yaml, `collectors` holds the values of each collector, `enabled`
those of the CronJobs, `onNodes` those of the DaemonSet, `nodeLocal` those of them that read records, and `runs` the
CronJobs: suffix of the name, names of the collectors, schedule, interval, step, timeout, deadline, shards.
*/}}
{{- define "fleetgauge.plan" -}}
{{- $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- $collectors := dict }}
{{- $shared := list }}
{{- $separate := list }}
{{- $perNode := list }}
{{- range $name := keys $known | sortAlpha }}
{{- $one := get $.Values.collectors $name | default dict }}
{{- $_ := set $collectors $name $one }}
{{- if and $one.enabled $one.schedule }}
{{- $separate = append $separate $name }}
{{- else if $one.enabled }}
{{- $shared = append $shared $name }}
{{- end }}
{{- if (get $known $name).per_node }}
{{- $perNode = append $perNode $name }}
{{- end }}
{{- end }}
{{- $onNodes := .Values.daemonSet.enabled | ternary (.Values.daemonSet.collectors | default $perNode) list }}
{{- $nodeLocal := list }}
{{- range $onNodes }}
{{- if (get $known .).records }}
{{- $nodeLocal = append $nodeLocal . }}
{{- end }}
{{- end }}
{{- $runs := list }}
{{- if $shared }}
{{- $runs = append $runs (include "fleetgauge.run" (list . "" $shared dict) | fromJson) }}
{{- end }}
{{- range $separate }}
{{- $suffix := printf "-%s" (replace "_" "-" .) }}
{{- $runs = append $runs (include "fleetgauge.run" (list $ $suffix (list .) (get $collectors .)) | fromJson) }}
{{- end }}
{{- dict "known" $known "collectors" $collectors "perNode" $perNode "enabled" (concat $shared $separate | default list)
  "onNodes" $onNodes "nodeLocal" $nodeLocal "runs" $runs | toJson }}
{{- end }}

{{/* One CronJob as JSON: list of the root, the suffix of its name, the names of its collectors, and its own values. */}}
{{- define "fleetgauge.run" -}}
{{- $values := (index . 0).Values }}
{{- $names := index . 2 }}
{{- $own := index . 3 }}
{{- $schedule := $own.schedule | default $values.schedule }}
{{- $interval := include "fleetgauge.interval" $schedule | int }}
{{- $deadline := max (div (mul 2 $interval) 3) (sub $interval 100) | min 3600 }}
{{- dict "suffix" (index . 1) "names" $names "schedule" $schedule "interval" $interval
  "step" (include "fleetgauge.step" $schedule) "timeout" ($own.timeout | default $values.timeout)
  "deadline" (eq $interval 0 | ternary 3600 $deadline)
  "shards" (has "wandb" $names | ternary $values.shards 1) | toJson }}
{{- end }}

{{/* A duration such as 1h30m in seconds. Numbers are read by float64: int64 would take 010 for octal. */}}
{{- define "fleetgauge.seconds" -}}
{{- $units := dict "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[smhdw]?" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | float64) (get $units (regexFind "[smhdw]" .) | default 1)) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* The numbers of one field of a cron schedule, in order, as a JSON list: list of the field and the largest number. */}}
{{- define "fleetgauge.numbers" -}}
{{- $largest := index . 1 | int }}
{{- $found := list }}
{{- range index . 0 | splitList "," }}
{{- $step := regexFind "/.*" . | trimPrefix "/" }}
{{- $ends := regexReplaceAll "/.*" . "" | replace "?" "*" | replace "*" (printf "0-%d" $largest) | splitList "-" }}
{{- $end := and (ne $step "") (eq (len $ends) 1) | ternary $largest (last $ends | float64 | int) }}
{{- $found = concat $found (untilStep (first $ends | float64 | int) (add1 $end | int) ($step | default "1" | float64 | int)) }}
{{- end }}
{{- $sorted := list }}
{{- range untilStep 0 (add1 $largest | int) 1 }}
{{- if has . $found }}
{{- $sorted = append $sorted . }}
{{- end }}
{{- end }}
{{- toJson $sorted }}
{{- end }}

{{/* The fewest seconds between two runs of a schedule; 0 where it has at most one a day, and not every day. */}}
{{- define "fleetgauge.interval" -}}
{{- $fields := regexReplaceAll "^@.*" (replace "@hourly" "0 * * * *" .) "0 0 1 * *" | splitList " " }}
{{- $minutes := include "fleetgauge.numbers" (list (first $fields) 59) | fromJsonArray }}
{{- $hours := include "fleetgauge.numbers" (list (index $fields 1) 23) | fromJsonArray }}
{{- $gaps := list }}
{{- range $at, $minute := rest $minutes }}
{{- $gaps = append $gaps (sub $minute (index $minutes $at)) }}
{{- end }}
{{- $tomorrow := slice $fields 2 | join " " | eq "* * *" | ternary (list (add 24 (first $hours))) list }}
{{- range $at, $hour := concat (rest $hours) $tomorrow }}
{{- $gaps = append $gaps (sub (mul 60 (sub $hour (index $hours $at))) (sub (last $minutes) (first $minutes))) }}
{{- end }}
{{- $fewest := first $gaps | default 0 }}
{{- range $gaps }}
{{- $fewest = min $fewest . }}
{{- end }}
{{- mul $fewest 60 }}
{{- end }}

{{/* The step of a schedule: its interval where that divides the hour, for every N minutes or a fixed minute; else 15m. */}}
{{- define "fleetgauge.step" -}}
{{- $minutes := div (include "fleetgauge.interval" . | int64) 60 }}
{{- $every := regexFind "^\\*/[0-9]+" . | trimPrefix "*/" | default (toString $minutes) | float64 | int64 | min 60 }}
{{- $regular := and (regexMatch "^(@hourly|([0-9]+|\\*(/[0-9]+)?) \\* \\* \\* \\*)$" .) (eq $every $minutes) }}
{{- $regular | ternary (eq $minutes 60 | ternary "1h" (printf "%dm" $minutes)) "15m" }}
{{- end }}
