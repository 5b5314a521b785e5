package prerequisite_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// reads counts how often the policies that hold were read.
func reads(client *fake.Clientset) int {
	return build.Count(client.Actions(), func(action clienttesting.Action) bool {
		get, is := action.(clienttesting.GetAction)
		return is && get.GetResource() == mutatingPolicies && get.GetName() == hold
	})
}

// TestGateWatches: what is installed is read when a watch tells of a change, and all the time only where watches fail.
func TestGateWatches(t *testing.T) {
	for _, tt := range []struct {
		name        string
		refused     bool
		most, fewer int // reads in idle minutes
		noticed     time.Duration
	}{
		{name: "watched", most: 5, fewer: 4, noticed: 2 * time.Second},
		{name: "without the right to", refused: true, most: 121, fewer: 117, noticed: 11 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				scheme := metadatafake.NewTestScheme()
				must.Do(t, metav1.AddMetaToScheme(scheme))
				policy := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: hold}}
				metadata := metadatafake.NewSimpleMetadataClient(scheme, policy)
				if tt.refused {
					build.Answers(metadata, "list", "mutatingadmissionpolicies", nil, apierrors.NewForbidden(mutatingPolicies.GroupResource(), "", errors.New("only get")))
				}
				server := &apiserver{asks: true, there: true}
				client := server.answering(t, complete(t))
				gate := prerequisite.NewGate()
				go gate.Watch(t.Context(), &prerequisite.Cluster{Client: client, Metadata: metadata}, 10*time.Second, func() {})
				time.Sleep(time.Minute)
				synctest.Wait()
				must.Do(t, gate.Ready())

				began, asked := reads(client), server.count()
				time.Sleep(20 * time.Minute)
				if n := reads(client) - began; n > tt.most || n < tt.fewer {
					t.Errorf("in 20 idle minutes a policy was read %d times, want %d to %d", n, tt.fewer, tt.most)
				}
				if n := server.count() - asked; n > 3*(1+4) || n < 3*3 {
					t.Errorf("in 20 idle minutes there were %d dry runs", n)
				}

				// Somebody deletes it: nothing may be touched any more.
				must.Do(t, client.Tracker().Delete(mutatingPolicies, "", hold))
				must.Do(t, metadata.Tracker().Delete(mutatingPolicies, "", hold))
				time.Sleep(tt.noticed)
				synctest.Wait()
				if gate.Err() == nil {
					t.Errorf("%v after a policy was deleted nothing is said", tt.noticed)
				}
			})
		})
	}
}
