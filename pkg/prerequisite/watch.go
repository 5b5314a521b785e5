package prerequisite

import (
	"context"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// watchedValidity is how long a check counts while watches would tell of a change: of API servers that were upgraded, nobody tells.
	watchedValidity = 5 * time.Minute
	// doubt is how long a watch counts for nothing after it has failed.
	doubt = time.Minute
	// fewest is the time between two checks, when many objects change at once.
	fewest = time.Second
)

// watches tell that something has changed of what checks read, so that it need not be read all the time. Only metadata is watched.
// A check reads what it needs all the same: nothing is decided by a watch.
type watches struct {
	client  metadata.Interface
	changed chan struct{}

	mu      sync.Mutex
	started map[string]cache.SharedIndexInformer // by resource
	failed  time.Time                            // the last one
}

func newWatches(client metadata.Interface) *watches {
	return &watches{client: client, changed: make(chan struct{}, 1), started: map[string]cache.SharedIndexInformer{}}
}

// tell says that something may have changed.
func (w *watches) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// start watches the objects that hold in this API server, until ctx is done. Mutating policies may not be served.
func (w *watches) start(ctx context.Context, mutatingServed bool) {
	w.watch(ctx, "validatingadmissionpolicies", "")
	w.watch(ctx, "validatingadmissionpolicybindings", "")
	w.watch(ctx, "mutatingwebhookconfigurations", WebhookConfiguration)
	if mutatingServed {
		w.watch(ctx, "mutatingadmissionpolicies", "")
		w.watch(ctx, "mutatingadmissionpolicybindings", "")
	}
}

// watch watches all objects of a resource, or that of a name.
func (w *watches) watch(ctx context.Context, resource, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started[resource] != nil {
		return
	}
	informer := metadatainformer.NewFilteredMetadataInformer(w.client, admissionv1.SchemeGroupVersion.WithResource(resource), "", 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}).Informer()
	changed := func(any) { w.tell() }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) }, DeleteFunc: changed})
	if err == nil {
		err = informer.SetTransform(func(object any) (any, error) {
			if m, is := object.(*metav1.PartialObjectMetadata); is {
				m.ManagedFields, m.Annotations = nil, nil
			}
			return object, nil
		})
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			klog.FromContext(ctx).V(2).Info("A watch of what is installed has failed: it is read every few seconds instead", "resource", resource, "why", err.Error())
			w.mu.Lock()
			defer w.mu.Unlock()
			if time.Since(w.failed) >= doubt { // else it is known that they tell nothing
				w.tell()
			}
			w.failed = time.Now()
		})
	}
	if err != nil { // an informer that has been started
		klog.FromContext(ctx).Error(err, "Could not begin to watch", "resource", resource)
		return
	}
	w.started[resource] = informer
	go informer.RunWithContext(ctx)
}

// trusted reports whether all of them tell of each change.
func (w *watches) trusted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, informer := range w.started {
		if !informer.HasSynced() {
			return false
		}
	}
	return len(w.started) > 0 && time.Since(w.failed) >= doubt
}
