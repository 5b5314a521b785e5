// Package mutationcache watches what belongs to one workload while its rollout is in flight: its pods, its ReplicaSets.
// As with client-go's MutationCache, what we have written is seen at once, before the watch brings it.
package mutationcache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Cache is a cache of objects of one workload, from the start of a rollout to its end. So
// the cost grows with the rollouts in flight, and not with the cluster.
type Cache[T Object] struct {
	strip    Strip[T]
	informer cache.SharedIndexInformer
	changed  func()
	told     func() bool // whether roster has the first list

	mu      sync.Mutex
	roster  []T                           // as watched, by name
	unread  map[cache.ObjectName]error    // why others that are watched cannot be read
	written map[cache.ObjectName]T        // by us, as long as the watch has not brought it
	writing map[cache.ObjectName][]string // versions that the watch has brought while a write was under way
	echoes  map[cache.ObjectName]string   // versions that Write has written, and the watch has not brought
	failed  error                         // why the last list or watch has ended
}

// Object is what can be watched.
type Object interface {
	metav1.Object
	runtime.Object
}

// Strip returns what is kept in memory of an object: without what nothing reads of it. It takes
// objects as they come from the API server, and also what it has returned. It fails if obj is
// something else.
type Strip[T any] func(obj any) (T, error)

// Transform strips what an informer watches, before it is kept. What cannot be read is kept as
// it is, so that whoever needs it can say why.
func (strip Strip[T]) Transform(obj any) (any, error) {
	if stripped, err := strip(obj); err == nil {
		return stripped, nil
	}
	return obj, nil
}

// Newest has an informer's first list be as new as the moment it is asked for: o are its options. A stream of
// the first objects (KEP-3157), which informers ask for, is; a list, where the API server does not stream,
// comes from its cache, and may be older than our last writes. Whoever takes over would then not see what
// has been begun, and begin it again with another pod.
func Newest(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// New runs the informer until ctx is done. The watch shows the informer's objects, stripped.
// It calls changed after every change but our own (see [Cache.Write]), and once when the first list is complete.
func New[T Object](ctx context.Context, informer cache.SharedIndexInformer, strip Strip[T], changed func()) (*Cache[T], error) {
	if err := informer.SetTransform(strip.Transform); err != nil {
		return nil, fmt.Errorf("stripping what is watched: %w", err)
	}
	c := &Cache[T]{
		strip: strip, informer: informer, changed: changed, unread: map[cache.ObjectName]error{},
		written: map[cache.ObjectName]T{}, writing: map[cache.ObjectName][]string{}, echoes: map[cache.ObjectName]string{},
	}
	if err := informer.SetWatchErrorHandlerWithContext(c.fail); err != nil {
		return nil, fmt.Errorf("handling failures: %w", err)
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			c.show(object)
			changed()
		},
		UpdateFunc: func(_, object any) {
			c.show(object)
			if o, is := object.(T); !is || !c.ours(o) {
				changed()
			}
		},
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				c.forget(name)
			}
			changed()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("handling events: %w", err)
	}
	c.told = handler.HasSynced
	go informer.RunWithContext(ctx)
	go func() {
		select { // WaitForCacheSync would look every 100 ms
		case <-ctx.Done():
		case <-handler.HasSyncedChecker().Done():
			changed()
		}
	}()
	return c, nil
}

// fail notes why a list or a watch has ended, and leaves out the address: a selector in it may be long.
func (c *Cache[T]) fail(ctx context.Context, r *cache.Reflector, err error) {
	if in := (*url.Error)(nil); errors.As(err, &in) {
		err = fmt.Errorf("failed to watch: %w", in.Err)
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// HasSynced reports whether the first list is complete.
func (c *Cache[T]) HasSynced() bool { return c.told() }

// Err returns why there is no complete list yet; nil if there is one, or nothing has failed.
func (c *Cache[T]) Err() error {
	if c.HasSynced() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// List returns the objects by name. They are shared: do not change them.
func (c *Cache[T]) List() ([]T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.unread {
		return nil, err
	}
	list := slices.Clone(c.roster)
	for name, written := range c.written {
		if i, is := find(list, name); is && c.lacks(name, list[i]) {
			list[i] = written
		}
	}
	return list, nil
}

// Reaches reports whether what an informer keeps is no older than a version. Then an object in there that is older is all that there is,
// whatever was written or seen: etcd was restored from a backup. False where that is not known.
func Reaches(store cache.Store, version string) bool {
	order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), version)
	return err == nil && order >= 0
}

// lost reports whether a version that we have written is gone with a restored etcd. The informer's store is asked, and not the roster, which
// follows it: an object that a new list brings as it was before is told to nobody.
func (c *Cache[T]) lost(name cache.ObjectName, version string) bool {
	if !Reaches(c.informer.GetStore(), version) {
		return false
	}
	kept, _, _ := c.informer.GetStore().GetByKey(name.String()) // never fails
	o, is := kept.(metav1.Object)
	if !is {
		return false // it is deleted, as the roster is about to be told
	}
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), version)
	return err == nil && order < 0
}

