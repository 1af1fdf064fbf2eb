{{/* Power control: names that the operator and the agents on the nodes share. */}}

{{/* "yes" when the operator leases power: to agents of this release, or to others by its settings. */}}
{{- define "tonnage.leasesWatts" -}}
{{- if or .Values.agent.enabled ((.Values.settings.power | default dict).enabled) -}}
yes
{{- end -}}
{{- end }}

{{/* "yes" when the operator analyses health: agents of this release record it, or the settings say so. */}}
{{- define "tonnage.heals" -}}
{{- if or (and .Values.agent.enabled .Values.agent.health.enabled) ((.Values.settings.health | default dict).enabled) -}}
yes
{{- end -}}
{{- end }}

{{/* "yes" when agents of this release probe each other. */}}
{{- define "tonnage.probes" -}}
{{- if and .Values.agent.enabled .Values.agent.health.enabled .Values.agent.health.probes.enabled -}}
yes
{{- end -}}
{{- end }}

{{/* Page of the DCGM exporter that agents of this release read; empty: none. */}}
{{- define "tonnage.dcgmUrl" -}}
{{- if and .Values.agent.enabled .Values.agent.health.enabled -}}
{{- .Values.agent.health.dcgmUrl -}}
{{- end -}}
{{- end }}

{{/* NCCL's RAS service that agents of this release ask; empty: none. */}}
{{- define "tonnage.ras" -}}
{{- if and .Values.agent.enabled .Values.agent.health.enabled -}}
{{- .Values.agent.health.ras -}}
{{- end -}}
{{- end }}

{{/* "yes" when the operator gives orders for sandboxes: to agents of this release, or to others by its settings. */}}
{{- define "tonnage.isolates" -}}
{{- if or (and .Values.agent.enabled .Values.agent.sandboxes.enabled) ((.Values.settings.isolation | default dict).enabled) -}}
yes
{{- end -}}
{{- end }}

{{/* Headless service of all replicas of the operator; agents find the leader among them. */}}
{{- define "tonnage.powerService" -}}
{{ include "tonnage.fullname" . }}-power
{{- end }}

{{- define "tonnage.powerHost" -}}
{{ include "tonnage.powerService" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Secret with the certificate that the operator shows to agents, and ConfigMap with its authority. */}}
{{- define "tonnage.powerSecret" -}}
{{ .Values.agent.tls.secret | default (printf "%s-tls" (include "tonnage.powerService" .)) }}
{{- end }}

{{- define "tonnage.powerAuthority" -}}
{{ .Values.agent.tls.caConfigMap | default (printf "%s-ca" (include "tonnage.powerService" .)) }}
{{- end }}

{{- define "tonnage.agentName" -}}
{{ include "tonnage.fullname" . }}-agent
{{- end }}

{{- define "tonnage.agentSelector" -}}
app.kubernetes.io/name: {{ include "tonnage.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "tonnage.agentLabels" -}}
{{ include "tonnage.agentSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The chart's image, unless the agent has its own (AMD SMI comes only with ROCm). */}}
{{- define "tonnage.agentImage" -}}
{{- $image := .Values.agent.image }}
{{- if $image.repository }}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- else }}
{{- include "tonnage.image" . }}
{{- end }}
{{- end }}

{{/* Node selector of agents: the value, or the GPU operator's label for nodes with NVIDIA devices. */}}
{{- define "tonnage.agentNodes" -}}
{{- if .Values.agent.nodeSelector -}}
{{- toYaml .Values.agent.nodeSelector }}
{{- else if eq .Values.agent.backend "nvml" -}}
nvidia.com/gpu.present: "true"
{{- end -}}
{{- end }}

{{/* "true" if the agent connects to BMCs: to limit devices, or to read the node's meter. */}}
{{- define "tonnage.agentAsksBmc" -}}
{{- if or (eq .Values.agent.backend "redfish") .Values.agent.meter }}true{{ end }}
{{- end }}

{{/* Settings file of the agent. */}}
{{- define "tonnage.agentSettings" -}}
{{- $agent := .Values.agent }}
{{- $controller := dict "host" (include "tonnage.powerHost" .) "port" (int $agent.port) }}
{{- $settings := dict "backend" $agent.backend "controller" $controller "record" "/var/lib/tonnage/power.record" }}
{{- $_ := set $settings "period" $agent.period }}
{{- $_ := set $settings "floor_share" $agent.floorShare }}
{{- /* An empty list differs from null: no device may be limited. */}}
{{- if kindIs "slice" $agent.manages }}
{{- $_ := set $settings "manages" $agent.manages }}
{{- end }}
{{- $_ := set $settings "on_stop" $agent.onStop }}
{{- $_ := set $settings "as_dcgm" $agent.asDcgm }}
{{- $_ := set $settings "metrics_port" (int $agent.metricsPort) }}
{{- if include "tonnage.agentAsksBmc" . }}
{{- $_ := set $settings "meter" $agent.meter }}
{{- $bmc := dict "host" $agent.redfish.host "port" (int $agent.redfish.port) "login" "/etc/tonnage-bmc" "look_s" $agent.redfish.lookSeconds "rest_s" $agent.redfish.restSeconds "settles_s" $agent.redfish.settlesSeconds }}
{{- with $agent.redfish.chassis }}
{{- $_ := set $bmc "chassis" . }}
{{- end }}
{{- if $agent.redfish.caSecret }}
{{- $_ := set $bmc "ca_file" "/etc/tonnage-bmc-ca/ca.crt" }}
{{- end }}
{{- $_ := set $settings "redfish" $bmc }}
{{- end }}
{{- if $agent.sandboxes.enabled }}
{{- $sandboxes := dict "cgroups" "/host/cgroup" "sockets" "/run/tonnage/sandboxes" "record" "/var/lib/tonnage/sandboxes.json" "memory_share" $agent.sandboxes.memoryShare "cgroup_root" $agent.sandboxes.cgroupRoot }}
{{- $_ := set $settings "sandboxes" $sandboxes }}
{{- end }}
{{- if eq $agent.backend "pretend" }}
{{- $_ := set $settings "pretend" (dict "devices" (int $agent.pretend.devices)) }}
{{- end }}
{{- if $agent.health.enabled }}
{{- $health := dict "enabled" true "folder" "/run/tonnage/pods" "sys" "/host/sys/class" "cgroups" "/host/sys/fs/cgroup" }}
{{- if $agent.health.kernelLog }}
{{- $_ := set $health "kernel_log" "/dev/kmsg" }}
{{- end }}
{{- with $agent.health.dcgmUrl }}
{{- $_ := set $health "dcgm_url" . }}
{{- end }}
{{- with $agent.health.ras }}
{{- $_ := set $health "ras" . }}
{{- end }}
{{- with $agent.health.probes }}
{{- if .enabled }}
{{- $_ := set $health "probes" (dict "enabled" true "port" (int .port) "interface" .interface) }}
{{- end }}
{{- end }}
{{- $_ := set $settings "health" $health }}
{{- end }}
{{- toYaml $settings }}
{{- end }}
