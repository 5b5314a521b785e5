package simulated

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/inplace-rollout/inplace-rollout/deploy"
	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/policy"
	"github.com/inplace-rollout/inplace-rollout/test/invariant"
)

// Audit is the audit log of the cluster's API server, by which [invariant.Judge] judges a simulation. Besides, it knows
// when each controller has looked.
type Audit struct {
	Writes []invariant.Write

	stored map[types.UID]Object
	by     string                          // who acts, unless our controller writes
	looked map[string]map[string]time.Time // when whoever has looked last at what
}

// builtInUser is that of a controller of kube-controller-manager.
func builtInUser(name string) string { return "system:serviceaccount:kube-system:" + name }

// The built-in controllers.
var (
	StatefulSets     = builtInUser("statefulset-controller")
	DaemonSets       = builtInUser("daemon-set-controller")
	Deployments      = builtInUser("deployment-controller")
	ReplicaSets      = builtInUser("replicaset-controller")
	GarbageCollector = builtInUser("generic-garbage-collector")
)

// controllers are those of the resources that they watch.
var controllers = map[string]string{"statefulsets": StatefulSets, "daemonsets": DaemonSets}

// Operator deletes pods of sets under OnDelete.
const Operator = "an operator"

// Begins notes a workload that there is from the beginning on, and that a controller is there, or would hold.
func (c *Cluster) Begins(workload Object) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReadyUntilAnnotation: "", api.WhenAbsentAnnotation: "Hold"}}}
	c.log("patch", "serviceaccounts", "", api.HeartbeatName, account, http.StatusOK)
	c.Audit.Writes[0].ObjectRef.Namespace = "inplace-rollout"
	c.logs(workload, false)
}

// As has somebody act until what is returned is called.
func (c *Cluster) As(user string) (until func()) {
	before := c.Audit.by
	c.Audit.by = user
	return func() { c.Audit.by = before }
}

// Looks notes that somebody looks at what there is now.
func (c *Cluster) Looks(user, at string) {
	if c.Audit.looked[user] == nil {
		c.Audit.looked[user] = map[string]time.Time{}
	}
	c.Audit.looked[user][at] = c.moment()
}

// moment is now: that of the last write, if no time has passed since.
func (c *Cluster) moment() time.Time {
	return c.Clock.Now().Add(time.Duration(len(c.Audit.Writes)) * time.Microsecond)
}

// log notes a write; object is nil where the answer does not have it.
func (c *Cluster) log(verb, resource, subresource, name string, object metav1.Object, code int32) {
	user := cmp.Or(c.Audit.by, "somebody")
	if c.carriesOut {
		user = deploy.User
	}
	w := invariant.Write{Object: object}
	since := c.moment()
	for _, at := range c.Audit.looked[user] {
		if at.Before(since) {
			since = at
		}
	}
	w.Since, w.Stage, w.Verb, w.User.Username = since, auditv1.StageResponseComplete, verb, user
	w.ObjectRef = &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Name: name}
	w.StageTimestamp, w.ResponseStatus = metav1.NewMicroTime(c.moment().Add(time.Microsecond)), &metav1.Status{Code: code}
	c.Audit.Writes = append(c.Audit.Writes, w)
}

// logs notes what has become of an object.
func (c *Cluster) logs(object Object, gone bool) {
	before := c.Audit.stored[object.GetUID()]
	resource, status := resourceOf(object)
	verb, subresource := "patch", ""
	switch {
	case gone:
		c.log("delete", resource, "", object.GetName(), nil, http.StatusOK)
		delete(c.Audit.stored, object.GetUID())
		return
	case before == nil:
		verb = "create"
	case c.subresource == "eviction":
		verb, subresource = "create", c.subresource
	case object.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil:
		verb = "delete"
	case c.subresource != "":
		subresource = c.subresource
	default:
		if _, was := resourceOf(before); !equality.Semantic.DeepEqual(was, status) {
			subresource = "status"
		}
	}
	c.Audit.stored[object.GetUID()] = object
	c.log(verb, resource, subresource, object.GetName(), object, http.StatusOK)
}

// refuses notes a resize that is not carried out.
func (c *Cluster) refuses(pod *corev1.Pod, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		c.log("patch", "pods", "resize", pod.Name, nil, status.Status().Code)
	}
	return err
}

func resourceOf(object Object) (resource string, status any) {
	switch o := object.(type) {
	case *corev1.Pod:
		return "pods", o.Status
	case *appsv1.StatefulSet:
		return "statefulsets", o.Status
	case *appsv1.DaemonSet:
		return "daemonsets", o.Status
	case *appsv1.Deployment:
		return "deployments", o.Status
	case *appsv1.ReplicaSet:
		return "replicasets", o.Status
	default:
		panic(o)
	}
}

// Made notes that the built-in controller has made a revision.
func (c *Cluster) Made(r *appsv1.ControllerRevision) {
	c.log("create", "controllerrevisions", "", r.Name, r, http.StatusOK)
}

// Changes notes that somebody has created, updated or deleted a node.
func (c *Cluster) Changes(verb string, node *corev1.Node) {
	c.log(verb, "nodes", "", node.Name, node, http.StatusOK)
}

// Verdict fails where a promise has been broken.
func (d *Driver) Verdict(defaults policy.Defaults) {
	violations := invariant.Judge(d.cluster.Audit.Writes, invariant.Options{
		Controllers: []string{deploy.User}, Operators: Operator, Misreporting: d.cluster.misreporting, DeferredTimeout: defaults.DeferredTimeout, ErrorTimeout: defaults.ErrorTimeout,
	})
	if len(violations) > 0 {
		d.t.Fatal(violations)
	}
}
