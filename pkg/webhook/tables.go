package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// patience is how long a replica that has just started waits for the tables. What holds rollouts
// cannot wait for them for good.
const patience = 10 * time.Second

// Tables are the parameters of deploy/initial-resources: the estimator's ConfigMaps, beside the
// namespaces that they are for. Both are watched, so that nobody is asked while a pod waits.
type Tables struct {
	started            time.Time
	namespaces, tables cache.SharedIndexInformer
}

// NewTables returns tables that are empty until [Tables.Run] has read them.
func NewTables(client kubernetes.Interface) (*Tables, error) {
	t := &Tables{
		started:    time.Now(),
		namespaces: coreinformers.NewNamespaceInformer(client, 0, cache.Indexers{}),
		tables: coreinformers.NewFilteredConfigMapInformer(client, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, api.EstimatesName).String()
		}),
	}
	for _, informer := range []cache.SharedIndexInformer{t.namespaces, t.tables} {
		if err := informer.SetTransform(strip); err != nil {
			return nil, fmt.Errorf("stripping what is watched: %w", err)
		}
	}
	return t, nil
}

// strip removes what takes much room, and is never read.
func strip(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// Run keeps the tables until the context ends.
func (t *Tables) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, informer := range []cache.SharedIndexInformer{t.namespaces, t.tables} {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	all.Wait()
}

// Ready returns an error while the tables are being read, but not for long.
func (t *Tables) Ready() error {
	if err := t.read(); err != nil && time.Since(t.started) < patience {
		return err
	}
	return nil
}

func (t *Tables) read() error {
	if !t.namespaces.HasSynced() || !t.tables.HasSynced() {
		return errors.New("the estimates have not been read yet")
	}
	return nil
}

// binding says where a policy with parameters is in force, and which they are.
type binding struct {
	criteria
	namespaces, parameters labels.Selector
}

// newBinding understands bindings as deploy/initial-resources has them.
func newBinding(object *registrationv1.MutatingAdmissionPolicyBinding) (b binding, err error) {
	match, ref := object.Spec.MatchResources, object.Spec.ParamRef
	if match == nil || ref == nil || ref.Selector == nil || ref.Namespace != "" || ptr.Deref(ref.ParameterNotFoundAction, "") != registrationv1.AllowAction {
		return b, fmt.Errorf("the binding %s is not by label within the object's namespace, which alone is supported", object.Name)
	}
	b.criteria = criteria(*match)
	if b.namespaces, err = metav1.LabelSelectorAsSelector(match.NamespaceSelector); err != nil {
		return b, fmt.Errorf("reading the binding %s: %w", object.Name, err)
	}
	if b.parameters, err = metav1.LabelSelectorAsSelector(ref.Selector); err != nil {
		return b, fmt.Errorf("reading the binding %s: %w", object.Name, err)
	}
	return b, nil
}

// invocation is what a policy is evaluated with beside the request: nothing, if it has no parameters.
type invocation struct {
	namespace *corev1.Namespace
	parameter runtime.Object
}

// invocations are those of a request about an object in the namespace, by the bindings that match it.
func (t *Tables) invocations(namespace string, bindings []binding, matches func(matching.MatchCriteria) (bool, error)) ([]invocation, error) {
	if err := t.read(); err != nil {
		return nil, err
	}
	in, err := corelisters.NewNamespaceLister(t.namespaces.GetIndexer()).Get(namespace)
	if err != nil {
		return nil, fmt.Errorf("looking the namespace up: %w", err)
	}
	var all []invocation
	for _, b := range bindings {
		if is, err := matches(b); err != nil {
			return nil, err
		} else if !is || !b.namespaces.Matches(labels.Set(in.Labels)) {
			continue
		}
		tables, err := corelisters.NewConfigMapLister(t.tables.GetIndexer()).ConfigMaps(namespace).List(b.parameters)
		if err != nil {
			return nil, fmt.Errorf("looking the table up: %w", err)
		}
		for _, table := range tables {
			all = append(all, invocation{in, table})
		}
	}
	return all, nil
}
