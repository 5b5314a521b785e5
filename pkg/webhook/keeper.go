package webhook

import (
	"bytes"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
)

// pairsKey is where the Secret has the pairs, the newest last.
const pairsKey = "pairs.pem"

// settle is how long a CA must have been in the configuration before a certificate of it is
// served: API servers learn of a change one after the other, within about a second.
const settle = 30 * time.Second

// A Keeper makes the certificate that the webhook is served with, renews it, and sees to it that
// the API servers trust it, and ask at a path that only they know.
//
// The pairs are in a Secret, and the configuration has the CAs of all that have not expired. A
// new pair is added when two thirds of the life of the last one are over, and served when its CA
// has been in the configuration for a while. So there is no moment in which a replica serves
// what an API server does not trust, however many replicas there are, and wherever one of them
// dies. Clocks may differ by an hour, and by a third of a life.
//
// The path comes from the key, and goes on to a later one when that is served. The paths of all that are in the Secret are
// answered.
type Keeper struct {
	client          kubernetes.Interface
	namespace, name string // of the Secret
	host            string // at which API servers ask
	generate        func() (pair, error)
	now             func() time.Time
	lifetime        time.Duration
	settle          time.Duration
	pathOnly        bool // somebody else makes the certificate

	mu      sync.Mutex
	serving *pair
	trusted bool                 // whether the configuration has the CA of what is served
	known   map[string]sighting  // by CA: the pairs whose paths are answered
	paths   bool                 // whether the configuration has such
	since   map[string]time.Time // when each CA was first seen in the configuration
	err     error
}

// NewKeeper returns a keeper of certificates for the host that are good for lifetime.
func NewKeeper(client kubernetes.Interface, namespace, secret, host string, lifetime time.Duration) *Keeper {
	return &Keeper{
		client: client, namespace: namespace, name: secret, host: host, now: time.Now,
		generate: func() (pair, error) { return newPair(host, lifetime) },
		lifetime: lifetime, settle: min(settle, lifetime/20),
		err: errors.New("there is no certificate yet"),
	}
}

// NewPathKeeper returns one that keeps only the path, where somebody else makes the certificate and has API servers trust it.
func NewPathKeeper(client kubernetes.Interface, namespace, secret, host string, lifetime time.Duration) *Keeper {
	k := NewKeeper(client, namespace, secret, host, lifetime)
	k.pathOnly = true
	return k
}

// sighting is a pair, and when it was last seen.
type sighting struct {
	pair pair
	last time.Time
}

// Run keeps the certificates until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	woken := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	k.watch(ctx, wake)
	for ctx.Err() == nil {
		err := k.Sync(ctx)
		again := k.again()
		if err != nil {
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another replica was faster
				klog.FromContext(ctx).Error(err, "Could not keep the certificate")
			}
			again = min(again, time.Second)
		}
		select {
		case <-ctx.Done():
		case <-woken:
		case <-time.After(again):
		}
	}
}

// again is how long the choice of the last Sync is good for. A certificate can expire before a later
// one has settled: if no replica was there to renew it in time, or if its lifetime was shorter then.
func (k *Keeper) again() time.Duration {
	serving := k.current()
	if serving == nil || !serving.valid(k.now()) {
		return k.settle
	}
	return min(k.settle, serving.serving.Leaf.NotAfter.Sub(k.now()))
}

// watch wakes when somebody has written the Secret or the configuration.
func (k *Keeper) watch(ctx context.Context, wake func(any)) {
	handler := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, now any) { wake(now) }, DeleteFunc: wake}
	only := func(client cache.Getter, resource, namespace, name string, object runtime.Object) {
		list := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: list, ObjectType: object, Handler: handler})
		go informer.RunWithContext(ctx)
	}
	only(k.client.CoreV1().RESTClient(), "secrets", k.namespace, k.name, &corev1.Secret{})
	only(k.client.AdmissionregistrationV1().RESTClient(), "mutatingwebhookconfigurations", metav1.NamespaceAll, prerequisite.WebhookConfiguration, &registrationv1.MutatingWebhookConfiguration{})
}

