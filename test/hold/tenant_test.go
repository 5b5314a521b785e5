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
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
)

// secrets are what only the other tenant knows: a namespace, an image, the name of a workload.
var secrets = regexp.MustCompile(`rich-bank|example\.com/vault|treasure`)

// forged asks for the estimates of the other tenant's namespace, as only an API server may.
const forged = `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "operation": "CREATE", "namespace": "rich-bank",
	"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "userInfo": {"username": "system:apiserver"},
	"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "rich-bank"}, "spec": {"containers": [{"name": "a", "image": "example.com/vault:7"}]}}}}`

// TestTenant: a tenant who may do nothing, and whom no NetworkPolicy keeps from the ports of our pods, learns nothing of the
// namespace of another, and stops nothing there, whatever is sent, slowly or never sent to the controller, the webhook and the estimator.
// It alone proves that of all of them at once.
func TestTenant(t *testing.T) {
	for _, name := range []string{"rich-bank", "poor"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	table := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inplace-rollout-initial-resources", Namespace: "rich-bank"}, Data: map[string]string{"a": "example.com/vault"}}
	if _, err := client.CoreV1().ConfigMaps("rich-bank").Create(t.Context(), table, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Kubectl(t.Context(), "apply", "--filename", filepath.Join(controller.Root(), "deploy", "overlays", "webhook-initial-resources", "roles.yaml"),
		"--filename", filepath.Join(controller.Root(), "deploy", "initial-resources", "roles.yaml"), "--namespace", controller.Namespace); err != nil {
		t.Fatal(err)
	}
	if _, err := cp.Kubectl(t.Context(), "create", "serviceaccount", "tenant", "--namespace", "poor"); err != nil {
		t.Fatal(err)
	}
	token, err := cp.Kubectl(t.Context(), "create", "token", "tenant", "--namespace", "poor")
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)

	// As deploy/ starts them.
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "230MiB")
	w := serve(t, "--initial-resources")
	log, err := os.OpenFile(filepath.Join(cp.Dir(), "log", "tenant.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(p *controller.Process, err error) *controller.Process {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	leader := begin(controller.Start(t.Context(), cp, controller.Options{Log: log}))
	estimator := begin(controller.StartEstimator(t.Context(), cp, controller.Options{Args: []string{"--leader-elect=false", "--prometheus-url=http://127.0.0.1:1"}, Log: log}))
	if err := leader.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := map[string]*controller.Process{"controller": leader, "estimator": estimator, "webhook": w.Replica(0), "other webhook": w.Replica(1)}
	ports := map[string]string{"https://" + w.Address(): ""}
	for name, p := range pods {
		ports["http://"+p.Address()] = name
	}
	treasure := newSet(t, client, "rich-bank", "treasure", nil)
	cpu := 10
	edit := func() error {
		cpu++
		set, err := treasure.edit(t, cpu)
		if err == nil && !held(set) {
			err = fmt.Errorf("an edit is not held: %v", set.Annotations)
		}
		return err
	}
	if err := edit(); err != nil {
		t.Fatal(err)
	}

	for port, name := range ports {
		for _, path := range paths() {
			for _, with := range []string{"", token} {
				for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: forged} {
					code, said := request(t, method, port+path, with, body)
					if found := secrets.FindString(said); found != "" {
						t.Errorf("%s %s%s of the %s tells %q: %.500s", method, port, path, name, found, said)
					}
					if open := name != "" && (path == "/metrics" || path == "/healthz" || path == "/readyz"); code == http.StatusOK && !open {
						t.Errorf("%s %s%s of the %s is answered: %.200s", method, port, path, name, said)
					}
				}
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
						select {
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
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
	most := map[string]int{}
	for name, p := range pods {
		select {
		case <-p.Done():
			t.Errorf("the %s has ended", name)
			continue
		default:
		}
		most[name] = peak(t, p.PID()) >> 10
		if name != "estimator" { // which has no Prometheus
			if err := p.Ready(t.Context()); err != nil {
				t.Errorf("the %s is not ready: %v", name, err)
			}
		}
	}
	t.Logf("%d edits; at most MiB of memory: %v", edits, most)
	stop()
	attacks.Wait()
	for name, is := range most {
		if is > 230 { // nine tenths of what deploy/ lets controller and webhook have
			t.Errorf("the %s has held %d MiB", name, is)
		}
	}
}

// paths are those that one might try.
func paths() []string {
	all := []string{"/", "/metrics", "/healthz", "/readyz", "/livez", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/vars", "/configz", "/flagz", "/statusz", "/mutate", "/mutate/", "/api", "/../../etc/passwd"}
	for _, webhook := range []string{"inplace-rollout-initial-resources-enabled.inplace-rollout.io", "inplace-rollout-hold-statefulsets.inplace-rollout.io"} {
		all = append(all, "/mutate/"+webhook, "/mutate/"+webhook+"/", "/mutate/"+webhook+"/"+strings.Repeat("0", 64))
	}
	return all
}

// request asks once, over TLS without knowing whom.
func request(t *testing.T, method, url, token, body string) (code int, said string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
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
		stay(ctx, scheme, address, []byte("POST /mutate/inplace-rollout-hold-statefulsets.inplace-rollout.io HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n"), 20)
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
		select {
		case <-ctx.Done():
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
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
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("%s", status)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}
