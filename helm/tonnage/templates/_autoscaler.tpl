{{/* Scaling: names that the operator and its clients share, and settings from the values. */}}

{{/* Service of the push endpoint. */}}
{{- define "tonnage.demandService" -}}
{{ include "tonnage.fullname" . }}-demand
{{- end }}

{{- define "tonnage.externalMetricsService" -}}
{{ include "tonnage.fullname" . }}-external-metrics
{{- end }}

{{- define "tonnage.externalMetricsSecret" -}}
{{ .Values.autoscaler.externalMetrics.tlsSecret | default (include "tonnage.externalMetricsService" .) }}
{{- end }}

{{/* Features of the autoscaler that are enabled by the values or the settings, joined by commas, named as their roles. */}}
{{- define "tonnage.demandFeatures" -}}
{{- $features := list }}
{{- $set := .Values.settings.autoscaler | default dict }}
{{- range $part, $value := dict "push" "push" "external_metrics" "externalMetrics" }}
{{- if and ((index $set $part) | default dict).enabled (not (index $.Values.autoscaler $value).enabled) }}
{{- fail (printf "settings.autoscaler.%s.enabled also needs a Service and permissions; set autoscaler.%s.enabled instead" $part $value) }}
{{- end }}
{{- end }}
{{- if or .Values.autoscaler.customMetrics $set.custom_metrics }}
{{- $features = append $features "custom-metrics" }}
{{- end }}
{{- if or .Values.autoscaler.configMaps $set.config_maps }}
{{- $features = append $features "config-maps" }}
{{- end }}
{{- if .Values.autoscaler.push.enabled }}
{{- $features = append $features "push" }}
{{- end }}
{{- if .Values.autoscaler.externalMetrics.enabled }}
{{- $features = append $features "external-metrics" }}
{{- end }}
{{- $features | join "," }}
{{- end }}

{{/* Settings of the operator's autoscaler. */}}
{{- define "tonnage.autoscaler" -}}
{{- $settings := dict }}
{{- with .Values.autoscaler.prometheus }}
{{- if .url }}
{{- $prometheus := dict "url" .url }}
{{- if .caSecret }}
{{- $_ := set $prometheus "ca_file" "/etc/tonnage-prometheus-ca/ca.crt" }}
{{- end }}
{{- if .tokenSecret }}
{{- $_ := set $prometheus "token_file" "/etc/tonnage-prometheus-token/token" }}
{{- end }}
{{- $_ := set $settings "prometheus" $prometheus }}
{{- end }}
{{- end }}
{{- if .Values.autoscaler.customMetrics }}
{{- $_ := set $settings "custom_metrics" true }}
{{- end }}
{{- if .Values.autoscaler.configMaps }}
{{- $_ := set $settings "config_maps" true }}
{{- end }}
{{- with .Values.autoscaler.push }}
{{- if .enabled }}
{{- $push := dict "enabled" true "port" (int .port) }}
{{- if .tlsSecret }}
{{- $_ := set $push "tls" (dict "certificate" "/etc/tonnage-push/tls.crt" "key" "/etc/tonnage-push/tls.key") }}
{{- end }}
{{- $_ := set $settings "push" $push }}
{{- end }}
{{- end }}
{{- with .Values.autoscaler.externalMetrics }}
{{- if .enabled }}
{{- $_ := set $settings "external_metrics" (dict "enabled" true "port" (int .port)) }}
{{- end }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{/* Secrets that the operator mounts, as a list of name, secret and path. */}}
{{- define "tonnage.autoscalerMounts" -}}
{{- $mounts := list }}
{{- with .Values.autoscaler }}
{{- if .prometheus.caSecret }}
{{- $mounts = append $mounts (dict "name" "prometheus-ca" "secret" .prometheus.caSecret "path" "/etc/tonnage-prometheus-ca") }}
{{- end }}
{{- if .prometheus.tokenSecret }}
{{- $mounts = append $mounts (dict "name" "prometheus-token" "secret" .prometheus.tokenSecret "path" "/etc/tonnage-prometheus-token") }}
{{- end }}
{{- if and .push.enabled .push.tlsSecret }}
{{- $mounts = append $mounts (dict "name" "push-tls" "secret" .push.tlsSecret "path" "/etc/tonnage-push") }}
{{- end }}
{{- if .externalMetrics.enabled }}
{{- $mounts = append $mounts (dict "name" "external-metrics-tls" "secret" (include "tonnage.externalMetricsSecret" $) "path" "/etc/tonnage-external-metrics") }}
{{- end }}
{{- end }}
{{- toYaml (dict "mounts" $mounts) }}
{{- end }}
