{{/*
The pod of every kind of run. Takes root, plan, component, args and names (of collectors), and optionally command, step,
state (FLEETGAUGE_STATE), restartPolicy, resources, placement, env (more variables), nodeLocal (each node reads its own
records), hostRoot (mount the node's /) and ready (the file of the readiness probe).
*/}}
{{- define "fleetgauge.podTemplate" -}}
{{- include "fleetgauge.validate" .root }}
{{- $values := .root.Values }}
{{- $resources := .resources | default $values.resources }}
{{- $env := include "fleetgauge.env" . | fromJsonArray }}
{{- $volumes := include "fleetgauge.volumes" . | fromJson }}
{{- include "fleetgauge.checkNames" (list "extraEnv" $env) }}
{{- include "fleetgauge.checkNames" (list "extraVolumes" $volumes.volumes) }}
{{- $key := eq .component "host" | ternary "daemonSet.resources" (empty .resources | ternary "resources" "backfill.resources") }}
{{- include "fleetgauge.checkResources" (list $key $resources) -}}
metadata:
  labels:
    {{- include "fleetgauge.podLabels" . | nindent 4 }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: {{ .restartPolicy | default "Never" }}
  serviceAccountName: {{ include "fleetgauge.serviceAccountName" .root | quote }}
  # Nothing here talks to Kubernetes. The token that AWS trusts is another one, which EKS mounts by itself.
  automountServiceAccountToken: false
  # A Service called fleetgauge would become FLEETGAUGE_* variables, which are unknown and so refused.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with include "fleetgauge.pullSecrets" .root | fromJsonArray }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $placement := .placement | default (pick $values "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName") }}
  {{- range $key, $value := merge (dict) $placement (pick $values "dnsPolicy" "dnsConfig" "initContainers") }}
  {{- with $value }}
  {{- dict $key . | toYaml | nindent 2 }}
  {{- end }}
  {{- end }}
  containers:
    - name: fleetgauge
      image: {{ include "fleetgauge.image" .root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- with .command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml .args | nindent 8 }}
      env:
        {{- toYaml $env | nindent 8 }}
      {{- with $values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $resources | nindent 8 }}
      {{- with .ready }}
      readinessProbe:
        exec:
          command: [test, -e, {{ . }}]
      {{- end }}
      volumeMounts:
        {{- toYaml $volumes.mounts | nindent 8 }}
  volumes:
    {{- toYaml $volumes.volumes | nindent 4 }}
{{- end }}

{{/* The variables of a pod as a JSON list: of every run, of its collectors, of its kind, and the operator's own. */}}
{{- define "fleetgauge.env" -}}
{{- $values := .root.Values }}
{{- $secret := $values.existingSecret }}
{{- $pairs := list
  (list "DD_ENV" $values.datadog.env)
  (list "DD_SERVICE" $values.datadog.service)
  (list "DD_VERSION" (include "fleetgauge.version" .root))
  (list "DD_SITE" $values.datadog.site)
  (list "FLEETGAUGE_DD_URL" $values.datadog.url)
  (list "FLEETGAUGE_ALLOW_PLAIN_HTTP" $values.datadog.allowPlainHttp)
  (list "FLEETGAUGE_SECRET_PREFIX" $values.aws.secretPrefix)
  (list "AWS_REGION" $values.aws.region)
  (list "AWS_ENDPOINT_URL" $values.aws.endpointUrl)
  (list "FLEETGAUGE_STATE" .state)
  (list "FLEETGAUGE_INSTANCE" (printf "%s/%s" .root.Release.Namespace (include "fleetgauge.fullname" .root)))
  (list "FLEETGAUGE_STEP" .step)
  (list "FLEETGAUGE_NODE_LOCAL" .nodeLocal)
  (list "FLEETGAUGE_SERIES_CAP" $values.seriesCap)
  (list "NO_PROXY" $values.proxy.noProxy)
  (list "HTTPS_PROXY" ($values.proxy.url | default (include "fleetgauge.secretKey" (list $values.proxy.existingSecret "HTTPS_PROXY") | fromYaml)))
  (list "DD_API_KEY" (include "fleetgauge.secretKey" (list $secret "DD_API_KEY") | fromYaml))
}}
{{- $ofNode := .nodeLocal }}
{{- range $name := .names }}
{{- $known := get $.plan.known $name }}
{{- $ofNode = or $ofNode $known.per_node }}
{{- range $key, $value := (get $.plan.collectors $name).settings }}
{{- $pairs = append $pairs (list (get $known.variables $key) $value) }}
{{- end }}
{{- range $variable, $required := $known.secrets }}
{{- $pairs = append $pairs (list $variable (include "fleetgauge.secretKey" (list $secret $variable (not $required)) | fromYaml)) }}
{{- end }}
{{- end }}
{{- if $ofNode }}
{{- $pairs = append $pairs (list "FLEETGAUGE_NODE_NAME" (fromYaml "valueFrom: {fieldRef: {fieldPath: spec.nodeName}}")) }}
{{- end }}
{{- $env := list }}
{{- range concat $pairs (.env | default list) }}
{{- $value := last . }}
{{- $text := include "fleetgauge.text" $value }}
{{- if and (kindIs "map" $value) (hasKey $value "valueFrom") }}
{{- $env = append $env (merge (dict "name" (first .)) $value) }}
{{- else if $text }}
{{- $env = append $env (dict "name" (first .) "value" $text) }}
{{- end }}
{{- end }}
{{- concat $env ($values.extraEnv | default list) | toJson }}
{{- end }}

{{/* A value as a variable holds it: lists by commas, maps as key=value, large numbers without an exponent. */}}
{{- define "fleetgauge.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if kindIs "map" . }}
{{- $parts := list }}
{{- range $key, $value := . }}
{{- $parts = append $parts (printf "%s=%v" $key $value) }}
{{- end }}
{{- join "," $parts }}
{{- else if kindIs "float64" . }}{{ eq . (floor .) | ternary (int64 . | toString) (toString .) }}
{{- else if not (kindIs "invalid" .) }}{{ toString . }}
{{- end }}
{{- end }}

{{/* The source of a variable: list of the name of a secret, which may be empty, a key, and whether it may be missing. */}}
{{- define "fleetgauge.secretKey" -}}
{{- if first . }}
{{- $reference := dict "name" (first .) "key" (index . 1) }}
{{- if and (eq (len .) 3) (last .) }}
{{- $_ := set $reference "optional" true }}
{{- end }}
{{- dict "valueFrom" (dict "secretKeyRef" $reference) | toYaml }}
{{- end }}
{{- end }}

{{/* The volumes of a pod and their mounts, as JSON. Records are attached read-only, so that fsGroup never changes them. */}}
{{- define "fleetgauge.volumes" -}}
{{- $values := .root.Values }}
{{- $volumes := list (dict "name" "tmp" "emptyDir" (dict "sizeLimit" $values.temporarySize)) }}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") }}
{{- if eq "/state" (.state | default "") }}
{{- $volumes = append $volumes (dict "name" "state" "persistentVolumeClaim" (dict "claimName" $values.state.existingClaim)) }}
{{- $mounts = append $mounts (dict "name" "state" "mountPath" "/state") }}
{{- end }}
{{- range $name := .names }}
{{- range $kind, $source := (get $.plan.collectors $name).volume }}
{{- $attached := eq $kind "hostPath" | ternary $source (merge (dict "readOnly" true) $source) }}
{{- $volumes = append $volumes (dict "name" ($name | replace "_" "-") $kind $attached) }}
{{- $mounts = append $mounts (dict "name" ($name | replace "_" "-") "mountPath" (printf "/records/%s" $name) "readOnly" true) }}
{{- end }}
{{- end }}
{{- if .hostRoot }}
{{- $volumes = append $volumes (dict "name" "host-root" "hostPath" (dict "path" "/")) }}
{{- $mounts = append $mounts (dict "name" "host-root" "mountPath" "/host" "mountPropagation" "HostToContainer" "readOnly" true) }}
{{- end }}
{{- dict "volumes" (concat $volumes ($values.extraVolumes | default list)) "mounts" (concat $mounts ($values.extraVolumeMounts | default list)) | toJson }}
{{- end }}

{{/* Refuse two entries of one name: list of the value that adds entries, and of all entries. */}}
{{- define "fleetgauge.checkNames" -}}
{{- $seen := list }}
{{- range last . }}
{{- if has .name $seen }}
{{- fail (printf "\n\n- %s: %s is set by another value of this chart already\n" (first $) .name) }}
{{- end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- end }}

{{/* Refuse a limit below its request, which Kubernetes would: list of the name of the value, and of its content. */}}
{{- define "fleetgauge.checkResources" -}}
{{- $limits := (last .).limits | default dict }}
{{- range $key, $request := (last .).requests }}
{{- $limit := get $limits $key }}
{{- if and $limit (lt (include "fleetgauge.quantity" $limit | float64) (include "fleetgauge.quantity" $request | float64)) }}
{{- fail (printf "\n\n- %s: the limit of %s (%v) is below its request (%v)\n" (first $) $key $limit $request) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A quantity of Kubernetes, such as 128Mi or 100m, as a number. */}}
{{- define "fleetgauge.quantity" -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) }}
{{- $factors := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (toString . | trimSuffix $unit | float64) (get $factors $unit | default 1) }}
{{- end }}

{{/* How a Job reacts to a failed pod: a drained node is no failure; after exit code 2, configuration, do as `.` says. */}}
{{- define "fleetgauge.failurePolicy" -}}
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    {{- with . }}
    - action: {{ . }}
      onExitCodes: {containerName: fleetgauge, operator: In, values: [2]}
      onPodConditions: []  # required by the schemas of old versions
    {{- end }}
{{- end }}
