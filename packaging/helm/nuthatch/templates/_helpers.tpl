{{- define "nuthatch.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "nuthatch.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "nuthatch.labels" -}}
{{ include "nuthatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "nuthatch.isCluster" -}}
{{- if not (has (int .Values.cluster.nodes) (list 1 3 5)) }}{{ fail "cluster.nodes: 1, 3 or 5" }}{{ end }}
{{- if gt (int .Values.cluster.nodes) 1 }}
{{- if not .Values.cluster.secret }}{{ fail "cluster.secret: the nodes need a secret with key and token (values.yaml)" }}{{ end }}
{{- "yes" }}
{{- end }}
{{- end -}}

{{- define "nuthatch.routes" -}}
{{- $name := include "nuthatch.name" . -}}
{{- range $at := until (int .Values.cluster.nodes) }}{{ if $at }},{{ end }}{{ $name }}-{{ $at }}.{{ $name }}-headless:6222{{ end }}
{{- end -}}
