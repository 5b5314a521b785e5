// Package pods watches and writes the pods of workloads whose rollout is in
// flight. It is the only place that writes pods.
package pods

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// NewInformer watches the pods of namespace that selector matches.
func NewInformer(client kubernetes.Interface, namespace, selector string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredPodInformer(client, namespace, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(o *metav1.ListOptions) { o.LabelSelector = selector })
}
