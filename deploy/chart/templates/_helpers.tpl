{{- /* What the controller's ServiceAccount is called. */ -}}
{{- define "inplace-rollout.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "inplace-rollout" }}
{{- end -}}

{{- /* Labels of every object: those that deploy/ gives, and Helm's. */ -}}
{{- define "inplace-rollout.labels" -}}
app.kubernetes.io/name: inplace-rollout
app.kubernetes.io/part-of: inplace-rollout
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "inplace-rollout.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* Whether Helm talks to a cluster, which `helm template` does not: "true" or "". */ -}}
{{- define "inplace-rollout.connected" -}}
{{ if lookup "v1" "Namespace" "" (ternary "kube-system" .Release.Namespace (ne .Values.parts "controller")) }}true{{ end }}
{{- end -}}

{{- /*
How rollouts are held. With auto, what is installed already stays, because a change would be one of the whole cluster;
otherwise it is what the cluster serves. Without a cluster nobody can see what is installed: a tool that renders the chart
again and again would change the way when Kubernetes is upgraded, and prune what holds.
*/ -}}
{{- define "inplace-rollout.hold" -}}
{{- $api := "admissionregistration.k8s.io" -}}
{{- if ne .Values.hold "auto" -}}
{{ .Values.hold }}
{{- else if not (include "inplace-rollout.connected" .) -}}
{{ fail "hold: auto asks the cluster, and helm template (so Argo CD, too) has none: set hold to policy (Kubernetes 1.36 and later) or webhook (any version)" }}
{{- else if lookup (printf "%s/v1" $api) "MutatingWebhookConfiguration" "" "inplace-rollout" -}}
webhook
{{- else if .Capabilities.APIVersions.Has (printf "%s/v1/MutatingAdmissionPolicy" $api) -}}
policy
{{- else if .Capabilities.APIVersions.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $api) -}}
v1beta1
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{- /* Whether this release has the objects of the cluster, and those of the controller's namespace: "true" or "". */ -}}
{{- define "inplace-rollout.ofCluster" -}}
{{ if ne .Values.parts "controller" }}true{{ end }}
{{- end -}}
{{- define "inplace-rollout.ofController" -}}
{{ if ne .Values.parts "cluster" }}true{{ end }}
{{- end -}}

