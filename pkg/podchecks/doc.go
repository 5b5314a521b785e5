// Package podchecks asks Prometheus whether resized pods do well: whether they pass the checks that their workload names.
//
// A check is a query of PromQL with a threshold. The installation's administrator writes it, into the ConfigMap [ConfigMapName] of the
// controller's namespace, one key for each check:
//
//	cpu-throttling: |
//	  message: throttled in $value of its periods
//	  unit: "%"
//	  above: 50
//	  timesBefore: 2
//	  window: 5m
//	  limit: cpu
//	  query: |
//	    100 * sum by (namespace, pod, container) (increase(container_cpu_cfs_throttled_periods_total{namespace=~$namespace, pod=~$pod, container=~$container}[$window]))
//	      / …
//
// A container has failed it if the value is above (or with below: below) that number. With timesBefore it must also be above so many times
// what the same container had before its resize; where the query has no answer for that time, the outcome is Unknown, so it answers 0 where
// that is the truth. The query may look back as far as window says, and no further: the first answer that counts is of the time after so
// long. With limit, containers without a limit of that resource
// pass unasked. $namespace, $pod and $container stand after =~, without quotes, because many pods are asked for at once; what is filled in
// is a quoted string. The answer must keep the labels namespace, pod and, for a check of containers, container. Of several series of one
// container the worst counts.
//
// Those who name a check write nothing of its query: it runs with our rights, and Prometheus has the series of all namespaces.
//
// An outcome is never a guess. What is not known (no data, no answer, no such check) is Unknown; after a while it counts as the options say.
package podchecks

// ConfigMapName is what the ConfigMap of the checks is called.
const ConfigMapName = "inplace-rollout-checks"
