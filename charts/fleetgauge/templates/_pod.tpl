{{/*
The pod of every kind of run. Takes: root, component, names (collectors), args, step, restartPolicy, state (where it
is kept: in S3, in the claim at /state, or nowhere), resources, placement (nodeSelector, tolerations, affinity,
topologySpreadConstraints, priorityClassName, runtimeClassName), variables (more of them, as YAML), nodeLocal (whether
records are of this node alone), hostRoot (whether the node's / is mounted) and ready (the file that says that the pod
is).
*/}}
{{- define "fleetgauge.podTemplate" -}}
metadata:
  labels:
    {{- include "fleetgauge.podLabels" . | nindent 4 }}
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "fleetgauge.podSpec" . | nindent 2 }}
{{- end }}

{{- define "fleetgauge.podSpec" -}}
restartPolicy: {{ .restartPolicy }}
serviceAccountName: {{ include "fleetgauge.serviceAccountName" .root | quote }}
# Nothing here talks to Kubernetes. The token that AWS trusts is another one, which EKS mounts by itself.
automountServiceAccountToken: false
# A Service called fleetgauge would become FLEETGAUGE_* variables, which are unknown and so refused.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with include "fleetgauge.pullSecrets" .root | fromJsonArray }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- $placement := merge (dict) .placement (pick .root.Values "dnsPolicy" "dnsConfig") }}
{{- range $key := keys $placement | sortAlpha }}
{{- with get $placement $key }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- with .root.Values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: fleetgauge
    image: {{ include "fleetgauge.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    env:
      {{- include "fleetgauge.variables" . | trim | nindent 6 }}
    {{- with .root.Values.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml .root.Values.securityContext | nindent 6 }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    {{- with .ready }}
    readinessProbe:
      exec:
        command: [test, -e, {{ . }}]
    {{- end }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- with include "fleetgauge.mounts" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: {{ .root.Values.temporarySize }}
  {{- with include "fleetgauge.volumes" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every run is told, then what its collectors are told, then what the operator adds. */}}
{{- define "fleetgauge.variables" -}}
{{- $values := .root.Values }}
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
  (list "HTTPS_PROXY" $values.proxy.url)
  (list "NO_PROXY" $values.proxy.noProxy)
}}
{{- range $pairs }}
{{- include "fleetgauge.variable" . }}
{{- end }}
{{- with $values.proxy.existingSecret }}
- name: HTTPS_PROXY
  valueFrom:
    secretKeyRef:
      name: {{ . | quote }}
      key: HTTPS_PROXY
{{- end }}
{{- $perNode := .nodeLocal }}
{{- range include "fleetgauge.perNode" .root | fromJsonArray }}
{{- $perNode = or $perNode (has . $.names) }}
{{- end }}
{{- if $perNode }}
- name: FLEETGAUGE_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end }}
{{- include "fleetgauge.secretVariables" (dict "root" .root "variables" (dict "DD_API_KEY" true)) }}
{{- include "fleetgauge.collectorVariables" . }}
{{- with .variables }}
{{ . }}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the runs of a CronJob keep their state; nothing where they keep none. */}}
{{- define "fleetgauge.state" -}}
{{- empty .Values.state.existingClaim | ternary .Values.state.s3 "/state" }}
{{- end }}

{{- define "fleetgauge.mounts" -}}
{{- if eq "/state" (.state | default "") }}
- name: state
  mountPath: /state
{{- end }}
{{- range .names }}
{{- if (get $.root.Values.collectors .).volume }}
- name: {{ . | replace "_" "-" }}
  mountPath: /records/{{ . }}
  readOnly: true
{{- end }}
{{- end }}
{{- if .hostRoot }}
- name: host-root
  mountPath: /host
  mountPropagation: HostToContainer
  readOnly: true
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Records are read-only already where they are attached, so that Kubernetes does not hand them to our group. */}}
{{- define "fleetgauge.volumes" -}}
{{- if eq "/state" (.state | default "") }}
- name: state
  persistentVolumeClaim:
    claimName: {{ .root.Values.state.existingClaim | quote }}
{{- end }}
{{- range $name := .names }}
{{- range $kind, $source := (get $.root.Values.collectors $name).volume }}
{{- $whole := eq $kind "hostPath" | ternary $source (merge (dict "readOnly" true) $source) }}
{{ list (dict "name" ($name | replace "_" "-") $kind $whole) | toYaml }}
{{- end }}
{{- end }}
{{- if .hostRoot }}
- name: host-root
  hostPath:
    path: /
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
