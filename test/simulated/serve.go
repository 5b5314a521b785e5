package simulated

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
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
	client.AddReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		is, _ := now()
		return true, is, nil
	})
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

// errUnversioned is the error of a write that may undo what others have made of a pod meanwhile.
var errUnversioned = errors.New("the write of a pod does not say which version of it was looked at")

// errFenced is the error of a condition that comes after the opt-out: see fence-workloads.yaml in deploy/cluster.
var errFenced = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("this ServiceAccount can write only workloads with the label"))

// Patched is old after a merge patch with its preconditions, written into result, which is empty.
// Each patch of a pod must have its version as one, and a workload that is not opted in gets no condition.
func Patched[T metav1.Object](old, result T, patch []byte) (T, error) {
	var carried struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &carried); err != nil {
		return result, err
	}
	_, pod := any(old).(*corev1.Pod)
	if pod && carried.Metadata.ResourceVersion == "" {
		return result, errUnversioned
	}
	if err := Meets(old, carried.Metadata.UID, carried.Metadata.ResourceVersion); err != nil {
		return result, err
	}
	if err := merge(old, result, patch); err != nil {
		return result, err
	}
	if !pod && old.GetLabels()[api.EnabledLabel] != "true" {
		if encoded, err := json.Marshal(result); err != nil || strings.Contains(string(encoded), `"type":"inplace-rollout.io/`) {
			return result, cmp.Or(err, error(errFenced))
		}
	}
	if len(carried.Metadata.OwnerReferences) > 0 { // a strategic merge would keep the old ones
		result.SetOwnerReferences(carried.Metadata.OwnerReferences)
	}
	return result, nil
}

// merge writes old after a merge patch into result, which is empty. For maps of strings and null in
// them, both kinds of merge patch mean the same.
func merge[T metav1.Object](old, result T, patch []byte) error {
	original, err := json.Marshal(old)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, result)
	if err != nil {
		return err
	}
	return json.Unmarshal(merged, result)
}

// Meets is a conflict unless the object is this version of it; empty means any.
func Meets(object metav1.Object, uid types.UID, version string) error {
	if uid != "" && uid != object.GetUID() || version != "" && version != object.GetResourceVersion() {
		return Conflict(object)
	}
	return nil
}

// Conflict is the error of a write that came too late.
func Conflict(object metav1.Object) error {
	return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("the object has been modified"))
}

// ErrBroken is the error of a request that did not arrive, or whose answer did not.
var ErrBroken = errors.New("the connection broke")

// Requests are the writes of a controller in one sync, any of which may be disturbed.
type Requests struct {
	// Dies is after how many writes the controller dies: no other arrives. 0 means never.
	Dies int
	// Loses is the write whose answer gets lost, counted from 1. 0 means none.
	Loses int
	// Meanwhile is what others do before the first write arrives; nil means nothing.
	Meanwhile func()

	made       int
	carriesOut bool // a write of the controller
}

// Dead reports whether the controller has died in the middle of its writes.
func (r *Requests) Dead() bool { return r.Dies > 0 && r.made > r.Dies }

// Any reports whether the controller has written anything in this sync, or tried to.
func (r *Requests) Any() bool { return r.made > 0 }

// Request has one write carried out, after check; nil checks nothing.
func Request[T any](r *Requests, check func(), carryOut func() (T, error)) (written T, err error) {
	var none T
	if r.made++; r.Dead() {
		return none, ErrBroken
	}
	if check != nil {
		check()
	}
	if happens := r.Meanwhile; happens != nil {
		r.Meanwhile = nil
		happens()
	}
	r.carriesOut = true
	written, err = carryOut()
	r.carriesOut = false
	if err == nil && r.made == r.Loses {
		return none, ErrBroken
	}
	return written, err
}
