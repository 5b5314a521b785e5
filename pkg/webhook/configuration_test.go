package webhook

import (
	"flag"
	"os"
	"strings"
	"testing"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

var write = flag.Bool("update", false, "write deploy/overlays/webhook/configuration.yaml")

const configurationFile = "../../deploy/overlays/webhook/configuration.yaml"

const configurationComment = `# One entry for each MutatingAdmissionPolicy of deploy/cluster. Do not edit:
# go test ./pkg/webhook -update
#
# The webhook fills in the CAs itself.
`

// The configuration says of each policy what the API server has to know of it.
func TestConfiguration(t *testing.T) {
	c := registrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: prerequisite.WebhookConfiguration},
		Webhooks:   prerequisite.Webhooks(),
	}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.ClientConfig.Service = &registrationv1.ServiceReference{
			Namespace: "inplace-rollout", Name: "inplace-rollout-webhook", Path: ptr.To(Path + strings.TrimSuffix(w.Name, ".inplace-rollout.io")),
		}
	}
	encoded, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	want := configurationComment + string(encoded)
	if *write {
		if err := os.WriteFile(configurationFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("deploy/overlays/webhook/configuration.yaml is not what the policies of deploy/cluster make: go test ./pkg/webhook -update\nwant:\n%s", want)
	}
}