// Sync makes what is missing, once, and chooses what is served.
func (k *Keeper) Sync(ctx context.Context) error {
	// The configuration is read first. Whoever has put a later CA into it has written the Secret
	// before, and then either we see that, or our own write fails.
	configuration, err := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, prerequisite.WebhookConfiguration, metav1.GetOptions{})
	if err != nil {
		return k.failed(fmt.Errorf("reading the MutatingWebhookConfiguration %s: %w", prerequisite.WebhookConfiguration, err))
	}
	if other := k.other(configuration); other != "" {
		return k.failed(fmt.Errorf("the MutatingWebhookConfiguration %s points to %s, but this webhook is %s: remove one of the two installations", prerequisite.WebhookConfiguration, other, k.host))
	}
	pairs, err := k.keepSecret(ctx)
	if err != nil {
		return k.failed(err)
	}
	wanted := pairs
	if serving := k.current(); serving != nil && serving.valid(k.now()) && !slices.ContainsFunc(pairs, serving.same) {
		wanted = slices.Concat([]pair{*serving}, pairs) // somebody has removed it from the Secret
	}
	k.know(wanted)
	if configuration, err = k.keepConfiguration(ctx, configuration, wanted); err != nil {
		return k.failed(err)
	}
	k.choose(pairs, configuration)
	// The path follows what is served now.
	if configuration, err = k.keepConfiguration(ctx, configuration, wanted); err != nil {
		return k.failed(err)
	}
	k.checkPaths(configuration)
	return nil
}

// know answers at the paths of the pairs from now on, and of those that have gone for some time more: API servers learn of
// that one after the other.
func (k *Keeper) know(pairs []pair) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	known := map[string]sighting{}
	for key, s := range k.known {
		if now.Sub(s.last) < 2*k.settle {
			known[key] = s
		}
	}
	for _, p := range pairs {
		known[string(p.ca.Raw)] = sighting{p, now}
	}
	k.known = known
}

// Knows reports whether the path is one at which API servers ask the webhook. It takes the same time for each that is not.
func (k *Keeper) Knows(webhook, path string) bool {
	k.mu.Lock()
	known := slices.Collect(maps.Values(k.known))
	k.mu.Unlock()
	is := 0
	for _, s := range known {
		is |= subtle.ConstantTimeCompare([]byte(s.pair.path(webhook)), []byte(path))
	}
	return is == 1
}

func (k *Keeper) checkPaths(c *registrationv1.MutatingWebhookConfiguration) {
	paths := !slices.ContainsFunc(c.Webhooks, func(w registrationv1.MutatingWebhook) bool { return !k.Knows(w.Name, pathOf(w.ClientConfig)) })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paths = paths
}

// pathOf is where the configuration has API servers ask.
func pathOf(c registrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil:
		return ptr.Deref(c.Service.Path, "")
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Path
		}
	}
	return ""
}

// nextPath is the one that the configuration should have for a webhook. It never goes back to that of an earlier pair, so
// that replicas of which one has served the later one first do not undo each other's writes.
func (k *Keeper) nextPath(w registrationv1.MutatingWebhook, pairs []pair) string {
	is := slices.IndexFunc(pairs, func(p pair) bool { return p.path(w.Name) == pathOf(w.ClientConfig) })
	least := 0
	if serving := k.current(); serving != nil {
		least = max(0, slices.IndexFunc(pairs, serving.same))
	}
	return pairs[max(is, least)].path(w.Name)
}

// other is the Service that the configuration names, if it is not the one of this webhook. Two that
// put their CAs into one configuration would take away each other's, over and over.
func (k *Keeper) other(c *registrationv1.MutatingWebhookConfiguration) string {
	for _, w := range c.Webhooks {
		if s := w.ClientConfig.Service; s != nil && s.Name+"."+s.Namespace+".svc" != k.host {
			return s.Name + "." + s.Namespace + ".svc"
		}
	}
	return ""
}

// keepSecret returns the pairs in the Secret, after it has got a new one if it is time.
func (k *Keeper) keepSecret(ctx context.Context) ([]pair, error) {
	secrets := k.client.CoreV1().Secrets(k.namespace)
	secret, err := secrets.Get(ctx, k.name, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return nil, fmt.Errorf("reading the Secret %s/%s: %w", k.namespace, k.name, err)
	}
	pairs, unreadable := parsePairs(secret.Data[pairsKey])
	if unreadable != nil {
		klog.FromContext(ctx).Error(unreadable, "What cannot be read of the Secret is replaced", "secret", klog.KRef(k.namespace, k.name))
	}
	now := k.now()
	kept := slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool {
		return !now.Before(p.serving.Leaf.NotAfter) || p.serving.Leaf.VerifyHostname(k.host) != nil
	})
	if !slices.ContainsFunc(kept, func(p pair) bool { return p.serving.Leaf.NotAfter.Sub(now) > k.lifetime/3 }) {
		p, err := k.generate()
		if err != nil {
			return nil, err
		}
		kept = append(kept, p)
	} else if len(kept) == len(pairs) && unreadable == nil {
		return kept, nil
	}
	if absent {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name}}
	}
	secret.Data = map[string][]byte{pairsKey: encodePairs(kept)}
	if absent {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the Secret %s/%s: %w", k.namespace, k.name, err)
	}
	return kept, nil
}