{{- /*
Prints the objects of a file of deploy/, as this release wants them: .file is its name in files/, .root is $, and
.without a list of those that it does not want, as Kind/name.
What differs from the file is all here.
*/ -}}
{{- define "inplace-rollout.file" -}}
{{- $file := .file -}}
{{- $without := .without -}}
{{- $ := .root -}}
{{- $account := include "inplace-rollout.serviceAccount" $ -}}
{{- $namespace := $.Release.Namespace -}}
{{- $ownNamespaces := eq $.Values.watch "namespace" -}}
{{- $hold := "" -}}
{{- if include "inplace-rollout.ofCluster" $ }}{{ $hold = include "inplace-rollout.hold" $ }}{{ end -}}
{{- $installed := dict "matchLabels" (dict "inplace-rollout.io/installed" "true") -}}
{{- /* The policies name the controller, within quotes. Where each namespace has its own, it is that of the workload's. */ -}}
{{- $inOne := printf "system:serviceaccount:%s:%s" $namespace $account -}}
{{- $inEach := printf `system:serviceaccount:" + request.namespace + ":%s` $account -}}
{{- $text := $.Files.Get (printf "files/%s" $file) | replace "system:serviceaccount:inplace-rollout:inplace-rollout\"" (printf "%s\"" (ternary $inEach $inOne $ownNamespaces)) -}}
{{- $text = $text | replace "system:serviceaccount:inplace-rollout:inplace-rollout-estimator\"" (printf "system:serviceaccount:%s:inplace-rollout-estimator\"" $namespace) -}}
{{- $text = $text | replace `'["kube-system"]'` (printf "'%s'" (concat (list "kube-system") $.Values.criticalNamespaces | uniq | toJson)) -}}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $o := fromYaml . -}}
{{- with $o.Error }}{{ fail (printf "files/%s: %s" $file .) }}{{ end -}}
{{- $mutating := hasPrefix "MutatingAdmissionPolicy" ($o.kind | default "") -}}
{{- if and $o.kind (not (and $mutating (eq $hold "webhook"))) (not (has (printf "%s/%s" $o.kind $o.metadata.name) $without)) -}}
{{- $_ := set $o.metadata "labels" (fromYaml (include "inplace-rollout.labels" $)) -}}
{{- if and $mutating (eq $hold "v1beta1") }}{{ $_ := set $o "apiVersion" "admissionregistration.k8s.io/v1beta1" }}{{ end -}}
{{- if has $o.kind (list "ServiceAccount" "Role" "RoleBinding" "NetworkPolicy" "Deployment" "Service" "PodDisruptionBudget") }}{{ $_ := set $o.metadata "namespace" $namespace }}{{ end -}}
{{- if and (eq $o.kind "ServiceAccount") (eq $o.metadata.name "inplace-rollout") }}
{{- $_ := set $o.metadata "name" $account -}}
{{- with $.Values.serviceAccount.annotations }}{{ $_ := set $o.metadata "annotations" . }}{{ end -}}
{{- end -}}
{{- /* Whose heartbeat it is. */ -}}
{{- if and (hasPrefix "inplace-rollout-" $o.metadata.name) (hasSuffix "-heartbeat" $o.metadata.name) (hasSuffix "Role" $o.kind) }}
{{- range $o.rules }}{{ $_ := set . "resourceNames" (list $account) }}{{ end -}}
{{- end -}}
{{- if and (hasSuffix "AdmissionPolicyBinding" $o.kind) (dig "paramRef" "namespace" "" $o.spec) }}
{{- $_ := set $o.spec.paramRef "name" $account -}}
{{- $_ := set $o.spec.paramRef "namespace" $namespace -}}
{{- if $ownNamespaces }}{{ $_ := unset $o.spec.paramRef "namespace" }}{{ end -}}
{{- end -}}
{{- range $o.subjects }}
{{- $_ := set . "namespace" $namespace -}}
{{- if eq .name "inplace-rollout" }}{{ $_ := set . "name" $account }}{{ end -}}
{{- end -}}
{{- if and (eq $o.kind "NetworkPolicy") (eq $o.metadata.name "inplace-rollout-webhook") $.Values.networkPolicy.apiServers }}
{{- $from := list -}}
{{- range $.Values.networkPolicy.apiServers }}{{ $from = append $from (dict "ipBlock" (dict "cidr" .)) }}{{ end -}}
{{- $_ := set (first $o.spec.ingress) "from" $from -}}
{{- end -}}
{{- if eq $o.kind "FlowSchema" }}
{{- range $o.spec.rules }}
{{- range .subjects }}{{ $_ := set . "serviceAccount" (dict "name" $account "namespace" $namespace) }}{{ end -}}
{{- range .resourceRules }}{{ if ne (first .namespaces) "*" }}{{ $_ := set . "namespaces" (list $namespace) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $ownNamespaces (hasSuffix "AdmissionPolicyBinding" $o.kind) }}
{{- $_ := set $o.spec "matchResources" (dict "namespaceSelector" $installed) -}}
{{- end -}}
{{- if eq $o.kind "MutatingWebhookConfiguration" }}
{{- $selector := mergeOverwrite (deepCopy $.Values.webhook.namespaceSelector) (ternary $installed dict $ownNamespaces) -}}
{{- range $o.webhooks }}{{ $_ := set . "namespaceSelector" $selector }}{{ end -}}
{{- if $.Values.initialResources.enabled }}
{{- $more := fromYaml ($.Files.Get "files/webhook-initial-resources/configuration.yaml") -}}
{{- $_ := set $o "webhooks" (concat $more.webhooks $o.webhooks) -}}
{{- end -}}
{{- range $o.webhooks }}
{{- $_ := set .clientConfig.service "namespace" $namespace -}}
{{- end -}}
{{- if $.Values.webhook.certManager.enabled }}
{{- $_ := set $o.metadata.annotations "cert-manager.io/inject-ca-from" (printf "%s/inplace-rollout-webhook" $namespace) -}}
{{- end -}}
{{- end -}}
{{- if eq $o.kind "Deployment" }}
{{- $estimates := eq $o.metadata.name "inplace-rollout-estimator" -}}
{{- $values := ternary $.Values.initialResources.estimator $.Values.webhook $estimates -}}
{{- $_ := set $o.spec "replicas" $values.replicas -}}
{{- $_ := merge $o.spec.template.metadata.labels $.Values.podLabels -}}
{{- with $.Values.podAnnotations }}{{ $_ := set $o.spec.template.metadata "annotations" . }}{{ end -}}
{{- $pod := mergeOverwrite $o.spec.template.spec (fromYaml (include "inplace-rollout.pod" $)) -}}
{{- $container := first $pod.containers -}}
{{- $_ := unset $container "env" -}}
{{- $_ := unset $container "resources" -}}
{{- $_ := mergeOverwrite $container (fromYaml (include "inplace-rollout.container" (dict "root" $ "resources" $values.resources))) -}}
{{- if $estimates }}
{{- $args := list "estimator" (printf "--prometheus-url=%s" (required "initialResources.prometheusURL says where Prometheus is" $.Values.initialResources.prometheusURL)) -}}
{{- if $.Values.initialResources.resizeAfterwards }}{{ $args = append $args "--resize-afterwards" }}{{ end -}}
{{- $_ := set $container "args" $args -}}
{{- with $values.volumes }}{{ $_ := set $pod "volumes" . }}{{ end -}}
{{- with $values.volumeMounts }}{{ $_ := set $container "volumeMounts" . }}{{ end -}}
{{- else }}
{{- if $.Values.initialResources.enabled }}{{ $_ := set $container "args" (append $container.args "--initial-resources") }}{{ end -}}
{{- if or $ownNamespaces (ne $account "inplace-rollout") }}
{{- $_ := set $container "args" (append $container.args (printf "--controller=%s" (ternary $inEach $inOne $ownNamespaces))) -}}
{{- end -}}
{{- with $.Values.webhook }}
{{- if ne (int .port) 8443 }}
{{- $_ := set $container "args" (append $container.args (printf "--bind-address=:%d" (int .port))) -}}
{{- $_ := set (first $container.ports) "containerPort" (int .port) -}}
{{- end -}}
{{- if .hostNetwork }}
{{- $_ := set $pod "hostNetwork" true -}}
{{- $_ := set $pod "dnsPolicy" "ClusterFirstWithHostNet" -}}
{{- /* Its ports are the node's: no two are on one node, also during an upgrade. */ -}}
{{- $_ := set $o.spec.strategy "rollingUpdate" (dict "maxUnavailable" 1 "maxSurge" 0) -}}
{{- end -}}
{{- end -}}
{{- if $.Values.webhook.certManager.enabled }}
{{- $_ := set $container "args" (concat $container.args (list "--tls-cert-file=/tls/tls.crt" "--tls-private-key-file=/tls/tls.key")) -}}
{{- $_ := set $container "volumeMounts" (list (dict "name" "tls" "mountPath" "/tls" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (list (dict "name" "tls" "secret" (dict "secretName" "inplace-rollout-webhook-tls"))) -}}
{{- end -}}
{{- end -}}
{{- if $.Values.metrics.secure }}
{{- $_ := set $container "args" (append $container.args "--secure-metrics") -}}
{{- range list $container.livenessProbe $container.readinessProbe }}{{ $_ := set .httpGet "scheme" "HTTPS" }}{{ end -}}
{{- end -}}
{{- with $values.extraArgs }}{{ $_ := set $container "args" (concat $container.args .) }}{{ end -}}
{{- end -}}
---
{{ toYaml $o }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- /* What the pods of this chart have in common. */ -}}
{{- define "inplace-rollout.pod" -}}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $field, $value := pick .Values "nodeSelector" "tolerations" "affinity" }}
{{- with $value }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What their containers have in common: .root is $, .resources theirs, .env a list of more variables. */ -}}
{{- define "inplace-rollout.container" -}}
{{- $env := .env | default list -}}
{{- /* Before the limit is reached, Go collects garbage more often. */ -}}
{{- with dig "limits" "memory" "" .resources -}}
{{- $env = append $env (dict "name" "GOMEMLIMIT" "value" (include "inplace-rollout.nineTenths" .)) -}}
{{- end -}}
{{- with .root.Values -}}
image: {{ include "inplace-rollout.image" $.root | quote }}
{{- if ne .image.pullPolicy "IfNotPresent" }}
imagePullPolicy: {{ .image.pullPolicy }}
{{- end }}
{{- with concat $env .extraEnv }}
env:
{{ toYaml . }}
{{- end }}
resources:
  {{- toYaml $.resources | nindent 2 }}
securityContext:
  {{- toYaml .securityContext | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* Nine tenths of a quantity of memory, as Go writes it. */ -}}
{{- define "inplace-rollout.nineTenths" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 -}}
{{- $quantity := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $quantity -}}
{{- $number := trimSuffix $unit $quantity -}}
{{- div (mul (mulf (float64 $number) (get $units $unit) | floor | int64) 9) 10485760 -}}MiB
{{- end -}}

{{- /* Metadata of what there is only before an uninstallation. The Job comes last, because its kind does. */ -}}
{{- define "inplace-rollout.hook" -}}
name: inplace-rollout-release
labels:
  {{- include "inplace-rollout.labels" . | nindent 2 }}
annotations:
  helm.sh/hook: pre-delete
  # After a failure the Job stays, to be looked at; its rights do not.
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  argocd.argoproj.io/hook: PreDelete
  argocd.argoproj.io/hook-delete-policy: BeforeHookCreation,HookSucceeded
  # Argo CD may delete what the Application has while the Job still runs (its issue 29100). This lets it end.
  argocd.argoproj.io/sync-options: Delete=false
{{- end -}}