// lacks reports whether the object, as the watch has brought it, lacks what we have written. What it has is forgotten: where the
// store is restored from a backup, and an older object comes back, the store is right.
func (c *Cache[T]) lacks(name cache.ObjectName, brought T) bool {
	written, is := c.written[name]
	if !is {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(written.GetResourceVersion(), brought.GetResourceVersion())
	lacks := err == nil && order > 0 && !c.lost(name, written.GetResourceVersion())
	if !lacks {
		delete(c.written, name)
	}
	return lacks
}

// find returns where an object of that name is in a list by name, or belongs.
func find[T Object](list []T, name cache.ObjectName) (at int, is bool) {
	return slices.BinarySearchFunc(list, name, func(o T, name cache.ObjectName) int {
		return cmp.Or(cmp.Compare(o.GetNamespace(), name.Namespace), cmp.Compare(o.GetName(), name.Name))
	})
}

// show puts what the watch has brought into the roster.
func (c *Cache[T]) show(object any) {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return // it is no object
	}
	o, stripped := object.(T)
	if !stripped {
		o, err = c.strip(object)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unread[name] = err
		return
	}
	delete(c.unread, name)
	c.lacks(name, o)
	if at, is := find(c.roster, name); is {
		c.roster[at] = o
	} else {
		c.roster = slices.Insert(c.roster, at, o)
	}
}

// Write makes one write of an object, and makes what is stored then visible to List. When the watch brings that very version,
// nothing has changed: whoever has written it knows it. Every other version counts, also one that the watch brings while the
// write is under way. There is one write of an object at a time.
func (c *Cache[T]) Write(object T, write func() (T, error)) (T, error) {
	name := cache.MetaObjectToName(object)
	c.mu.Lock()
	c.writing[name] = []string{}
	c.mu.Unlock()
	written, err := write()
	if err == nil {
		c.Wrote(written)
	}
	c.mu.Lock()
	brought := c.writing[name]
	delete(c.writing, name)
	news := err != nil && len(brought) > 0
	if err == nil {
		version := written.GetResourceVersion()
		if !slices.Contains(brought, version) {
			c.echoes[name] = version
		}
		news = slices.ContainsFunc(brought, func(v string) bool { return v != version })
	}
	c.mu.Unlock()
	if news {
		c.changed()
	}
	return written, err
}

// ours reports whether the watch has brought what Write has written, or may have: then Write finds out.
func (c *Cache[T]) ours(object T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, version := cache.MetaObjectToName(object), object.GetResourceVersion()
	if brought, is := c.writing[name]; is {
		c.writing[name] = append(brought, version)
		return true
	}
	if c.echoes[name] != version {
		return false
	}
	delete(c.echoes, name)
	return true
}

// forget forgets an object that is gone.
func (c *Cache[T]) forget(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.echoes, name)
	delete(c.unread, name)
	if at, is := find(c.roster, name); is {
		c.roster = slices.Delete(c.roster, at, at+1)
	}
}

// Wrote makes an object that we have just written visible to List. One that is not there, or no
// more, stays so.
func (c *Cache[T]) Wrote(object T) {
	if stripped, err := c.strip(object); err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		name := cache.MetaObjectToName(stripped)
		c.written[name] = stripped
		if at, is := find(c.roster, name); is {
			c.lacks(name, c.roster[at])
		}
	}
}