// keepConfiguration returns the configuration after each of its entries trusts the pairs and
// nothing else, and has the path of one of them.
func (k *Keeper) keepConfiguration(ctx context.Context, c *registrationv1.MutatingWebhookConfiguration, pairs []pair) (*registrationv1.MutatingWebhookConfiguration, error) {
	type service struct {
		Path string `json:"path"`
	}
	type clientConfig struct {
		CABundle []byte   `json:"caBundle,omitempty"`
		Service  *service `json:"service,omitempty"`
		URL      string   `json:"url,omitempty"`
	}
	type entry struct {
		Name         string       `json:"name"`
		ClientConfig clientConfig `json:"clientConfig"`
	}
	var entries []entry // they are merged by name
	bundle := bundle(pairs)
	for _, w := range c.Webhooks {
		e := entry{Name: w.Name}
		if !k.pathOnly && !bytes.Equal(w.ClientConfig.CABundle, bundle) {
			e.ClientConfig.CABundle = bundle
		}
		if path := k.nextPath(w, pairs); path != pathOf(w.ClientConfig) {
			if w.ClientConfig.Service != nil {
				e.ClientConfig.Service = &service{path}
			} else if u, err := url.Parse(ptr.Deref(w.ClientConfig.URL, "")); err == nil {
				u.Path = path
				e.ClientConfig.URL = u.String()
			}
		}
		if e.ClientConfig.CABundle != nil || e.ClientConfig.Service != nil || e.ClientConfig.URL != "" {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return c, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": c.ResourceVersion}, "webhooks": entries})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	c, err = k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, prerequisite.WebhookConfiguration, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the CAs and the paths into the MutatingWebhookConfiguration %s: %w", prerequisite.WebhookConfiguration, err)
	}
	return c, nil
}

// choose serves the newest pair that every API server trusts by now; if there is none, what is
// served, or the oldest one that is trusted.
func (k *Keeper) choose(pairs []pair, c *registrationv1.MutatingWebhookConfiguration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	seen := map[string]time.Time{}
	trusted := func(p pair) bool {
		return k.pathOnly || len(c.Webhooks) > 0 && !slices.ContainsFunc(c.Webhooks, func(w registrationv1.MutatingWebhook) bool { return !trusts(w.ClientConfig.CABundle, p.ca) })
	}
	served := k.serving != nil && trusted(*k.serving) && k.serving.valid(now)
	for _, p := range pairs {
		if !trusted(p) || !p.valid(now) {
			continue
		}
		key := string(p.ca.Raw)
		since, ok := k.since[key]
		if !ok {
			since = now
		}
		seen[key] = since
		if now.Sub(since) >= k.settle || !served {
			k.serving, served = &p, true
		}
	}
	k.since, k.trusted, k.err = seen, served, nil
}

func (k *Keeper) failed(err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	return err
}

func (k *Keeper) current() *pair {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.serving
}

// Ready returns nil if there is a certificate that the API servers trust, or what is missing.
func (k *Keeper) Ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.serving == nil && k.err == nil:
		return errors.New("there is no certificate yet that is valid and trusted")
	case k.serving == nil:
		return k.err
	case !k.serving.valid(k.now()):
		return errors.Join(errors.New("the certificate has expired"), k.err)
	case !k.trusted: // as far as could be seen
		return fmt.Errorf("the MutatingWebhookConfiguration %s does not have the CA of the certificate", prerequisite.WebhookConfiguration)
	case !k.paths:
		return fmt.Errorf("the MutatingWebhookConfiguration %s does not have the paths at which this one answers", prerequisite.WebhookConfiguration)
	}
	return nil
}

// Certificate is the one to serve with.
func (k *Keeper) Certificate() (*tls.Certificate, error) {
	serving := k.current()
	if serving == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return serving.serving, nil
}
