//go:build around

package hold

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestFence: the webhook may write of its configuration what API servers need to reach it, and nothing else.
func TestFence(t *testing.T) {
	w := serve(t)
	config := rest.CopyConfig(cp.RESTConfig())
	config.Impersonate.UserName = "system:serviceaccount:" + controller.Namespace + ":inplace-rollout-webhook"
	own := must.Get(kubernetes.NewForConfig(config))(t)
	entry := `{"webhooks":[{"name":"inplace-rollout-hold.inplace-rollout.io",%s}]}`
	for name, tt := range map[string]struct {
		patch string
		may   bool
	}{
		"the CA":             {patch: fmt.Sprintf(entry, `"clientConfig":{"caBundle":null}`), may: true},
		"the path":           {patch: fmt.Sprintf(entry, fmt.Sprintf(`"clientConfig":{"url":"https://%s/mutate/another"}`, w.Address())), may: true},
		"nothing":            {patch: `{}`, may: true},
		"another host":       {patch: fmt.Sprintf(entry, `"clientConfig":{"url":"https://example.com/mutate"}`)},
		"another Service":    {patch: fmt.Sprintf(entry, `"clientConfig":{"url":null,"service":{"name":"mine","namespace":"default"}}`)},
		"rules":              {patch: fmt.Sprintf(entry, `"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"],"operations":["*"]}]`)},
		"the failure policy": {patch: fmt.Sprintf(entry, `"failurePolicy":"Ignore"`)},
		"a selector":         {patch: fmt.Sprintf(entry, `"objectSelector":{"matchLabels":{"inplace-rollout.io/enabled":null}}`)},
		"conditions":         {patch: fmt.Sprintf(entry, `"matchConditions":null`)},
		"one entry less":     {patch: `{"webhooks":[{"$patch":"delete","name":"inplace-rollout-hold.inplace-rollout.io"}]}`},
		"one entry more":     {patch: `{"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://example.com"},"sideEffects":"None","admissionReviewVersions":["v1"]}]}`},
		"an annotation":      {patch: `{"metadata":{"annotations":{"a":"b"}}}`},
		"a finalizer":        {patch: `{"metadata":{"finalizers":["example.com/f"]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func() error {
				_, err := own.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), "inplace-rollout", types.StrategicMergePatchType, []byte(tt.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}
			if tt.may {
				if err := ask(); err != nil {
					t.Error(err)
				}
				return
			}
			// API servers apply a policy a second after they have accepted it.
			eventually(t, "it is refused", func() (bool, error) {
				err := ask()
				return apierrors.IsForbidden(err), nil
			})
		})
	}
}
