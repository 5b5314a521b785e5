package estimator

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// Whether the room that nodes have bounds what is estimated for a pod. Where nodes are added for
// pods that are Pending, it is not to: without a request the pod would find room on a full node,
// and no other would come.
const (
	RoomAuto   = "auto" // unless a node autoscaler is in sight
	RoomAlways = api.RoomAlways
	RoomNever  = api.RoomNever
)

// RoomBounds are all of them.
var RoomBounds = []string{RoomAuto, RoomAlways, RoomNever}

// autoscalerInterval is how often it is looked whether there is a node autoscaler. Tests want less.
var autoscalerInterval = time.Minute

// hasAutoscaler reports whether a node autoscaler is in sight: the status of the cluster autoscaler, or
// the API of Karpenter.
func hasAutoscaler(ctx context.Context, client kubernetes.Interface) (bool, error) {
	groups, err := client.Discovery().ServerGroups()
	if err != nil {
		return false, fmt.Errorf("looking for Karpenter: %w", err)
	}
	if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "karpenter.sh" }) {
		return true, nil
	}
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "cluster-autoscaler-status", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("looking for the cluster autoscaler: %w", err)
	}
	return err == nil, nil
}

// lookForAutoscaler has all tables brought up to date if a node autoscaler has come or gone. What cannot
// be looked at is as it was before.
func (e *Estimator) lookForAutoscaler(ctx context.Context) {
	if e.options.RoomBound != RoomAuto {
		return
	}
	there, err := hasAutoscaler(ctx, e.client)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not look for node autoscalers", "again", autoscalerInterval.String())
		}
		return
	}
	e.mu.Lock()
	same := there == e.autoscaled
	e.autoscaled = there
	e.mu.Unlock()
	if !same {
		klog.FromContext(ctx).Info("Looked for a node autoscaler. If there is one, pods get estimates that no node has room for", "inSight", there)
		e.enqueueAll()
	}
}

// boundByRoom reports whether estimates are bound by the room that nodes have, in a namespace.
func (e *Estimator) boundByRoom(namespace string) bool {
	bound := e.watched.roomBound(namespace)
	if bound != RoomAlways && bound != RoomNever {
		bound = e.options.RoomBound
	}
	if bound != RoomAuto {
		return bound != RoomNever
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.autoscaled
}
