package simulated

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
)

// ServePods makes client the API server for the pods: it lists them, and writes them as the controller asks for.
func (c *Cluster) ServePods(client *fake.Clientset) {
	client.AddReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		these := action.(clienttesting.ListAction).GetListRestrictions().Fields
		if these.Empty() {
			c.Looks(deploy.User, "pods")
		}
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(c.RV)}}
		for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
			if pod := c.Pods[name]; these.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName}) {
				list.Items = append(list.Items, *pod.DeepCopy())
			}
		}
		return true, list, nil
	})
	c.Serve(client, "patch", "pods", func(action clienttesting.Action) (runtime.Object, error) {
		return c.patchPod(action.(clienttesting.PatchAction))
	})
	c.Serve(client, "delete", "pods", func(action clienttesting.Action) (runtime.Object, error) {
		request := action.(clienttesting.DeleteActionImpl)
		return nil, c.deleteVersion(request.Name, &request.DeleteOptions)
	})
	c.Serve(client, "create", "pods", func(action clienttesting.Action) (runtime.Object, error) {
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if c.Evictions != nil {
			if err := c.Evictions(); err != nil {
				return nil, err
			}
		}
		defer c.through("eviction")()
		return nil, c.deleteVersion(eviction.Name, eviction.DeleteOptions)
	})
}

// through has pods be written through a subresource until what is returned is called.
func (c *Cluster) through(subresource string) (until func()) {
	c.subresource = subresource
	return func() { c.subresource = "" }
}

// Serve has the writes of a controller carried out.
func (c *Cluster) Serve(client *fake.Clientset, verb, resource string, carryOut func(clienttesting.Action) (runtime.Object, error)) {
	client.AddReactor(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		written, err := Request(&c.Requests, func() { c.Requested(action) }, func() (runtime.Object, error) { return carryOut(action) })
		return true, written, err
	})
}

func (c *Cluster) patchPod(request clienttesting.PatchAction) (runtime.Object, error) {
	old := c.Pods[request.GetName()]
	if old == nil {
		return nil, noPod(request.GetName())
	}
	pod, err := Patched(old, &corev1.Pod{}, request.GetPatch())
	if err != nil {
		return nil, err
	}
	if request.GetSubresource() == "resize" {
		if err := c.Resize(old, pod); err != nil {
			return nil, err
		}
	} else {
		c.Relabel(pod)
	}
	defer c.through(request.GetSubresource())()
	c.WritePod(pod)
	return pod, nil
}

func (c *Cluster) deleteVersion(name string, options *metav1.DeleteOptions) error {
	pod := c.Pods[name]
	if pod == nil {
		return noPod(name)
	}
	p := options.Preconditions
	if err := Meets(pod, ptr.Deref(p.UID, ""), ptr.Deref(p.ResourceVersion, "")); err != nil {
		return err
	}
	c.DeletePod(name)
	return nil
}

var podsResource = schema.GroupResource{Resource: "pods"}

func noPod(name string) error { return apierrors.NewNotFound(podsResource, name) }

// Forbidden is the error of a resize that admission does not let through.
func Forbidden(pod, message string, causes ...metav1.StatusCause) error {
	err := apierrors.NewForbidden(podsResource, pod, errors.New(message))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, causes...)
	return err
}

// TooSmall is the error of a resize for which the node of the pod is too small.
func TooSmall(pod string) error {
	return Forbidden(pod, "node didn't have enough allocatable resources", metav1.StatusCause{Type: "NodeCapacity"})
}

// UIDs of the pods, by their names.
func (c *Cluster) UIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range c.Pods {
		uids[name] = pod.UID
	}
	return uids
}

// ServeWorkload makes client the API server for the patches of the workload that there is: of
// its status, which is stored, and of the rest, which is written.
func ServeWorkload[W Object](c *Cluster, client *fake.Clientset, resource string, now func() (W, W), store, write func(W)) {
	c.Serve(client, "patch", resource, func(action clienttesting.Action) (runtime.Object, error) {
		request := action.(clienttesting.PatchAction)
		old, empty := now()
		written, err := Patched(old, empty, request.GetPatch())
		if err != nil {
			return nil, err
		}
		if request.GetSubresource() == "status" {
			store(written)
		} else {
			write(written)
		}
		return written, nil
	})
}
