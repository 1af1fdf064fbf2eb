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

{{/* What never changes about a release: selectors are immutable. */}}
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

{{/* Given a dict of root and mode: "yes" when objects of the Prometheus Operator, or what goes with it, are wanted. */}}
{{- define "tonnage.monitored" -}}
{{- if or (eq .mode "always") (and (eq .mode "auto") (.root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
yes
{{- end -}}
{{- end }}

{{/* The ways of placing that the pools of the settings use, joined by commas. */}}
{{- define "tonnage.placers" -}}
{{- $placers := list }}
{{- range .Values.settings.pools | default (list (dict "placer" "gate")) }}
{{- $placers = append $placers .placer }}
{{- end }}
{{- $placers | uniq | join "," }}
{{- end }}

{{/* What the process reads: the values' settings, and what the chart itself decides. */}}
{{- define "tonnage.settings" -}}
{{- $lease := dict "namespace" .Release.Namespace "name" (include "tonnage.fullname" .) }}
{{- $own := dict "lease" $lease "fenced" .Values.fence.enabled "metrics_port" (int .Values.ports.metrics) "probe_port" (int .Values.ports.health) }}
{{- toYaml (merge $own .Values.settings) }}
{{- end }}
