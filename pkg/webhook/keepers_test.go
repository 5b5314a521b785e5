package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

const life = 90 * 24 * time.Hour

// pairAt makes what newPair makes, at another time.
func pairAt(now time.Time) (pair, error) {
	serial := big.NewInt(now.UnixNano())
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ca@" + serial.String()}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, DNSNames: []string{"webhook"},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return pair{}, err
	}
	encodedKey, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	// The certificate is its own CA: it makes no difference here, and the simulation faster.
	return newPairFrom(append(certificate, certificate...), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encodedKey}))
}

// world is an API server with the two objects, and what other API servers may still see of them.
type world struct {
	now           time.Time
	version       int
	secret        *corev1.Secret
	configuration *registrationv1.MutatingWebhookConfiguration
	seen          []view
}

// view is what was in the configuration until then.
type view struct {
	bundle []byte
	url    *string
	until  time.Time
}

func newWorld() *world {
	return &world{
		now:           time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		configuration: &registrationv1.MutatingWebhookConfiguration{Webhooks: []registrationv1.MutatingWebhook{at("a"), at("b")}},
	}
}

func at(name string) registrationv1.MutatingWebhook {
	return registrationv1.MutatingWebhook{Name: name, ClientConfig: registrationv1.WebhookClientConfig{URL: ptr.To("https://webhook")}}
}

var errLost = errors.New("the process dies")

// client asks this world; before and after each request something may happen.
func (w *world) client(before, after func() error) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if err := before(); err != nil {
			return true, nil, err
		}
		object, err := w.answer(action)
		return true, object, errors.Join(err, after())
	})
	return client
}

func (w *world) answer(action clienttesting.Action) (runtime.Object, error) {
	resource := action.GetResource().GroupResource()
	switch verb := action.GetVerb(); verb {
	case "get":
		if resource.Resource == "mutatingwebhookconfigurations" {
			return w.configuration.DeepCopy(), nil
		}
		if w.secret == nil {
			return nil, apierrors.NewNotFound(resource, "")
		}
		return w.secret.DeepCopy(), nil
	case "patch":
		return w.patch(action.(clienttesting.PatchAction).GetPatch())
	case "create", "update":
		secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret).DeepCopy()
		if verb == "create" && w.secret != nil {
			return nil, apierrors.NewAlreadyExists(resource, "")
		}
		if verb == "update" && (w.secret == nil || w.secret.ResourceVersion != secret.ResourceVersion) {
			return nil, conflict(resource)
		}
		secret.ResourceVersion = w.next()
		w.secret = secret
		return secret.DeepCopy(), nil
	}
	return nil, fmt.Errorf("unexpected: %v", action)
}

// patch does what a strategic merge patch of webhooks does.
func (w *world) patch(encoded []byte) (runtime.Object, error) {
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Webhooks []registrationv1.MutatingWebhook
	}
	if err := json.Unmarshal(encoded, &patch); err != nil {
		return nil, err
	}
	if patch.Metadata.ResourceVersion != w.configuration.ResourceVersion {
		return nil, conflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"})
	}
	w.seen = append(w.seen, w.view())
	for _, change := range patch.Webhooks {
		for i := range w.configuration.Webhooks {
			if webhook := &w.configuration.Webhooks[i]; webhook.Name == change.Name {
				if change.ClientConfig.CABundle != nil {
					webhook.ClientConfig.CABundle = change.ClientConfig.CABundle
				}
				webhook.ClientConfig.URL = cmp.Or(change.ClientConfig.URL, webhook.ClientConfig.URL)
			}
		}
	}
	w.configuration.ResourceVersion = w.next()
	return w.configuration.DeepCopy(), nil
}

func (w *world) view() view {
	c := w.configuration.Webhooks[0].ClientConfig
	return view{c.CABundle, c.URL, w.now}
}

func (w *world) next() string { w.version++; return fmt.Sprint(w.version) }

func conflict(resource schema.GroupResource) error {
	return apierrors.NewConflict(resource, "", errors.New("it has changed"))
}

// keeper of this world whose clock is late or early.
func (w *world) keeper(skew time.Duration, before, after func() error) *Keeper {
	k := NewKeeper(w.client(before, after), "inplace-rollout", "inplace-rollout-webhook", "webhook", life)
	k.now = func() time.Time { return w.now.Add(skew) }
	k.generate = func() (pair, error) { return pairAt(k.now()) }
	return k
}

