package estimator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// tableState is what is known of the table of a namespace besides what is stored.
type tableState struct {
	book    *book
	images  map[string]string // that the book has for it
	leftOut int
	// What was written last, when, and of which resource version it is since.
	wanted  map[string]string
	written time.Time
	version string
}

// work looks at one namespace after the other.
func (e *Estimator) work(ctx context.Context) {
	for {
		namespace, shutdown := e.queue.Get()
		if shutdown {
			return
		}
		e.options.Watchdog.Progress(publishing + namespace)
		err := e.publish(ctx, namespace)
		e.options.Watchdog.Done(publishing + namespace)
		switch {
		case err == nil:
			e.queue.Forget(namespace)
		case ctx.Err() == nil:
			// What has changed meanwhile, or is about to go, is no failure: it comes again.
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "Could not publish the estimates", "namespace", namespace)
				e.metrics.errors.Inc()
			}
			e.queue.AddRateLimited(namespace)
		}
		e.queue.Done(namespace)
	}
}

// publish brings the table of a namespace up to date: it is there as long as the namespace is
// opted in.
func (e *Estimator) publish(ctx context.Context, namespace string) error {
	stored := e.stored(namespace)
	if !e.watched.optedIn(namespace) {
		e.forget(namespace)
		return e.withdraw(ctx, stored)
	}
	if stored != nil && !ours(stored) {
		klog.FromContext(ctx).Info("Did not publish the estimates: a ConfigMap of this name was not created by the estimator", "configmap", klog.KObj(stored))
		e.recorder.Once(stored, corev1.EventTypeWarning, reasonNotOurs,
			"the estimates for this namespace are not published, because this ConfigMap has their name and was not created by the estimator. Delete or rename it")
		return nil
	}
	state := e.state(namespace)
	data := e.data(namespace, stored, state)
	if data == nil || stored != nil && state.isIn(stored, data) {
		return nil
	}
	pause := e.options.Publish
	if stored != nil && state.differsInRoom(stored, data) {
		pause = max(pause, e.options.RoomInterval)
	}
	if soon := state.written.Add(pause).Sub(e.clock.Now()); soon > 0 {
		e.queue.AddAfter(namespace, soon)
		return nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting to write: %w", err)
	}
	written, err := e.apply(ctx, namespace, stored, data)
	if err != nil {
		return err
	}
	state.wanted, state.written, state.version = data, e.clock.Now(), written.ResourceVersion
	klog.FromContext(ctx).V(3).Info("Published the estimates", "namespace", namespace, "entries", len(data), "leftOut", state.leftOut)
	return nil
}

// isIn reports whether the stored table has what it is to have, and the label that admission finds
// it by. What others have added stays there, so what we have written once counts, too.
func (s *tableState) isIn(stored *corev1.ConfigMap, data map[string]string) bool {
	return stored.Labels[api.ManagedByLabel] == api.ManagedBy &&
		(maps.Equal(data, stored.Data) || stored.ResourceVersion == s.version && maps.Equal(data, s.wanted))
}

// differsInRoom reports whether nothing but the room that nodes have is to be written.
func (s *tableState) differsInRoom(stored *corev1.ConfigMap, data map[string]string) bool {
	has := stored.Data
	if stored.ResourceVersion == s.version {
		has = s.wanted
	}
	return stored.Labels[api.ManagedByLabel] == api.ManagedBy && maps.Equal(withoutRoom(has), withoutRoom(data))
}

func withoutRoom(data map[string]string) map[string]string {
	rest := maps.Clone(data)
	maps.DeleteFunc(rest, func(key, _ string) bool { return strings.HasPrefix(key, roomEntry) })
	return rest
}

// stored is the ConfigMap that has the name of the table, or nil.
func (e *Estimator) stored(namespace string) *corev1.ConfigMap {
	for _, c := range of[*corev1.ConfigMap](e.watched.tables, namespace) {
		if c.Name == api.EstimatesName {
			return c
		}
	}
	return nil
}

// ours reports whether we have made the ConfigMap, whatever others have changed of it since.
func ours(c *corev1.ConfigMap) bool { return slices.ContainsFunc(c.ManagedFields, byUs) }

// others reports whether somebody else has written some of the ConfigMap.
func others(c *corev1.ConfigMap) bool {
	return slices.ContainsFunc(c.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return !byUs(entry) })
}

func byUs(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == api.EstimatorFieldManager && entry.Operation == metav1.ManagedFieldsOperationApply
}

