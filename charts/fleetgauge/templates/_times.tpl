{{/* Times: how often a schedule fires, the grid that follows from it, and what does not fit either. */}}

{{/* A duration such as 1h30m in seconds. Numbers are read by float64: int64 would take 010 for octal, and 08 for 0. */}}
{{- define "fleetgauge.seconds" -}}
{{- $units := dict "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[smhdw]?" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | float64) (get $units (regexFind "[smhdw]" .) | default 1)) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* The numbers that a field of cron stands for, in order, as a JSON list: list of the field and the largest number. */}}
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

{{/* The grid of a run's points: what was said of it, of all runs, or what follows from its schedule. */}}
{{- define "fleetgauge.step" -}}
{{- $schedule := .own.schedule | default .root.Values.schedule }}
{{- $minutes := div (include "fleetgauge.interval" $schedule | int64) 60 }}
{{- $every := regexFind "^\\*/[0-9]+" $schedule | trimPrefix "*/" | default (toString $minutes) | float64 | int64 | min 60 }}
{{- $regular := and (regexMatch "^(@hourly|([0-9]+|\\*(/[0-9]+)?) \\* \\* \\* \\*)$" $schedule) (eq $every $minutes) }}
{{- $derived := eq $minutes 60 | ternary "1h" (printf "%dm" $minutes) }}
{{- .own.step | default .root.Values.step | default ($regular | ternary $derived "15m") }}
{{- end }}

{{/* What is wrong with steps and deadlines, as a JSON list. */}}
{{- define "fleetgauge.wrongTimes" -}}
{{- $wrong := list }}
{{- $steps := dict "step" .Values.step }}
{{- range $name, $one := .Values.collectors }}
{{- range $key := list "step" "timeout" "activeDeadlineSeconds" }}
{{- if and (get $one $key) (not $one.schedule) }}
{{- $wrong = append $wrong (printf "collectors.%s.%s: it is for a schedule of its own; set collectors.%s.schedule, or %s for all" $name $key $name $key) }}
{{- end }}
{{- end }}
{{- $_ := set $steps (printf "collectors.%s.step" $name) $one.step }}
{{- end }}
{{- range $key, $step := $steps }}
{{- $seconds := include "fleetgauge.seconds" ($step | default "") | int64 }}
{{- if and $step (or (lt $seconds 1) (gt $seconds 3600)) }}
{{- $wrong = append $wrong (printf "%s: a live run's is at least a second and at most 1h; a rarer schedule keeps 1h" $key) }}
{{- end }}
{{- end }}
{{- range include "fleetgauge.runs" . | fromJsonArray }}
{{- $wrong = concat $wrong (include "fleetgauge.wrongRun" (dict "root" $ "run" .) | fromJsonArray) }}
{{- end }}
{{- $every := include "fleetgauge.seconds" .Values.daemonSet.every | int64 }}
{{- if lt $every 1 }}
{{- $wrong = append $wrong "daemonSet.every: it is at least a second" }}
{{- end }}
{{- $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- range include "fleetgauge.nodeLocal" . | fromJsonArray }}
{{- with (get $known .).max_step }}
{{- if gt $every (int64 .) }}
{{- $wrong = append $wrong (printf "daemonSet.every: records are read at least every %d minutes; write less" (div . 60)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{/* What is wrong with the times of one CronJob, as a JSON list. */}}
{{- define "fleetgauge.wrongRun" -}}
{{- $wrong := list }}
{{- $known := .root.Files.Get "files/settings.yaml" | fromYaml }}
{{- $own := .run.own }}
{{- $values := .root.Values }}
{{- $prefix := $own.schedule | empty | ternary "" (printf "collectors.%s." (first .run.names)) }}
{{- $schedule := $own.schedule | default $values.schedule }}
{{- $interval := include "fleetgauge.interval" $schedule | int64 }}
{{- $step := $own.step | default $values.step }}
{{- if and $interval $step (gt (include "fleetgauge.seconds" $step | int64) $interval) }}
{{- $wrong = append $wrong (printf "%sstep: %s is more than the %d s between two runs of `%s`, so that several would answer for the same instant; write less, or leave it empty" $prefix $step $interval $schedule) }}
{{- end }}
{{- range $name := .run.names }}
{{- with (get $known $name).max_step }}
{{- if or (eq $interval 0) (gt $interval (int64 .)) }}
{{- $wrong = append $wrong (printf "%sschedule: %s reads records, and Datadog takes none that are older than an hour; run it at least every %d minutes, such as */15 * * * *" $prefix $name (div . 60)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $timeout := $own.timeout | default $values.timeout | int64 }}
{{- $deadline := $own.activeDeadlineSeconds | default $values.activeDeadlineSeconds | int64 }}
{{- if and $interval (ge $deadline $interval) }}
{{- $wrong = append $wrong (printf "%sactiveDeadlineSeconds: %d s are not less than the %d s between two runs of `%s`, so that one could be in the way of the next; write less, such as %d" $prefix $deadline $interval $schedule (div (mul $interval 2) 3)) }}
{{- end }}
{{- $longest := mul (div (add (len .run.names) 1) 2) (add $timeout 20) }}
{{- if ge $longest $deadline }}
{{- $wrong = append $wrong (printf "%sactiveDeadlineSeconds: %s may take %d s, two at once with a timeout of %d s each, and %d s are allowed; allow more, or shorten the timeout" $prefix (join ", " .run.names) $longest $timeout $deadline) }}
{{- end }}
{{- toJson $wrong }}
{{- end }}
