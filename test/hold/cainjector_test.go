//go:build around

package hold

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// TestCAOfCertManager: where cert-manager is to write the CA, and has not, or has written another one, the controller says whose
// work that is, and does not tell the secret part of the path. The webhook itself leaves it alone.
func TestCAOfCertManager(t *testing.T) {
	kubeconfig, err := cp.ServiceAccountKubeconfig(t.Context(), controller.Namespace, "inplace-rollout", "")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &prerequisite.Cluster{}
	if cluster.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	made := func() (certificate, key []byte) {
		t.Helper()
		if certificate, key, err = cert.GenerateSelfSignedCertKey("inplace-rollout-webhook.inplace-rollout.svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil); err != nil {
			t.Fatal(err)
		}
		return certificate, key
	}
	certificate, key := made()
	foreign, _ := made()
	files := map[string][]byte{"tls.crt": certificate, "tls.key": key}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		webhook.Replica(i).Kill()
		if err := webhook.Start(t.Context(), i, "--tls-cert-file="+filepath.Join(dir, "tls.crt"), "--tls-private-key-file="+filepath.Join(dir, "tls.key")); err != nil {
			t.Fatal(err)
		}
	}
	inject := func(from string, bundle []byte) {
		t.Helper()
		eventually(t, "the CA is written", func() (bool, error) {
			configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
			c, err := configurations.Get(t.Context(), prerequisite.WebhookConfiguration, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			delete(c.Annotations, "cert-manager.io/inject-ca-from")
			if from != "" {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, "cert-manager.io/inject-ca-from", from)
			}
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = bundle
			}
			_, err = configurations.Update(t.Context(), c, metav1.UpdateOptions{})
			return err == nil, err
		})
	}
	defer serve(t)
	defer inject("", nil)
	for i := range 2 {
		if err := webhook.Replica(i).WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const from = "inplace-rollout/inplace-rollout-webhook"
	const look = "cert-manager's cainjector takes it from the Certificate " + from + ", which the annotation cert-manager.io/inject-ca-from names: " +
		"check that the Deployment cert-manager-cainjector runs, and that this Certificate is Ready"
	for _, tt := range []struct {
		about          string
		bundle         []byte
		missing, holds string
	}{
		{"it was never written", nil, "inplace-rollout-hold-statefulsets.inplace-rollout.io", "does not trust the certificate"},
		{"it is another one", foreign, "", "does not trust the certificate of webhook inplace-rollout-hold-statefulsets.inplace-rollout.io"},
		{"it is there", certificate, "", ""},
	} {
		inject(from, tt.bundle)
		eventually(t, tt.about, func() (bool, error) {
			_, err := cluster.Check(t.Context())
			if want := tt.missing != ""; says(err, "caBundle") != want || says(err, tt.missing) != want || says(err, look) != want || (err != nil) != want {
				return false, fmt.Errorf("missing is: %w, want %q", err, tt.missing)
			}
			holding := cluster.Holding(t.Context(), prerequisite.Webhook).Broken["StatefulSet"]
			if want := tt.holds != ""; says(holding, tt.holds) != want || says(holding, look) != want || says(holding, `/mutate/inplace-rollout-hold-statefulsets.inplace-rollout.io/…`) != want || (holding != nil) != want {
				return false, fmt.Errorf("edits are not held: %w, want %q", holding, tt.holds)
			}
			return true, nil
		})
	}
}

// says reports whether an error has a text, which it never has of an empty one.
func says(err error, text string) bool {
	return err != nil && text != "" && strings.Contains(err.Error(), text)
}
