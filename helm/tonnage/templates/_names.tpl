{{/* Names and labels that several objects share. */}}

{{- define "tonnage.name" -}}
{{ .Values.nameOverride | default .Chart.Name }}
{{- end }}

{{- define "tonnage.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains (include "tonnage.name" .) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "tonnage.name" .) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "tonnage.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "tonnage.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{/* Labels that never change in a release, because selectors are immutable. */}}
{{- define "tonnage.selector" -}}
app.kubernetes.io/name: {{ include "tonnage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "tonnage.labels" -}}
{{ include "tonnage.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tonnage.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Given a dict of root and mode: "yes" when objects for the Prometheus Operator or Grafana are wanted. */}}
{{- define "tonnage.monitored" -}}
{{- if or (eq .mode "always") (and (eq .mode "auto") (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
yes
{{- end -}}
{{- end }}

{{/* Placement modes of the pools in the settings, joined by commas. */}}
{{- define "tonnage.placers" -}}
{{- $placers := list }}
{{- range .Values.settings.pools | default (list (dict "placer" "gate")) }}
{{- $placers = append $placers .placer }}
{{- end }}
{{- $placers | uniq | join "," }}
{{- end }}

{{/* "yes" when background work runs on a Ray cluster outside of the controller's pod. */}}
{{- define "tonnage.onRayCluster" -}}
{{- if has .Values.ray.mode (list "static" "kuberay") -}}
yes
{{- end -}}
{{- end }}

{{- define "tonnage.rayName" -}}
{{ include "tonnage.fullname" . }}-ray
{{- end }}

{{- define "tonnage.raySecret" -}}
{{ .Values.ray.tokenSecret | default (include "tonnage.rayName" .) }}
{{- end }}

{{/* Service of the Ray head. KubeRay names it on its own: the cluster's name, truncated, and -head-svc. */}}
{{- define "tonnage.rayHead" -}}
{{ include "tonnage.rayName" . }}-driver
{{- end }}

{{- define "tonnage.raySelector" -}}
app.kubernetes.io/name: {{ include "tonnage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: ray
{{- end }}

{{- define "tonnage.rayHeadSelector" -}}
{{ include "tonnage.raySelector" . }}
tonnage.dev/ray-node: head
{{- end }}

{{- define "tonnage.rayLabels" -}}
{{ include "tonnage.raySelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Environment of every Ray container: the token, and the timeout for nodes that do not respond. */}}
{{- define "tonnage.rayEnv" -}}
- {name: RAY_AUTH_MODE, value: token}
- {name: RAY_AUTH_TOKEN_PATH, value: /etc/tonnage-ray/ray-token}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_enable_metrics_collection, value: "0"}
- {name: RAY_health_check_initial_delay_ms, value: "1000"}
- {name: RAY_health_check_period_ms, value: "1000"}
- {name: RAY_health_check_timeout_ms, value: "1000"}
- {name: RAY_health_check_failure_threshold, value: "3"}
- {name: HOME, value: /tmp}
- {name: RAY_NODE_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
{{- end }}

{{- define "tonnage.rayMounts" -}}
- {name: tokens, mountPath: /etc/tonnage-ray, readOnly: true}
- {name: scratch, mountPath: /tmp}
- {name: sessions, mountPath: /tmp/ray}
- {name: shm, mountPath: /dev/shm}
{{- end }}

{{- define "tonnage.rayVolumes" -}}
- name: tokens
  secret:
    secretName: {{ include "tonnage.raySecret" . }}
    defaultMode: 0440
- name: scratch
  emptyDir: {sizeLimit: 1Gi}
- name: sessions
  emptyDir: {sizeLimit: 1Gi}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: 256Mi}
{{- end }}

{{/* Ray runs any caller's code, so its pods get no access to Kubernetes. */}}
{{- define "tonnage.rayPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tonnage.raySecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Driver server, beside the Ray head: waits for the controller and runs its tasks on Ray. */}}
{{- define "tonnage.driverContainer" -}}
- name: driver
  image: {{ include "tonnage.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
    - background
    - serve
    - --listen=0.0.0.0:6390
    - --token-file=/etc/tonnage-ray/driver-token
    - --ray-address=$(RAY_NODE_IP):6379
    - --ray-token-file=/etc/tonnage-ray/ray-token
  env:
    {{- include "tonnage.rayEnv" . | nindent 4 }}
  ports:
    - {name: driver, containerPort: 6390}
  readinessProbe:
    tcpSocket: {port: driver}
    periodSeconds: 5
  livenessProbe:
    tcpSocket: {port: driver}
    periodSeconds: 10
    failureThreshold: 3
  resources:
    requests: {cpu: 250m, memory: 256Mi}
    limits: {memory: 1Gi}
  securityContext:
    {{- include "tonnage.raySecurity" . | nindent 4 }}
  volumeMounts:
    {{- include "tonnage.rayMounts" . | nindent 4 }}
{{- end }}

{{/* Egress to the API server, in a NetworkPolicy. */}}
{{- define "tonnage.toApiServer" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.apiServerCidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . }}}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Settings file of the operator: the values' settings, and those that the chart sets. */}}
{{- define "tonnage.settings" -}}
{{- $lease := dict "namespace" .Release.Namespace "name" (include "tonnage.fullname" .) }}
{{- $own := dict "lease" $lease "fenced" .Values.fence.enabled "managed_namespaces" .Values.managedNamespaces "routes" .Values.routes "metrics_port" (int .Values.ports.metrics) "probe_port" (int .Values.ports.health) }}
{{- $ray := dict "mode" "none" }}
{{- if eq .Values.ray.mode "embedded" }}
{{- $ray = dict "mode" "embedded" "cpus" (int .Values.ray.cpus) }}
{{- else if include "tonnage.onRayCluster" . }}
{{- $address := printf "%s.%s.svc:6390" (include "tonnage.rayHead" .) .Release.Namespace }}
{{- $ray = dict "mode" "cluster" "address" $address "token_file" "/etc/tonnage-driver/driver-token" }}
{{- end }}
{{- $power := dict }}
{{- if include "tonnage.leasesWatts" . }}
{{- $power = dict "power" (dict "enabled" true "port" (int .Values.agent.port) "agents" (printf "system:serviceaccount:%s:%s" .Release.Namespace (include "tonnage.agentName" .))) }}
{{- end }}
{{- if include "tonnage.heals" . }}
{{- $_ := set $power "health" (dict "enabled" true) }}
{{- end }}
{{- $isolation := dict }}
{{- if include "tonnage.isolates" . }}
{{- $isolation = dict "isolation" (dict "enabled" true) }}
{{- end }}
{{- toYaml (merge $own $power $isolation (dict "ray" $ray "autoscaler" (include "tonnage.autoscaler" . | fromYaml)) .Values.settings) }}
{{- end }}

{{/* "yes" while ScalingPolicies are evaluated, which is the default. */}}
{{- define "tonnage.autoscales" -}}
{{- if dig "autoscaler" "enabled" true (.Values.settings | default dict) -}}
yes
{{- end -}}
{{- end }}
