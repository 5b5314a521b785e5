package pods_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/pods"
)

// Pods are listed page by page; or only the first of them.
func TestList(t *testing.T) {
	client := fake.NewClientset()
	next := map[string]string{"": "1", "1": "2"}
	var asked []string
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		asked = append(asked, fmt.Sprintf("%d from %q of %q", options.Limit, options.Continue, options.ResourceVersion))
		return true, &corev1.PodList{
			ListMeta: metav1.ListMeta{Continue: next[options.Continue]}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-" + options.Continue}}},
		}, nil
	})
	all, err := pods.List(t.Context(), client.CoreV1(), "default", metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(all) != 3 || all[2].Name != "web-2" {
		t.Errorf("listed are %v: %v", all, err)
	}
	first, err := pods.First(t.Context(), client.CoreV1(), 7, metav1.ListOptions{})
	if err != nil || len(first) != 1 {
		t.Errorf("the first are %v: %v", first, err)
	}
	if want := []string{`500 from "" of "0"`, `500 from "1" of ""`, `500 from "2" of ""`, `7 from "" of ""`}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// TestNewest: where the API server does not stream the first pods, as this one does not, they are listed as they are now, and not
// as a cache has them.
func TestNewest(t *testing.T) {
	client, asked := fake.NewClientset(), make(chan metav1.ListOptions, 1)
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked <- a.(clienttesting.ListActionImpl).ListOptions
		return false, nil, nil
	})
	go pods.NewInformer(client, "default", "app=web").RunWithContext(t.Context())
	if o := <-asked; o.ResourceVersion != "" || o.LabelSelector != "app=web" {
		t.Errorf("listed is with %v", o)
	}
}
