{{- /* What the controller's ServiceAccount is called. */ -}}
{{- define "inplace-rollout.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "inplace-rollout" }}
{{- end -}}

{{- /* Labels of every object: those that deploy/ gives, Helm's, and the values'. */ -}}
{{- define "inplace-rollout.labels" -}}
{{- $labels := fromYaml (include "inplace-rollout.podLabels" .) -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- toYaml $labels -}}
{{- end -}}

{{- /* Those of them that every pod has. */ -}}
{{- define "inplace-rollout.podLabels" -}}
{{- merge (dict "app.kubernetes.io/name" "inplace-rollout" "app.kubernetes.io/part-of" "inplace-rollout" "app.kubernetes.io/instance" .Release.Name) (.Values.commonLabels | default dict) | toYaml -}}
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
{{- $_ := set $o.metadata "labels" (merge (fromYaml (include "inplace-rollout.labels" $)) ($o.metadata.labels | default dict)) -}}
{{- if has $o.kind (list "ServiceAccount" "Role" "RoleBinding" "NetworkPolicy" "Deployment" "Service" "PodDisruptionBudget" "ConfigMap") }}{{ $_ := set $o.metadata "namespace" $namespace }}{{ end -}}
{{- if and (eq $o.kind "ServiceAccount") (eq $o.metadata.name "inplace-rollout") }}
{{- $_ := set $o.metadata "name" $account -}}
{{- with $.Values.serviceAccount.annotations }}{{ $_ := set $o.metadata "annotations" . }}{{ end -}}
{{- end -}}
{{- if and (eq $o.kind "ConfigMap") (eq $o.metadata.name "inplace-rollout-checks") }}
{{- range $name, $check := $.Values.checks }}
{{- if $check }}{{ $_ := set $o.data $name (toYaml $check) }}{{ else }}{{ $_ := unset $o.data $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and (eq $o.kind "ConfigMap") (eq $o.metadata.name "inplace-rollout-estimator-default-requests") }}
{{- $_ := set $o.data "requests.yaml" (toYaml $.Values.initialResources.estimator.defaultRequests) -}}
{{- end -}}
{{- /* The webhook warns itself, without a prefix, where it is asked. */ -}}
{{- if and (eq $hold "webhook") (eq $o.kind "ValidatingAdmissionPolicy") (eq $o.metadata.name "inplace-rollout-warning") }}
{{- $leftOut := `request.namespace in params.metadata.?annotations[?"inplace-rollout.io/left-out-namespaces"].orValue("").split(",")` -}}
{{- $_ := set $o.spec "matchConditions" (append $o.spec.matchConditions (dict "name" "left-out" "expression" $leftOut)) -}}
{{- end -}}
{{- /* Whose heartbeat it is. */ -}}
{{- if and (hasPrefix "inplace-rollout-" $o.metadata.name) (hasSuffix "-heartbeat" $o.metadata.name) (hasSuffix "Role" $o.kind) }}
{{- range $o.rules }}{{ if has "inplace-rollout" .resourceNames }}{{ $_ := set . "resourceNames" (concat (list $account) (without .resourceNames "inplace-rollout")) }}{{ end }}{{ end -}}
{{- end -}}
{{- if and (hasSuffix "AdmissionPolicyBinding" $o.kind) (dig "paramRef" "namespace" "" $o.spec) }}
{{- $_ := set $o.spec.paramRef "namespace" $namespace -}}
{{- if $ownNamespaces }}{{ $_ := unset $o.spec.paramRef "namespace" }}{{ end -}}
{{- end -}}
{{- range $o.subjects }}
{{- if eq .kind "ServiceAccount" }}{{ $_ := set . "namespace" $namespace }}{{ end -}}
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
{{- if eq $o.kind "Deployment" }}{{ include "inplace-rollout.deployment" (dict "root" $ "deployment" $o "controller" (ternary $inEach $inOne $ownNamespaces)) }}{{ end -}}
---
{{ toYaml $o }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Changes a Deployment of deploy/, .deployment, as the values say. .controller is who the controller is. */ -}}
{{- define "inplace-rollout.deployment" -}}
{{- $ := .root -}}
{{- $spec := .deployment.spec -}}
{{- $pod := $spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $args := $container.args -}}
{{- $values := $.Values -}}
{{- if eq $container.name "controller" }}
{{- $values = merge (pick $values.controller "priorityClassName" "nodeSelector" "tolerations" "affinity" "podLabels" "podAnnotations") (pick $values "replicas" "resources" "extraArgs" "volumes" "volumeMounts" "topologySpreadConstraints") -}}
{{- $_ := set $pod "serviceAccountName" (include "inplace-rollout.serviceAccount" $) -}}
{{- $args = list "controller" (ternary "--leader-elect" "--leader-elect=false" $.Values.leaderElection) "--metrics-bind-address=:8080" -}}
{{- /* Without a Lease there must never be two. */ -}}
{{- if not $.Values.leaderElection }}{{ $_ := set $spec "strategy" (dict "type" "Recreate") }}{{ end -}}
{{- if eq $.Values.watch "namespace" }}
{{- $args = append $args "--namespace=$(NAMESPACE)" -}}
{{- $_ := set $container "env" (list (dict "name" "NAMESPACE" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.namespace")))) -}}
{{- end -}}
{{- with $.Values.criticalNamespaces }}{{ $args = append $args (printf "--critical-namespaces=%s" (join "," .)) }}{{ end -}}
{{- range $flag, $value := dict
  "default-resource-resize-policy" $.Values.controller.defaultResourceResizePolicy
  "deferred-timeout" $.Values.controller.deferredTimeout
  "error-timeout" $.Values.controller.errorTimeout
  "when-absent" $.Values.controller.whenAbsent
  "when-room-unknown" $.Values.controller.whenRoomUnknown
  "workers" $.Values.controller.workers
  "kube-api-qps" $.Values.controller.kubeAPIQPS
  "not-ready-timeout" $.Values.controller.notReadyTimeout
  "checks-prometheus" $.Values.controller.checksPrometheus
  "checks-http-config" $.Values.controller.checksHTTPConfig
  "check-timeout" $.Values.controller.checkTimeout
  "on-unknown-check" $.Values.controller.onUnknownCheck
  "kube-api-burst" $.Values.controller.kubeAPIBurst
  "v" $.Values.controller.verbosity }}
{{- if not (kindIs "invalid" $value) }}{{ $args = append $args (printf "--%s=%v" $flag $value) }}{{ end -}}
{{- end -}}
{{- else if eq $container.name "estimator" }}
{{- $values = $.Values.initialResources.estimator -}}
{{- $args = list "estimator" (printf "--prometheus-url=%s" (required "initialResources.prometheusURL says where Prometheus is" $.Values.initialResources.prometheusURL)) "--default-requests=/default-requests/requests.yaml" -}}
{{- /* The estimator reads the file when it starts. */ -}}
{{- with $values.defaultRequests }}{{ $_ := set $spec.template.metadata "annotations" (dict "inplace-rollout.io/default-requests" (toJson . | sha256sum)) }}{{ end -}}
{{- if $.Values.initialResources.resizeAfterwards }}{{ $args = append $args "--resize-afterwards" }}{{ end -}}
{{- else }}
{{- $values = $.Values.webhook -}}
{{- if $.Values.initialResources.enabled }}{{ $args = append $args "--initial-resources" }}{{ end -}}
{{- if or (eq $.Values.watch "namespace") (ne (include "inplace-rollout.serviceAccount" $) "inplace-rollout") }}
{{- $args = append $args (printf "--controller=%s" .controller) -}}
{{- end -}}
{{- if ne (int $values.port) 8443 }}
{{- $args = append $args (printf "--bind-address=:%d" (int $values.port)) -}}
{{- $_ := set (first $container.ports) "containerPort" (int $values.port) -}}
{{- end -}}
{{- with $values.clientCAFile }}{{ $args = append $args (printf "--client-ca-file=%s" .) }}{{ end -}}
{{- if $values.hostNetwork }}
{{- $_ := set $pod "hostNetwork" true -}}
{{- $_ := set $pod "dnsPolicy" "ClusterFirstWithHostNet" -}}
{{- /* Its ports are the node's: no two are on one node, also during an upgrade. */ -}}
{{- $_ := set $spec.strategy "rollingUpdate" (dict "maxUnavailable" 1 "maxSurge" 0) -}}
{{- end -}}
{{- if $values.certManager.enabled }}
{{- $args = concat $args (list "--tls-cert-file=/tls/tls.crt" "--tls-private-key-file=/tls/tls.key") -}}
{{- $_ := set $container "volumeMounts" (list (dict "name" "tls" "mountPath" "/tls" "readOnly" true)) -}}
{{- $_ := set $pod "volumes" (list (dict "name" "tls" "secret" (dict "secretName" "inplace-rollout-webhook-tls"))) -}}
{{- end -}}
{{- end -}}
{{- if $.Values.metrics.secure }}
{{- $args = append $args "--secure-metrics" -}}
{{- range list $container.livenessProbe $container.readinessProbe }}{{ $_ := set .httpGet "scheme" "HTTPS" }}{{ end -}}
{{- end -}}
{{- $_ := set $spec "replicas" $values.replicas -}}
{{- $_ := set $container "args" $args -}}
{{- include "inplace-rollout.pods" (dict "root" $ "template" $spec.template "values" $values) -}}
{{- end -}}

{{- /*
Changes the pods of a component, .template, as the values say: .values are its own, which count before those of all pods.
Every component of the chart goes through this.
*/ -}}
{{- define "inplace-rollout.pods" -}}
{{- $all := .root.Values -}}
{{- $own := .values -}}
{{- $metadata := .template.metadata -}}
{{- $pod := .template.spec -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $metadata "labels" (merge $metadata.labels (fromYaml (include "inplace-rollout.podLabels" .root)) (deepCopy ($own.podLabels | default dict)) ($all.podLabels | default dict)) -}}
{{- with merge (deepCopy ($own.podAnnotations | default dict)) ($all.podAnnotations | default dict) ($metadata.annotations | default dict) }}{{ $_ := set $metadata "annotations" . }}{{ end -}}
{{- range $field := list "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
{{- $value := index $own $field -}}
{{- if kindIs "invalid" $value }}{{ $value = index $all $field }}{{ end -}}
{{- if $value }}{{ $_ := set $pod $field $value }}{{ else }}{{ $_ := unset $pod $field }}{{ end -}}
{{- end -}}
{{- if not (kindIs "invalid" $own.topologySpreadConstraints) }}{{ $_ := set $pod "topologySpreadConstraints" $own.topologySpreadConstraints }}{{ end -}}
{{- $_ := set $pod "securityContext" $all.podSecurityContext -}}
{{- with $all.image.pullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- with $own.volumes }}{{ $_ := set $pod "volumes" (concat ($pod.volumes | default list) .) }}{{ end -}}
{{- with $own.volumeMounts }}{{ $_ := set $container "volumeMounts" (concat ($container.volumeMounts | default list) .) }}{{ end -}}
{{- $_ := set $container "image" (include "inplace-rollout.image" .root) -}}
{{- if ne $all.image.pullPolicy "IfNotPresent" }}{{ $_ := set $container "imagePullPolicy" $all.image.pullPolicy }}{{ end -}}
{{- $_ := set $container "args" (concat $container.args ($own.extraArgs | default list)) -}}
{{- $_ := set $container "securityContext" $all.securityContext -}}
{{- $resources := $own.resources -}}
{{- if kindIs "invalid" $resources }}{{ $resources = $all.resources }}{{ end -}}
{{- $_ := set $container "resources" $resources -}}
{{- $env := list -}}
{{- range $container.env }}{{ if ne .name "GOMEMLIMIT" }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- /* Before the limit is reached, Go collects garbage more often. */ -}}
{{- with dig "limits" "memory" "" $resources }}{{ $env = append $env (dict "name" "GOMEMLIMIT" "value" (include "inplace-rollout.nineTenths" .)) }}{{ end -}}
{{- with concat $env ($all.extraEnv | default list) }}{{ $_ := set $container "env" . }}{{ else }}{{ $_ := unset $container "env" }}{{ end -}}
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

{{- /* Whether the release has a test: "true" or "". Single namespaces have none, because its rights are of the cluster. */ -}}
{{- define "inplace-rollout.hasTest" -}}
{{ if and .Values.test.enabled (include "inplace-rollout.ofCluster" .) (eq .Values.watch "all") }}true{{ end }}
{{- end -}}

{{- /*
Metadata of what there is only during a test. All have one name: hooks are made in the order of their names, then of their
kinds, and the Pod comes last.
*/ -}}
{{- define "inplace-rollout.testHook" -}}
name: inplace-rollout-test
labels:
  {{- include "inplace-rollout.labels" . | nindent 2 }}
annotations:
  helm.sh/hook: test
  # After a failure the Pod stays, to be looked at, until the next test; its rights do not.
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end -}}
