{{/* What the schema cannot say, all of it at once and in words. */}}
{{- define "fleetgauge.validate" -}}
{{- $wrong := include "fleetgauge.removed" . | fromJsonArray }}
{{- $values := .Values }}
{{- $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- $enabled := include "fleetgauge.enabled" (dict "root" . "with" "all") | fromJsonArray }}
{{- $missing := list
  (ternary "" "image.repository (the image that you built)" (not (empty $values.image.repository)))
  (ternary "" "datadog.env (the tag `env` of every point)" (not (empty $values.datadog.env)))
  (ternary "" "and where the keys are: aws.secretPrefix with aws.region, or existingSecret" (not (and (empty $values.aws.secretPrefix) (empty $values.existingSecret))))
}}
{{- with compact $missing }}
{{- $wrong = append $wrong (printf "set %s" (join ", " . | trimPrefix "and ")) }}
{{- end }}
{{- if eq $values.image.tag "latest" }}
{{- $wrong = append $wrong "image.tag: `latest` names no version; write one, or leave it empty for the chart's own" }}
{{- end }}
{{- if and $values.aws.secretPrefix $values.existingSecret }}
{{- $wrong = append $wrong "credentials: set aws.secretPrefix (AWS Secrets Manager) or existingSecret (Kubernetes), one of them" }}
{{- end }}
{{- if and (or $values.aws.secretPrefix $values.state.s3) (not $values.aws.region) }}
{{- $wrong = append $wrong "aws.region: set the region of the secrets and of state in S3" }}
{{- end }}
{{- $urls := dict "datadog.url" $values.datadog.url "aws.endpointUrl" $values.aws.endpointUrl
  "collectors.wandb.settings.base_url" (dig "wandb" "settings" "base_url" "" $values.collectors) }}
{{- range $key, $url := $urls }}
{{- $host := regexFind "^http://[^/]+" ($url | default "") | trimPrefix "http://" }}
{{- $allowed := list $host (regexReplaceAll ":[0-9]+$" $host "") | has $values.datadog.allowPlainHttp }}
{{- if and $host (not $allowed) (not (regexMatch "^(localhost|127[.][0-9.]+|\\[::1\\])(:[0-9]+)?$" $host)) }}
{{- $wrong = append $wrong (printf "%s: write https; plain http to a host inside the cluster is allowed by datadog.allowPlainHttp: %s" $key $host) }}
{{- end }}
{{- end }}
{{- if not (or $enabled $values.daemonSet.enabled $values.backfill.enabled) }}
{{- $wrong = append $wrong "collectors: none is enabled, so nothing would run" }}
{{- end }}
{{- if and $values.daemonSet.hostRoot ($values.collectors.host.settings).root }}
{{- $wrong = append $wrong "daemonSet.hostRoot: it sets the collector's root already; leave collectors.host.settings.root empty" }}
{{- end }}
{{- if and $values.state.s3 $values.state.existingClaim }}
{{- $wrong = append $wrong "state: set s3 or existingClaim, one of them" }}
{{- end }}
{{- if and $values.aws.podIdentity $values.serviceAccount.roleArn }}
{{- $wrong = append $wrong "aws.podIdentity: serviceAccount.roleArn is another way to the same (IRSA); set one of them" }}
{{- end }}
{{- if and (not $values.serviceAccount.create) (or $values.serviceAccount.roleArn $values.serviceAccount.annotations) }}
{{- $wrong = append $wrong "serviceAccount: with create: false, roleArn and annotations do nothing; annotate the account that exists" }}
{{- end }}
{{- if and $values.networkPolicy.enabled $values.proxy.existingSecret (not $values.networkPolicy.extraEgress) }}
{{- $wrong = append $wrong "networkPolicy: the proxy's port is in a secret; allow it in extraEgress, as `- ports: [{protocol: TCP, port: 3128}]`" }}
{{- end }}
{{- if and $values.proxy.url $values.proxy.existingSecret }}
{{- $wrong = append $wrong "proxy: set url or existingSecret, one of them" }}
{{- end }}
{{- if contains "@" $values.proxy.url }}
{{- $wrong = append $wrong "proxy.url: a password belongs in a secret; name it in proxy.existingSecret" }}
{{- end }}
{{- range $name := concat $enabled ($values.backfill.enabled | ternary $values.backfill.collectors list) | uniq }}
{{- $paths := join "," (dig "settings" "paths" list (get $values.collectors $name | default dict) | default list) }}
{{- if and (contains "s3://" $paths) (not $values.aws.region) }}
{{- $wrong = append $wrong (printf "aws.region: set the region of the records in S3 that collectors.%s reads" $name) }}
{{- end }}
{{- $onDisk := or (empty $paths) (regexReplaceAll "s3://[^,]*" $paths "" | replace "," "" | trim) }}
{{- if and (get $known $name).records $onDisk (not (or (get $values.collectors $name).volume $values.extraVolumes)) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: say which volume holds its files" $name) }}
{{- end }}
{{- end }}
{{- $wrong = concat $wrong (include "fleetgauge.wrongTimes" . | fromJsonArray) (include "fleetgauge.wrongNodes" . | fromJsonArray) (include "fleetgauge.wrongShards" . | fromJsonArray) }}
{{- range $values.extraVolumes }}
{{- if has .name (concat (list "tmp" "state" "host-root") (keys $known | join " " | replace "_" "-" | splitList " ")) }}
{{- $wrong = append $wrong (printf "extraVolumes: %s is the name of a volume of this chart; take another" .name) }}
{{- end }}
{{- end }}
{{- $taken := include "fleetgauge.taken" . | fromJsonArray }}
{{- range $values.extraEnv }}
{{- if or (has .name $taken) (hasPrefix "FLEETGAUGE_" .name) }}
{{- $wrong = append $wrong (printf "extraEnv: %s has a value of its own in this chart; set that one" .name) }}
{{- else if eq (hasKey . "value") (hasKey . "valueFrom") }}
{{- $wrong = append $wrong (printf "extraEnv: give %s a value or a valueFrom, one of them" .name) }}
{{- else if and (hasKey . "value") (regexMatch "(?i)(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)$" .name) }}
{{- $wrong = append $wrong (printf "extraEnv: %s looks like a secret; take it from one, by valueFrom.secretKeyRef" .name) }}
{{- end }}
{{- end }}
{{- if $values.backfill.enabled }}
{{- if not $values.backfill.since }}
{{- $wrong = append $wrong "backfill.since: say where the span begins, such as 7d" }}
{{- end }}
{{- if and (gt (int $values.backfill.slices) 1) (not (and (contains "-" $values.backfill.since) (contains "-" $values.backfill.until))) }}
{{- $wrong = append $wrong "backfill.slices: slices must agree on the span; write since and until as times, such as 2026-11-07T00:00Z" }}
{{- end }}
{{- end }}
{{- if $wrong }}
{{- fail (printf "\n\n- %s\n" (join "\n- " $wrong)) }}
{{- end }}
{{- end }}

{{/* The values of earlier versions that are still set, each with what replaces it, as a JSON list. */}}
{{- define "fleetgauge.removed" -}}
{{- $removed := list }}
{{- if not (kindIs "invalid" .Values.checkpoints) }}
{{- $removed = append $removed "checkpoints: it is called state now, and is optional; set state.s3 (or state.existingClaim), and remove checkpoints" }}
{{- end }}
{{- if not (kindIs "invalid" .Values.backfill.again) }}
{{- $removed = append $removed "backfill.again: it was removed, and nothing replaces it: a backfill that is repeated sends the same points; remove it" }}
{{- end }}
{{- range $name, $one := .Values.collectors }}
{{- if not (kindIs "invalid" $one.shards) }}
{{- $instead := eq $name "wandb" | ternary "set shards" (printf "only W&B can be divided between pods; %s" (include "fleetgauge.insteadOfShards" $)) }}
{{- $removed = append $removed (printf "collectors.%s.shards: it was removed; %s" $name $instead) }}
{{- end }}
{{- end }}
{{- toJson $removed }}
{{- end }}

{{/* The variables that other values set, as a JSON list. */}}
{{- define "fleetgauge.taken" -}}
{{- $taken := list "DD_ENV" "DD_SERVICE" "DD_SITE" "DD_VERSION" "AWS_REGION" "AWS_ENDPOINT_URL" "HTTPS_PROXY" "NO_PROXY"
  "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES" }}
{{- if .Values.existingSecret }}
{{- $taken = append $taken "DD_API_KEY" }}
{{- end }}
{{- if .Values.backfill.appKeySecret.name }}
{{- $taken = append $taken "DD_APP_KEY" }}
{{- end }}
{{- range $name, $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- if $.Values.existingSecret }}
{{- $taken = concat $taken (keys $known.secrets) }}
{{- end }}
{{- range $key, $value := (get $.Values.collectors $name | default dict).settings }}
{{- if $value }}
{{- $taken = append $taken (get $known.variables $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $taken }}
{{- end }}