// state is what is known of a namespace's table. One goroutine has it at a time: the queue gives
// a namespace to one only.
func (e *Estimator) state(namespace string) *tableState {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tables[namespace] == nil {
		e.tables[namespace] = &tableState{}
	}
	return e.tables[namespace]
}

func (e *Estimator) forget(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.tables, namespace)
}

// data is what the table of a namespace is to have; nil if it cannot be said. Until the history
// is complete, estimates stay what they are. What the cluster and the namespace have room for,
// and what they allow, is always that of now.
func (e *Estimator) data(namespace string, stored *corev1.ConfigMap, state *tableState) map[string]string {
	b, room := e.current()
	var before map[string]string
	if stored != nil {
		before = stored.Data
	}
	images := before
	switch {
	case b == nil && stored == nil:
		return nil
	case b != nil && state.book != b:
		state.book = b
		state.images, state.leftOut = b.table(namespace)
	}
	switch {
	case b == nil:
	case b.partial:
		images = beside(before, state.images)
	default:
		images = state.images
	}
	ranges := of[*corev1.LimitRange](e.watched.limits, namespace)
	data := clamped(images, estimate.NewBounds(ranges, e.watched.nodes.List()))
	for key, value := range data {
		data[key] = settled(key, before[key], value)
	}
	if e.boundByRoom(namespace) {
		maps.Copy(data, roomEntries(before, room))
	}
	maps.Copy(data, entries(quotaEntry, quotaLeft(of[*corev1.ResourceQuota](e.watched.quotas, namespace))))
	maps.Copy(data, entries(podMaxEntry, podMax(ranges)))
	maps.Copy(data, entries(podMinEntry, podMin(ranges)))
	maps.Copy(data, entries(ratioEntry, ratios(ranges)))
	if e.options.Roles {
		data[estimate.RolesEntry] = "container"
	}
	if e.watched.mode(namespace) == api.InitialResourcesAnnotate {
		data[estimate.AnnotateEntry] = "true"
	}
	return data
}

// apply writes a table in place of the stored one. No rights but those to this name are needed
// for it, as for a request that creates.
func (e *Estimator) apply(ctx context.Context, namespace string, stored *corev1.ConfigMap, data map[string]string) (*corev1.ConfigMap, error) {
	table := applycorev1.ConfigMap(api.EstimatesName, namespace).WithLabels(map[string]string{api.ManagedByLabel: api.ManagedBy}).WithData(data)
	if stored != nil {
		table.WithUID(stored.UID).WithResourceVersion(stored.ResourceVersion)
	}
	// A value that somebody else has changed is set back.
	written, err := e.client.CoreV1().ConfigMaps(namespace).Apply(ctx, table, applyOptions)
	if err != nil {
		return nil, fmt.Errorf("publishing the estimates for namespace %s: %w", namespace, err)
	}
	if stored != nil || !others(written) {
		return written, nil
	}
	return written, e.takeOut(ctx, written) // somebody was faster, and we had not seen it
}

// takeOut takes out of a ConfigMap what we have written. What others have written stays.
func (e *Estimator) takeOut(ctx context.Context, of *corev1.ConfigMap) error {
	nothing := applycorev1.ConfigMap(of.Name, of.Namespace).WithUID(of.UID)
	if _, err := e.client.CoreV1().ConfigMaps(of.Namespace).Apply(ctx, nothing, applyOptions); err != nil {
		return fmt.Errorf("taking the estimates out of a ConfigMap of namespace %s: %w", of.Namespace, err)
	}
	return nil
}

var applyOptions = metav1.ApplyOptions{FieldManager: api.EstimatorFieldManager, Force: true}

// withdraw removes a table that is ours. If somebody else has written data into it, that stays: the
// ConfigMap may be theirs, and we may have died before we had taken out what was ours.
func (e *Estimator) withdraw(ctx context.Context, stored *corev1.ConfigMap) error {
	if stored == nil || !ours(stored) || stored.DeletionTimestamp != nil {
		return nil
	}
	if err := e.writes.Wait(ctx); err != nil {
		return fmt.Errorf("waiting to write: %w", err)
	}
	if others(stored) {
		return e.takeOut(ctx, stored)
	}
	err := e.client.CoreV1().ConfigMaps(stored.Namespace).Delete(ctx, stored.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the estimates for namespace %s: %w", stored.Namespace, err)
	}
	return nil
}
