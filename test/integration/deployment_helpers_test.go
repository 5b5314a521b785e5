//go:build integration

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deployment is a Deployment in a sandbox.
type deployment struct{ *sandbox[*appsv1.Deployment] }

// newDeployment creates the Deployment and waits until it is available.
func newDeployment(t *testing.T, o options) *deployment {
	t.Helper()
	d := createDeployment(t, o)
	d.waitRolledOut()
	return d
}

func createDeployment(t *testing.T, o options) *deployment {
	t.Helper()
	o.Kind = "Deployment"
	return &deployment{newSandbox(t, o, func(namespace string) getter[*appsv1.Deployment] {
		return client.AppsV1().Deployments(namespace)
	})}
}

// rolledOut tells whether the Deployment controller has nothing left to do.
func rolledOut(d *appsv1.Deployment) bool {
	s, want := d.Status, *d.Spec.Replicas
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}

func (d *deployment) waitRolledOut() {
	d.t.Helper()
	d.waitFor("all pods to be of the newest ReplicaSet and available", rolledOut)
}

// waitObserved waits until the Deployment controller has seen the newest generation.
func (d *deployment) waitObserved() {
	d.t.Helper()
	d.waitFor("the Deployment controller to observe the newest generation", func(o *appsv1.Deployment) bool {
		return o.Status.ObservedGeneration == o.Generation
	})
}

// replicaSets in the order of their creation.
func (d *deployment) replicaSets() []appsv1.ReplicaSet {
	d.t.Helper()
	list, err := client.AppsV1().ReplicaSets(d.namespace).List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		d.t.Fatal(err)
	}
	return list.Items
}
