{{- define "oasgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "oasgate.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that select the pods of a component; for workers add oasgate/worker. */}}
{{- define "oasgate.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .worker }}
oasgate/worker: {{ . }}
{{- end }}
{{- end }}

{{/* A worker group over the defaults. Not sprig's merge: it takes 0 and false for absent. */}}
{{- define "oasgate.worker" -}}
{{- $worker := deepCopy .root.Values.workerDefaults -}}
{{- range $key, $value := .worker -}}
{{- if has $key (list "scaling" "cache") -}}
{{- $whole := deepCopy (get $worker $key) -}}
{{- range $part, $given := $value }}{{ $_ := set $whole $part $given }}{{ end -}}
{{- $_ := set $worker $key $whole -}}
{{- else -}}
{{- $_ := set $worker $key $value -}}
{{- end -}}
{{- end -}}
{{- if gt (int $worker.scaling.min) (int $worker.scaling.max) -}}
{{- fail (printf "workers: %s: scaling.min is above scaling.max" $worker.name) -}}
{{- end -}}
{{- toYaml $worker -}}
{{- end }}

{{- define "oasgate.image" -}}
{{- $image := merge (deepCopy (.image | default dict)) .root.Values.image -}}
image: {{ printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "oasgate.podSecurity" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "oasgate.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Environment of every process; `more` wins over the chart's own `env`. */}}
{{- define "oasgate.env" -}}
{{- $nats := .root.Values.nats -}}
{{- $env := dict "SIE_NATS_URL" $nats.url "SIE_NATS_REPLICAS" $nats.replicas -}}
{{- if $nats.credentials.secret }}
{{- $_ := set $env "SIE_NATS_CREDENTIALS" (printf "/etc/oasgate/nats/%s" $nats.credentials.key) }}
{{- end }}
{{- if $nats.tls.secret }}
{{- range $name, $file := dict "SIE_NATS_TLS_CA" $nats.tls.ca "SIE_NATS_TLS_CERT" $nats.tls.cert "SIE_NATS_TLS_KEY" $nats.tls.key }}
{{- if $file }}
{{- $_ := set $env $name (printf "/etc/oasgate/nats-tls/%s" $file) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $more := list .own .root.Values.env .more }}
{{- range $name, $value := $more }}{{ $_ := set $env $name $value }}{{ end }}
{{- end }}
{{- range $name, $value := $env }}
- name: {{ $name }}
  {{- /* toJson: a template prints a million as 1e+06 */}}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{- define "oasgate.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /var/lib/oasgate}
{{- if .Values.nats.credentials.secret }}
- {name: nats-credentials, mountPath: /etc/oasgate/nats, readOnly: true}
{{- end }}
{{- if .Values.nats.tls.secret }}
- {name: nats-tls, mountPath: /etc/oasgate/nats-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "oasgate.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- with .Values.nats.credentials.secret }}
- {name: nats-credentials, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with .Values.nats.tls.secret }}
- {name: nats-tls, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- end }}

{{/* Labels of a series, as PromQL matches them; with the operator's own matchers. */}}
{{- define "oasgate.matchers" -}}
{{ .own }}{{ with .root.Values.keda.prometheus.matchers }},{{ . }}{{ end }}
{{- end }}
