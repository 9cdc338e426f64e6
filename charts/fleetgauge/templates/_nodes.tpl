{{/* Nodes: which collectors run on every one, with how much memory, and what cannot be read there. */}}

{{/* The collectors of the DaemonSet as a JSON list: those that were named, or else those that measure a node. */}}
{{- define "fleetgauge.onNodes" -}}
{{- $chosen := .Values.daemonSet.collectors | default (include "fleetgauge.perNode" . | fromJsonArray) }}
{{- .Values.daemonSet.enabled | ternary $chosen list | toJson }}
{{- end }}

{{/* Those of them that read records, which are then on a node's own disks. */}}
{{- define "fleetgauge.nodeLocal" -}}
{{- $known := .Files.Get "files/settings.yaml" | fromYaml }}
{{- $names := list }}
{{- range include "fleetgauge.onNodes" . | fromJsonArray }}
{{- if (get $known .).records }}
{{- $names = append $names . }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* What a pod of a node asks for and may use: every collector stays in a process of its own. */}}
{{- define "fleetgauge.nodeResources" -}}
{{- $records := include "fleetgauge.nodeLocal" . | fromJsonArray | len }}
{{- $resources := deepCopy .Values.daemonSet.resources }}
{{- $requests := merge (dict) ($resources.requests | default dict) (dict "memory" (printf "%dMi" (add 64 (mul 64 $records)))) }}
{{- $limits := merge (dict) ($resources.limits | default dict) (dict "memory" (printf "%dMi" (add 128 (mul 128 $records)))) }}
{{- dict "requests" $requests "limits" $limits | toYaml }}
{{- end }}

{{/* What is wrong with the collectors of nodes, and with what only a node has, as a JSON list. */}}
{{- define "fleetgauge.wrongNodes" -}}
{{- $wrong := list }}
{{- $values := .Values }}
{{- $onNodes := include "fleetgauge.onNodes" . | fromJsonArray }}
{{- $nodeLocal := include "fleetgauge.nodeLocal" . | fromJsonArray }}
{{- $once := include "fleetgauge.enabled" (dict "root" . "with" "all") | fromJsonArray }}
{{- range $onNodes }}
{{- if has . $once }}
{{- $wrong = append $wrong (printf "collectors.%s.enabled: the DaemonSet runs it on every node already; enable one of the two" .) }}
{{- end }}
{{- end }}
{{- range $name := concat $once ($values.backfill.enabled | ternary $values.backfill.collectors list) | uniq }}
{{- if dig "volume" "hostPath" "" (get $values.collectors $name | default dict) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: a hostPath is another on every node; name %s in daemonSet.collectors, so that each node reads its own, or take a volume that all of them share" $name $name) }}
{{- end }}
{{- end }}
{{- range $nodeLocal }}
{{- $one := get $values.collectors . | default dict }}
{{- $paths := dig "settings" "paths" list $one | default list | join "," }}
{{- if contains "s3://" $paths }}
{{- $wrong = append $wrong (printf "collectors.%s.settings.paths: every node would read all of S3; set collectors.%s.enabled, and take it out of daemonSet.collectors" . .) }}
{{- end }}
{{- if dig "volume" "persistentVolumeClaim" "" $one }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: a claim is the same on every node, and each would read all of it; say which hostPath, or set collectors.%s.enabled and take it out of daemonSet.collectors" . .) }}
{{- else if not (or $one.volume $values.daemonSet.hostRoot $values.extraVolumes) }}
{{- $wrong = append $wrong (printf "collectors.%s.volume: say where its files are on every node, such as hostPath: {path: /var/lib/records}" .) }}
{{- end }}
{{- end }}
{{- $mounted := list (and $values.daemonSet.enabled $values.daemonSet.hostRoot | ternary "daemonSet.hostRoot" "") }}
{{- range $nodeLocal }}
{{- if dig "volume" "hostPath" "" (get $values.collectors . | default dict) }}
{{- $mounted = append $mounted (printf "collectors.%s.volume.hostPath" .) }}
{{- end }}
{{- end }}
{{- with compact $mounted }}
{{- $labels := (lookup "v1" "Namespace" "" $.Release.Namespace).metadata | default dict }}
{{- $enforced := dig "labels" "pod-security.kubernetes.io/enforce" "privileged" $labels }}
{{- if ne $enforced "privileged" }}
{{- $wrong = append $wrong (printf "%s: the namespace %s enforces Pod Security `%s`, under which no pod mounts a part of its node; label it pod-security.kubernetes.io/enforce=privileged, take another namespace, or have a csi driver mount the records" (join ", " .) $.Release.Namespace $enforced) }}
{{- end }}
{{- end }}
{{- toJson $wrong }}
{{- end }}
