//go:build around

package hold

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// secrets are what only the other tenant knows: a namespace, the name of a workload.
var secrets = regexp.MustCompile(`rich-bank|treasure`)

// paths are some that one might try. Those of webhooks are in TestStranger and TestPath of pkg/webhook.
var paths = []string{
	"/", "/metrics", "/healthz", "/readyz", "/livez", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/vars",
	"/configz", "/flagz", "/statusz", "/mutate/", "/mutate/inplace-rollout-hold.inplace-rollout.io/" + strings.Repeat("0", 64), "/../../etc/passwd",
}

// TestTenant: a tenant who may do nothing, and whom no NetworkPolicy keeps from the ports of our pods, learns nothing of the
// namespace of another, and stops nothing there, whatever is sent, slowly or never sent to the controller and the webhook.
// It alone proves that of both at once.
func TestTenant(t *testing.T) {
	for _, name := range []string{"rich-bank", "poor"} {
		must.Get(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	must.Get(cp.Kubectl(t.Context(), "create", "serviceaccount", "tenant", "--namespace", "poor"))(t)
	token := must.Get(cp.Kubectl(t.Context(), "create", "token", "tenant", "--namespace", "poor"))(t)

	// As deploy/ starts them.
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "230MiB")
	w := serve(t)
	leader := must.Get(controller.Start(t.Context(), cp, controller.Options{Log: t.Output()}))(t)
	t.Cleanup(leader.Kill)
	must.Do(t, leader.WaitReady(t.Context()))
	pods := map[string]*controller.Process{"controller": leader, "webhook": w.Replica(0), "other webhook": w.Replica(1)}
	ports := map[string]string{"https://" + w.Address(): ""}
	for name, p := range pods {
		ports["http://"+p.Address()] = name
	}
	treasure := newSet(t, client, "rich-bank", "treasure")
	cpu := 10
	edit := func() error {
		cpu++
		set, err := treasure.edit(t, cpu)
		if err == nil && !held(set) {
			err = fmt.Errorf("an edit is not held: %v", set.Annotations)
		}
		return err
	}
	must.Do(t, edit())

	for port, name := range ports {
		for _, path := range paths {
			code, said := request(t, port+path, strings.TrimSpace(token))
			if found := secrets.FindString(said); found != "" {
				t.Errorf("%s%s of the %s tells %q: %.500s", port, path, name, found, said)
			}
			if open := name != "" && (path == "/metrics" || path == "/healthz" || path == "/readyz"); code == http.StatusOK && !open {
				t.Errorf("%s%s of the %s is answered: %.200s", port, path, name, said)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var attacks sync.WaitGroup
	for port := range ports {
		scheme, address, _ := strings.Cut(port, "://")
		for _, a := range attackers {
			for range a.many {
				attacks.Go(func() {
					for ctx.Err() == nil {
						a.attack(ctx, scheme, address)
						pauseFor(ctx, 100*time.Millisecond)
					}
				})
			}
		}
	}
	edits := 0
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		edits++
		if err := edit(); err != nil { // also if the webhook takes 5 s
			t.Errorf("edit %d: %v", edits, err)
		}
	}
	for name, p := range pods {
		select {
		case <-p.Done():
			t.Errorf("the %s has ended", name)
			continue
		default:
		}
		if is := peak(t, p.PID()) >> 10; is > 230 { // nine tenths of what deploy/ lets controller and webhook have
			t.Errorf("the %s has held %d MiB", name, is)
		}
		must.Fails(t, name, p.Ready(t.Context()), "")
	}
	stop()
	attacks.Wait()
}

// pauseFor waits for a time, or until the attacks end.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// request asks once, over TLS without knowing whom.
func request(t *testing.T, url, token string) (code int, said string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Do(r)
	if err != nil {
		return 0, err.Error() // a server may end the connection
	}
	defer response.Body.Close()
	read, _ := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(response.Header, string(read))
}

// attackers are what is sent to a port by so many at the same time.
var attackers = []struct {
	many   int
	attack func(ctx context.Context, scheme, address string)
}{
	// It says nothing.
	{100, func(ctx context.Context, _, address string) { stay(ctx, "tcp", address, nil, 0) }},
	// A request that does not end, one header after the other.
	{50, func(ctx context.Context, scheme, address string) {
		stay(ctx, scheme, address, []byte("GET /metrics HTTP/1.1\r\nHost: a\r\n"), 20)
	}},
	// A large body, of which little comes at a time.
	{50, func(ctx context.Context, scheme, address string) {
		stay(ctx, scheme, address, []byte("POST /mutate/inplace-rollout-hold.inplace-rollout.io HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n"), 20)
	}},
	// Answers that nobody reads.
	{600, func(ctx context.Context, scheme, address string) {
		stay(ctx, scheme, address, bytes.Repeat([]byte("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 500), 0)
	}},
	// A body that goes on and on.
	{4, func(ctx context.Context, scheme, address string) {
		connection := connect(ctx, scheme, address)
		if connection == nil {
			return
		}
		defer connection.Close()
		_, err := fmt.Fprint(connection, "POST /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		for sent := 0; err == nil && ctx.Err() == nil && sent < 64; sent++ {
			_, err = fmt.Fprintf(connection, "100000\r\n%s\r\n", bytes.Repeat([]byte("a"), 1<<20))
		}
	}},
}

// stay connects, sends what it has to send and then a letter at a time, and stays until the server ends it.
func stay(ctx context.Context, scheme, address string, send []byte, letters int) {
	connection := connect(ctx, scheme, address)
	if connection == nil {
		return
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(12 * time.Second))
	if _, err := connection.Write(send); err != nil {
		return
	}
	for range letters {
		if _, err := connection.Write([]byte("a")); err != nil {
			return
		}
		pauseFor(ctx, 300*time.Millisecond)
	}
	pauseFor(ctx, 10*time.Second)
}

// connect returns nil where the server takes no connection. It receives little at a time.
func connect(ctx context.Context, scheme, address string) net.Conn {
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	_ = connection.(*net.TCPConn).SetReadBuffer(4 << 10)
	context.AfterFunc(ctx, func() { _ = connection.Close() })
	if scheme != "https" {
		return connection
	}
	secured := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil
	}
	return secured
}

// peak is the most memory that a process has held, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kib int
	must.Get(fmt.Sscan(after, &kib))(t)
	return kib
}

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
				must.Do(t, ask())
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
