//go:build around

package integration

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/prerequisite"
	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/realnode"
)

// valve passes on what it gets at its address, and while it is shut, nothing, without a word to either side.
type valve struct {
	address string
	shut    sync.Mutex // locked while it is
}

func newValve(t *testing.T, to string) *valve {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	v := &valve{address: listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go v.flow(other, from)
			go v.flow(from, other)
		}
	}()
	return v
}

func (v *valve) flow(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		v.shut.Lock()
		v.shut.Unlock() //nolint:staticcheck // it has been open
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// TestAPIServers has two API servers on one etcd. Each has its own cache of the heartbeat, and one of them gets it late: that one lets
// edits go, and the controller says so, instead of being ready by what the other one holds. An address at which nobody answers does not
// keep it from being ready. It alone proves what several API servers make of one heartbeat.
func TestAPIServers(t *testing.T) {
	if way := controller.Hold(cp); way != prerequisite.Policy {
		t.Skipf("not applicable to %s: no API server has a cache of the heartbeat", way)
	}
	const first, second, nobody = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	letsGo(t)
	accounts := newValve(t, cp.Etcd())
	config, stop, err := cp.SecondAPIServer(t.Context(), "--etcd-servers-overrides", "/serviceaccounts#http://"+accounts.address)
	must.Do(t, err)
	t.Cleanup(stop)
	config.WarningHandler = rest.NoWarnings{}
	clients := map[string]kubernetes.Interface{first: client, second: must.Get(kubernetes.NewForConfig(config))(t)}

	// API servers publish no addresses that are those of this machine alone. The controller reaches these by a proxy.
	hosts := map[string]string{first + ":6443": cp.Address(), second + ":6443": strings.TrimPrefix(config.Host, "https://")}
	proxy := httptest.NewServer(realnode.Egress(func(ctx context.Context, network, address string) (net.Conn, error) {
		if hosts[address] == "" {
			return nil, errors.New("no route to " + address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, hosts[address])
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	slices, port := client.DiscoveryV1().EndpointSlices("default"), int32(6443)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{first}}, {Addresses: []string{second}}, {Addresses: []string{nobody}}},
	}
	must.Get(slices.Create(t.Context(), slice, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = slices.Delete(context.WithoutCancel(t.Context()), slice.Name, metav1.DeleteOptions{}) })

	w := newWorkload(t, options{})
	w.unchecked = true // the audit log of the second one is another one
	w.waitAvailable()
	edit := func(address, probe string) (*appsv1.StatefulSet, error) {
		return clients[address].AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
			[]byte(`{"spec": {"template": {"metadata": {"labels": {"probe": "`+probe+`"}}}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	const undone = "undone"
	w.serve(true, func(_ *admissionv1.AdmissionRequest, object *unstructured.Unstructured) {
		if probe, _, _ := unstructured.NestedString(object.Object, "spec", "template", "metadata", "labels", "probe"); probe == undone {
			_ = unstructured.SetNestedField(object.Object, int64(0), "spec", "updateStrategy", "rollingUpdate", "partition")
		}
	})
	// A hold that a webhook undoes is guarded where edits are held, and only there.
	through := func(address string, want bool) {
		t.Helper()
		eventually(t, "an edit through "+address, func() (bool, string) {
			set, err := edit(address, "probe")
			return err == nil && held(set) == want, must.Said(err)
		})
		eventually(t, "an edit through "+address+" whose hold is undone", func() (bool, string) {
			_, err := edit(address, undone)
			return strings.Contains(must.Said(err), "the partition was set to 0 after inplace-rollout had held the rollout") == want && (want || err == nil), must.Said(err)
		})
	}

	process := ownController(t, letGo)
	through(first, true)
	through(second, true)
	if log := string(must.Get(os.ReadFile(filepath.Join(cp.Dir(), "log", "inplace-rollout.log")))(t)); !strings.Contains(log, "the API server "+nobody+":6443: ") {
		t.Error("the controller does not say of which API server it is unknown whether it holds edits")
	}
	set := must.Get(clients[second].AppsV1().StatefulSets(w.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType,
		[]byte(`{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "150m"}}}]}}}}`), metav1.PatchOptions{}))(t)
	if !held(set) {
		t.Error("an edit through the second API server is not held")
	}
	w.waitComplete()
	w.assertMoved(0)
	process.Stop()
	through(first, false)
	through(second, false)

	accounts.shut.Lock()
	opened := sync.OnceFunc(accounts.shut.Unlock)
	defer opened()
	process = must.Get(launch(letGo))(t)
	t.Cleanup(process.Stop)
	through(first, true)
	through(second, false)
	late := "the API server " + second + ":6443: ServiceAccount inplace-rollout/" + api.HeartbeatName + " says that a controller is there, but the policies do not see it"
	eventually(t, "the controller to say that one API server does not hold edits", func() (bool, string) {
		err := process.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), late), must.Said(err)
	})
	opened()
	must.Do(t, process.WaitReady(t.Context()))
	through(second, true)
}
