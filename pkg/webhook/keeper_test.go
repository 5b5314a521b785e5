package webhook

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const host = "inplace-rollout-webhook.inplace-rollout.svc"

func newTestKeeper(t *testing.T, client *fake.Clientset) *Keeper {
	t.Helper()
	return NewKeeper(client, "inplace-rollout", "inplace-rollout-webhook", host, 24*time.Hour)
}

func configuration(webhooks ...registrationv1.MutatingWebhook) *registrationv1.MutatingWebhookConfiguration {
	return &registrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: prerequisite.WebhookConfiguration}, Webhooks: webhooks}
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
	must.Do(t, former.Sync(ctx))
	before := bundleOf(t, client)
	k := newTestKeeper(t, client)
	must.Do(t, k.Sync(ctx))
	c := must.Get(k.Certificate())(t)
	if err := c.Leaf.VerifyHostname(host); err != nil {
		t.Error(err)
	}
	if bytes.Equal(bundleOf(t, client), before) {
		t.Error("the CA of the former name is still trusted, and no other")
	}
}

func bundleOf(t *testing.T, client *fake.Clientset) []byte {
	t.Helper()
	c := must.Get(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), prerequisite.WebhookConfiguration, metav1.GetOptions{}))(t)
	return c.Webhooks[0].ClientConfig.CABundle
}

// TestPath: each webhook has a path of its own, which a user who is told that of another one cannot guess; it changes with
// the certificate, and the former one is answered until no API server can ask there.
func TestPath(t *testing.T) {
	ctx := context.Background()
	service := func(name string) registrationv1.MutatingWebhook {
		return registrationv1.MutatingWebhook{Name: name, ClientConfig: registrationv1.WebhookClientConfig{
			Service: &registrationv1.ServiceReference{Namespace: "inplace-rollout", Name: "inplace-rollout-webhook"},
		}}
	}
	for name, make := range map[string]func(*fake.Clientset) *Keeper{
		"its own certificate": func(client *fake.Clientset) *Keeper { return newTestKeeper(t, client) },
		"somebody's certificate": func(client *fake.Clientset) *Keeper {
			return NewPathKeeper(client, "inplace-rollout", "inplace-rollout-webhook", host, 24*time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(configuration(service("hold"), service("estimate")))
			k, now := make(client), time.Now()
			k.now = func() time.Time { return now }
			life := time.Duration(0) // of the next certificate, by the real clock
			k.generate = func() (pair, error) {
				life += 24 * time.Hour
				return newPair(host, life)
			}
			paths := func() (hold, estimate string) {
				t.Helper()
				for range 2 {
					must.Do(t, k.Sync(ctx))
				}
				if err := k.Ready(); err != nil {
					t.Error(err)
				}
				c := must.Get(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, prerequisite.WebhookConfiguration, metav1.GetOptions{}))(t)
				if has := len(c.Webhooks[0].ClientConfig.CABundle) > 0; has == k.pathOnly {
					t.Errorf("the configuration has a CA of ours: %t", has)
				}
				return pathOf(c.Webhooks[0].ClientConfig), pathOf(c.Webhooks[1].ClientConfig)
			}
			hold, estimate := paths()
			secret := strings.TrimPrefix(hold, "/mutate/hold/")
			if !k.Knows("hold", hold) || !k.Knows("estimate", estimate) || len(secret) != 64 {
				t.Errorf("the paths are not known: %s, %s", hold, estimate)
			}
			for _, guess := range []string{"", "/", "/mutate/estimate", "/mutate/estimate/", "/mutate/estimate/" + secret, hold} {
				if k.Knows("estimate", guess) {
					t.Errorf("%q is known", guess)
				}
			}
			now = now.Add(17 * time.Hour)
			if second, _ := paths(); second != hold {
				t.Error("the path has changed before each replica can know the next one")
			}
			now = now.Add(k.settle)
			second, _ := paths()
			if second == hold || !k.Knows("hold", second) || !k.Knows("hold", hold) {
				t.Errorf("after the renewal the path is %s, and was %s", second, hold)
			}
			now = now.Add(8 * time.Hour)
			paths()
			now = now.Add(2 * k.settle)
			if paths(); k.Knows("hold", hold) {
				t.Error("the path of a certificate that has expired is still known")
			}
			must.Get(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, configuration(service("hold"), service("estimate")), metav1.UpdateOptions{}))(t)
			if third, _ := paths(); third != second {
				t.Errorf("a path that was removed comes back as %s", third)
			}
		})
	}
}
