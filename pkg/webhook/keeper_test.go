package webhook

import (
	"bytes"
	"context"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

const host = "inplace-rollout-webhook.inplace-rollout.svc"

func newTestKeeper(t *testing.T, client *fake.Clientset) *Keeper {
	t.Helper()
	return NewKeeper(client, "inplace-rollout", "inplace-rollout-webhook", host, 24*time.Hour)
}

func configuration(webhooks ...registrationv1.MutatingWebhook) *registrationv1.MutatingWebhookConfiguration {
	return &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: prerequisite.WebhookConfiguration}, Webhooks: webhooks}
}

// TestReadyWithCertificate: a replica that has none to serve is not asked.
func TestReadyWithCertificate(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		configuration *registrationv1.MutatingWebhookConfiguration
		clock         time.Duration // of this replica, against the one that made the certificate
	}{
		"nothing to trust it":              {configuration: configuration()},
		"a clock that is two hours behind": {configuration: configuration(registrationv1.MutatingWebhook{Name: "hold"}), clock: -2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.configuration)
			if err := newTestKeeper(t, client).Sync(ctx); err != nil {
				t.Fatal(err)
			}
			k := newTestKeeper(t, client)
			k.now = func() time.Time { return time.Now().Add(test.clock) }
			if err := k.Sync(ctx); err != nil {
				t.Fatal(err)
			}
			_, err := k.Certificate()
			if err == nil {
				t.Fatal("it serves a certificate")
			}
			if k.Ready() == nil {
				t.Error("it is ready without a certificate")
			}
		})
	}
}

// TestOtherInstallation: two installations do not take each other's CAs away.
func TestOtherInstallation(t *testing.T) {
	ctx := context.Background()
	theirs := registrationv1.MutatingWebhook{Name: "hold", ClientConfig: registrationv1.WebhookClientConfig{
		Service: &registrationv1.ServiceReference{Namespace: "other", Name: "inplace-rollout-webhook"}, CABundle: []byte("theirs"),
	}}
	client := fake.NewClientset(configuration(theirs))
	k := newTestKeeper(t, client)
	if err := k.Sync(ctx); err == nil {
		t.Error("it keeps the configuration of another installation")
	}
	if k.Ready() == nil {
		t.Error("it is ready, though nobody asks it")
	}
	if got := bundleOf(t, client); string(got) != "theirs" {
		t.Errorf("the configuration has the CAs %q", got)
	}
}

// TestCertificateForAnotherName: one that was made for another Service is replaced.
func TestCertificateForAnotherName(t *testing.T) {
	ctx := context.Background()
	client := fake.NewClientset(configuration(registrationv1.MutatingWebhook{Name: "hold"}))
	former := NewKeeper(client, "inplace-rollout", "inplace-rollout-webhook", "former.inplace-rollout.svc", 24*time.Hour)
	if err := former.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	before := bundleOf(t, client)
	k := newTestKeeper(t, client)
	if err := k.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := k.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Leaf.VerifyHostname(host); err != nil {
		t.Error(err)
	}
	if bytes.Equal(bundleOf(t, client), before) {
		t.Error("the CA of the former name is still trusted, and no other")
	}
}

func bundleOf(t *testing.T, client *fake.Clientset) []byte {
	t.Helper()
	c, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), prerequisite.WebhookConfiguration, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Webhooks[0].ClientConfig.CABundle
}
