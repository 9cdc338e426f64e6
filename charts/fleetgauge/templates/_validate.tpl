{{/* Refuse what the schema cannot: all of it at once, each with the value to change. */}}
{{- define "fleetgauge.validate" -}}
{{- $plan := include "fleetgauge.plan" . | fromJson }}
{{- $values := .Values }}
{{- $backfill := $values.backfill.enabled | ternary $values.backfill.collectors list }}
{{- $anywhere := concat $plan.enabled $backfill | uniq }}
{{- $wrong := include "fleetgauge.removed" . | fromJsonArray }}
{{- $missing := list
  (empty $values.image.repository | ternary "image.repository (the image that you built)" "")
  (empty $values.datadog.env | ternary "datadog.env (the tag `env` of every point)" "")
  (or $values.aws.secretPrefix $values.existingSecret | empty | ternary "aws.secretPrefix with aws.region, or existingSecret (where the keys are)" "") }}
{{- with compact $missing }}
{{- $wrong = append $wrong (printf "set %s" (join "; " .)) }}
{{- end }}
{{- $inS3 := false }}
{{- range $anywhere }}
{{- $paths := dig "settings" "paths" list (get $plan.collectors .) | default list | join "," }}
{{- $inS3 = or $inS3 (contains "s3://" $paths) }}
{{- $onDisk := or (empty $paths) (regexReplaceAll "s3://[^,]*" $paths "" | replace "," "" | trim) }}
{{- if and (get $plan.known .).records $onDisk (not (or (get $plan.collectors .).volume $values.extraVolumes)) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: name the volume that holds its files" .) }}
{{- end }}
{{- if dig "volume" "hostPath" "" (get $plan.collectors .) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: a hostPath differs from node to node; add %s to daemonSet.collectors instead, or use a shared volume" . .) }}
{{- end }}
{{- end }}
{{- $withWandb := list }}
{{- range $plan.runs }}
{{- $run := . }}
{{- $withWandb = has "wandb" .names | ternary .names $withWandb }}
{{- $prefix := empty .suffix | ternary "" (printf "collectors.%s." (first .names)) }}
{{- range .names }}
{{- $limit := (get $plan.known .).max_step | default 0 | int }}
{{- if and $limit (or (eq (int $run.interval) 0) (gt (int $run.interval) $limit)) }}
{{- $wrong = append $wrong (printf "%sschedule: %s reads records, which Datadog refuses after an hour; run it at least every %d minutes" $prefix . (div $limit 60)) }}
{{- end }}
{{- end }}
{{- $longest := mul (div (add (len .names) 1) 2) (add .timeout 20) }}
{{- if ge $longest (int64 .deadline) }}
{{- $wrong = append $wrong (printf "%stimeout: %s may take %d s (two collectors at a time), and `%s` leaves %v s; shorten the timeout, or run less often" $prefix (join ", " .names) $longest .schedule .deadline) }}
{{- end }}
{{- end }}
{{- range $name, $one := $plan.collectors }}
{{- if and $one.timeout (not $one.schedule) }}
{{- $wrong = append $wrong (printf "collectors.%s.timeout: it needs a schedule of its own; set collectors.%s.schedule, or timeout for all" $name $name) }}
{{- end }}
{{- end }}
{{- range $key, $url := dict "datadog.url" $values.datadog.url "aws.endpointUrl" $values.aws.endpointUrl
  "collectors.wandb.settings.base_url" (dig "wandb" "settings" "base_url" "" $plan.collectors) }}
{{- $host := regexFind "^http://[^/]+" ($url | default "") | trimPrefix "http://" }}
{{- $allowed := list $host (regexReplaceAll ":[0-9]+$" $host "") (printf "%s:80" $host) | has $values.datadog.allowPlainHttp }}
{{- if and $host (not $allowed) (not (regexMatch "^(localhost|127[.][0-9.]+|\\[::1\\])(:[0-9]+)?$" $host)) }}
{{- $wrong = append $wrong (printf "%s: write https; plain http to a host inside the cluster is allowed by datadog.allowPlainHttp: %s" $key $host) }}
{{- end }}
{{- end }}
{{- range $values.extraEnv }}
{{- if and (hasKey . "value") (regexMatch "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$" .name) }}
{{- $wrong = append $wrong (printf "extraEnv: %s is a secret by its name; use valueFrom.secretKeyRef" .name) }}
{{- end }}
{{- end }}
{{- $sharded := gt (int $values.shards) 1 }}
{{- $times := and (contains "-" $values.backfill.since) (contains "-" $values.backfill.until) }}
{{- range list
  (list (eq $values.image.tag "latest") "image.tag: `latest` names no version; set one, or leave it empty for the chart's own")
  (list (and $values.aws.secretPrefix $values.existingSecret) "existingSecret: aws.secretPrefix is set too; remove one of them")
  (list (and (or $values.aws.secretPrefix $values.state.s3 $inS3) (not $values.aws.region)) "aws.region: set the region of the secrets, state and records in AWS")
  (list (not (or $plan.enabled $plan.onNodes $backfill $values.dashboards.enabled)) "collectors: none is enabled, so nothing would run")
  (list (and $values.state.s3 $values.state.existingClaim) "state: set s3 or existingClaim, not both")
  (list (and $values.aws.podIdentity $values.serviceAccount.roleArn) "aws.podIdentity: serviceAccount.roleArn (IRSA) is set too; remove one of them")
  (list (and (not $values.serviceAccount.create) (or $values.serviceAccount.roleArn $values.serviceAccount.annotations)) "serviceAccount: with create: false, annotate the existing account; roleArn and annotations have no effect")
  (list (and $values.proxy.url $values.proxy.existingSecret) "proxy: set url or existingSecret, not both")
  (list (and $backfill (not $values.backfill.since)) "backfill.since: set the start of the window, such as 7d")
  (list (and $backfill (gt (int $values.backfill.slices) 1) (not $times)) "backfill.slices: set since and until as times, such as 2026-11-07T00:00Z, so that all slices agree")
  (list (and $values.dashboards.enabled (not $values.dashboards.appKeySecret.name)) "dashboards.appKeySecret.name: set the secret with a Datadog application key")
  (list (and $sharded (not $withWandb)) "shards: only W&B has shards; enable collectors.wandb, or set shards: 1")
  (list (and $sharded (gt (len $withWandb) 1)) (printf "shards: only W&B has shards; set collectors.wandb.schedule, for a CronJob without %s" (without $withWandb "wandb" | join ", ")))
  (list (and $values.state.existingClaim (or $sharded $plan.nodeLocal (ne (len $plan.runs) 1))) "state.existingClaim: a claim is for one CronJob without shards or node records; set state.s3 instead")
}}
{{- if first . }}
{{- $wrong = append $wrong (last .) }}
{{- end }}
{{- end }}
{{- $wrong = concat $wrong (include "fleetgauge.wrongNodes" (dict "root" . "plan" $plan) | fromJsonArray) }}
{{- if $wrong }}
{{- fail (printf "\n\n- %s\n" (join "\n- " $wrong)) }}
{{- end }}
{{- end }}

{{/* What is wrong with the collectors of the DaemonSet, as a JSON list. */}}
{{- define "fleetgauge.wrongNodes" -}}
{{- $plan := .plan }}
{{- $values := .root.Values }}
{{- $wrong := list }}
{{- $mounts := and $values.daemonSet.enabled $values.daemonSet.hostRoot | ternary (list "daemonSet.hostRoot") list }}
{{- range $plan.onNodes }}
{{- if has . $plan.enabled }}
{{- $wrong = append $wrong (printf "collectors.%s.enabled: the DaemonSet runs it on every node already; disable one of the two" .) }}
{{- end }}
{{- end }}
{{- $every := include "fleetgauge.seconds" $values.daemonSet.every | int }}
{{- range $plan.nodeLocal }}
{{- $one := get $plan.collectors . }}
{{- $volume := $one.volume | default dict }}
{{- if contains "s3://" (dig "settings" "paths" list $one | default list | join ",") }}
{{- $wrong = append $wrong (printf "collectors.%s.settings.paths: every node would read all of S3; set collectors.%s.enabled instead of daemonSet.collectors" . .) }}
{{- end }}
{{- if or $volume.persistentVolumeClaim $volume.nfs }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: every node would read all of a shared volume; set a hostPath, or collectors.%s.enabled instead of daemonSet.collectors" . .) }}
{{- else if not (or $volume $values.daemonSet.hostRoot $values.extraVolumes) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: name the directory of each node, such as hostPath: {path: /var/lib/records}" .) }}
{{- end }}
{{- if $volume.hostPath }}
{{- $mounts = append $mounts (printf "collectors.%s.volume.hostPath" .) }}
{{- end }}
{{- $limit := (get $plan.known .).max_step | int }}
{{- if gt $every $limit }}
{{- $wrong = append $wrong (printf "daemonSet.every: %s reads records, which Datadog refuses after an hour; run it at least every %d minutes" . (div $limit 60)) }}
{{- end }}
{{- end }}
{{- with $mounts }}
{{- $labels := (lookup "v1" "Namespace" "" $.root.Release.Namespace).metadata | default dict }}
{{- $level := dig "labels" "pod-security.kubernetes.io/enforce" "privileged" $labels }}
{{- if ne $level "privileged" }}
{{- $wrong = append $wrong (printf "%s: the namespace %s enforces Pod Security `%s`, which allows no hostPath; label it pod-security.kubernetes.io/enforce=privileged, or use a csi volume" (join ", " .) $.root.Release.Namespace $level) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}

{{/* The removed values that are still set, each with its replacement in files/removed.yaml, as a JSON list. */}}
{{- define "fleetgauge.removed" -}}
{{- $removed := list }}
{{- $names := .Files.Get "files/settings.yaml" | fromYaml | keys | sortAlpha }}
{{- range $pattern, $replacement := .Files.Get "files/removed.yaml" | fromYaml }}
{{- range contains "*" $pattern | ternary $names (list "") }}
{{- $path := replace "*" . $pattern }}
{{- $value := $.Values }}
{{- $present := true }}
{{- range splitList "." $path }}
{{- $present = and $present (kindIs "map" $value) (hasKey $value .) }}
{{- if $present }}
{{- $value = get $value . }}
{{- end }}
{{- end }}
{{- if $present }}
{{- $removed = append $removed (printf "%s: removed; %s" $path $replacement) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $removed }}
{{- end }}