// check says of a replica that is asked whether every API server trusts it, also one that has not
// seen what was written in the last seconds.
func (w *world) check(k *Keeper) error {
	if ready := k.Ready() == nil; !ready { // it is not asked
		return nil
	}
	serving := k.current()
	if !serving.valid(w.now) {
		return fmt.Errorf("at %s it serves a certificate that is good from %s to %s", w.now, serving.serving.Leaf.NotBefore, serving.serving.Leaf.NotAfter)
	}
	views := []view{w.view()}
	for _, v := range w.seen {
		if w.now.Sub(v.until) < settle/2 && v.bundle != nil { // nobody had a certificate before the first one
			views = append(views, v)
		}
	}
	for _, v := range views {
		if !trusts(v.bundle, serving.ca) {
			return fmt.Errorf("at %s it serves %s, which is not trusted by who saw the configuration at %s", w.now, serving.ca.Subject, v.until)
		}
		if !k.Knows("a", strings.TrimPrefix(*v.url, "https://webhook")) {
			return fmt.Errorf("at %s it does not answer who saw the configuration at %s, at %s", w.now, v.until, *v.url)
		}
	}
	return nil
}

// Replicas that race, die after any write, and have clocks that differ, never serve what an API
// server does not trust.
func TestKeepers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		keepers := make([]*Keeper, 2)
		dead, depth, calm := make([]bool, 2), 0, false
		var sync func(i int)
		boot := func(i int) {
			skew := time.Duration(rapid.IntRange(-29, 29).Draw(t, "skew")) * time.Minute
			before := func() error {
				if !calm && depth == 1 && rapid.IntRange(0, 3).Draw(t, "race") == 0 {
					sync(1 - i) // all of the other's sync happens between two requests of this one
				}
				return nil
			}
			after := func() error {
				if !calm && rapid.IntRange(0, 9).Draw(t, "dies") == 0 {
					dead[i] = true
				}
				if dead[i] {
					return errLost
				}
				return nil
			}
			keepers[i], dead[i] = w.keeper(skew, before, after), false
		}
		sync = func(i int) {
			depth++
			_ = keepers[i].Sync(context.Background()) // an error is tried again
			depth--
			if dead[i] {
				boot(i)
			}
		}
		boot(0)
		boot(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			pass := rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Second, settle, 25 * 24 * time.Hour}).Draw(t, "pass")
			if calm = pass > settle; calm { // nothing fails for weeks
				for range 3 {
					sync(0)
					sync(1)
					w.now = w.now.Add(settle)
				}
				calm = false
			}
			w.now = w.now.Add(pass)
			sync(rapid.IntRange(0, 1).Draw(t, "replica"))
			if pass >= settle { // each replica syncs as often as that
				sync(0)
				sync(1)
			}
			for _, k := range keepers {
				must.Do(t, w.check(k))
			}
		}
	})
}

// After whatever has happened there is one certificate, and it is renewed in time.
func TestKeeperRenews(t *testing.T) {
	nothing := func() error { return nil }
	w := newWorld()
	k := w.keeper(0, nothing, nothing)
	sync := func() {
		t.Helper()
		must.Do(t, k.Sync(t.Context()))
		must.Do(t, k.Ready())
	}
	if k.Ready() == nil {
		t.Error("it is ready without a certificate")
	}
	sync()
	first := k.current()
	w.now = w.now.Add(life*2/3 - time.Minute)
	sync()
	if !k.current().same(*first) || w.version != 2 {
		t.Errorf("there were %d writes for one certificate", w.version)
	}
	w.now = w.now.Add(2 * time.Minute)
	sync()
	if !k.current().same(*first) {
		t.Error("a certificate is served before API servers can know of it")
	}
	w.now = w.now.Add(settle)
	sync()
	second := k.current()
	if second.same(*first) || w.version != 5 {
		t.Errorf("after %d writes the certificate is still the first one", w.version)
	}
	w.now = w.now.Add(life/3 + time.Minute)
	sync()
	if got := w.configuration.Webhooks[1].ClientConfig.CABundle; string(got) != string(bundle([]pair{*second})) || string(w.secret.Data[pairsKey]) != string(second.encoded) {
		t.Errorf("what has expired does not go: %s", got)
	}

	for name, damage := range map[string]func(){
		"no Secret":             func() { w.secret = nil },
		"nonsense":              func() { w.secret.Data[pairsKey] = []byte("nonsense") },
		"half a pair":           func() { w.secret.Data[pairsKey] = append(w.secret.Data[pairsKey], bundle([]pair{*second})...) },
		"no CA in one entry":    func() { w.configuration.Webhooks[0].ClientConfig.CABundle = nil },
		"a foreign CA":          func() { w.configuration.Webhooks[1].ClientConfig.CABundle = bundle([]pair{*first}) },
		"no CA in any of them":  func() { w.configuration.Webhooks = newWorld().configuration.Webhooks },
		"the CA, but not alone": func() { w.configuration.Webhooks[0].ClientConfig.CABundle = bundle([]pair{*first, *second}) },
	} {
		damage()
		sync()
		pairs := must.Get(parsePairs(w.secret.Data[pairsKey]))(t)
		for _, webhook := range w.configuration.Webhooks {
			if !trusts(webhook.ClientConfig.CABundle, k.current().ca) || !trusts(webhook.ClientConfig.CABundle, pairs[len(pairs)-1].ca) {
				t.Errorf("%s: the configuration lacks a CA of ours", name)
			}
			if trusts(webhook.ClientConfig.CABundle, first.ca) {
				t.Errorf("%s: the configuration has a CA that is not ours", name)
			}
		}
		w.now = w.now.Add(settle)
		sync()
	}
}

// While the API server is away, what is served stays.
func TestKeeperAlone(t *testing.T) {
	var away error
	w := newWorld()
	k := w.keeper(0, func() error { return away }, func() error { return nil })
	away = errors.New("the API server is away")
	if err := k.Sync(t.Context()); err == nil || k.Ready() == nil {
		t.Errorf("it is ready and has nothing: %v", err)
	}
	away = nil
	must.Do(t, k.Sync(t.Context()))
	late := w.keeper(-2*time.Hour, func() error { return nil }, func() error { return nil })
	if err := late.Sync(t.Context()); err != nil || late.Ready() == nil {
		t.Errorf("it is ready with a certificate that is not valid yet: %v", err)
	}
	away = errors.New("the API server is away")
	if err := k.Sync(t.Context()); err == nil || k.Ready() != nil {
		t.Errorf("it is not ready any more: %v", k.Ready())
	}
	w.now = w.now.Add(life)
	if k.Ready() == nil {
		t.Error("it is ready with a certificate that has expired")
	}
}

func TestNoConfiguration(t *testing.T) {
	k := NewKeeper(fake.NewClientset(), "inplace-rollout", "inplace-rollout-webhook", "webhook", life)
	if err := k.Sync(t.Context()); !apierrors.IsNotFound(err) || !errors.Is(k.Ready(), err) {
		t.Errorf("the configuration is not there: %v, %v", err, k.Ready())
	}
	if _, err := k.client.CoreV1().Secrets("inplace-rollout").Get(t.Context(), "inplace-rollout-webhook", metav1.GetOptions{}); err == nil {
		t.Errorf("a Secret for nothing, and no %s", prerequisite.WebhookConfiguration)
	}
	k = newTestKeeper(t, fake.NewClientset(configuration()))
	if err := k.Sync(t.Context()); err != nil || k.Ready() == nil {
		t.Errorf("it is ready with a certificate that nothing trusts: %v", err)
	}
	if _, err := k.Certificate(); err == nil {
		t.Error("it serves one")
	}
}

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
	theirs := registrationv1.MutatingWebhook{Name: "hold", ClientConfig: registrationv1.WebhookClientConfig{
		Service: &registrationv1.ServiceReference{Namespace: "other", Name: "inplace-rollout-webhook"}, CABundle: []byte("theirs"),
	}}
	client := fake.NewClientset(configuration(theirs))
	k := newTestKeeper(t, client)
	if err := k.Sync(t.Context()); err == nil {
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
	client := fake.NewClientset(configuration(registrationv1.MutatingWebhook{Name: "hold"}))
	former := NewKeeper(client, "inplace-rollout", "inplace-rollout-webhook", "former.inplace-rollout.svc", 24*time.Hour)
	must.Do(t, former.Sync(t.Context()))
	before := bundleOf(t, client)
	k := newTestKeeper(t, client)
	must.Do(t, k.Sync(t.Context()))
	c := must.Get(k.Certificate())(t)
	must.Do(t, c.Leaf.VerifyHostname(host))
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
					must.Do(t, k.Sync(t.Context()))
				}
				must.Do(t, k.Ready())
				c := must.Get(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), prerequisite.WebhookConfiguration, metav1.GetOptions{}))(t)
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
			removed := configuration(service("hold"), service("estimate"))
			must.Get(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(t.Context(), removed, metav1.UpdateOptions{}))(t)
			if third, _ := paths(); third != second {
				t.Errorf("a path that was removed comes back as %s", third)
			}
		})
	}
}
