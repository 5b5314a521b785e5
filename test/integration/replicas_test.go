//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/faults"
)

// leases lets the controller have its Lease in the test's own namespace, so that such tests can
// run at the same time.
const leases = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lease}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lease}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lease}
subjects: [{kind: ServiceAccount, name: inplace-rollout, namespace: inplace-rollout}]
`

// replica is one of two controllers that take turns. The audit log knows it by its user agent.
type replica struct {
	*controller.Process
	name  string
	proxy *faults.Proxy
}

// twins are a StatefulSet and the two replicas that look after it.
type twins struct {
	*workload
	uids map[string]types.UID
	mark int64
	log  map[string]string // files, by replica
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	// A resize takes a while, so that there is always something to do.
	w := newWorkload(t, options{Replicas: 4, PodMeta: `annotations: {sim.inplace-rollout.io/resize-time: "500ms"}`})
	w.apply(leases)
	mark, err := cp.AuditMark()
	if err != nil {
		t.Fatal(err)
	}
	return &twins{workload: w, uids: w.uids(), mark: mark, log: map[string]string{}}
}

// newReplica makes a replica that does not run yet. Its faults begin with Storm.
func (w *twins) newReplica(name string, o faults.Options) *replica {
	w.t.Helper()
	certificate, err := cp.Certificate()
	if err != nil {
		w.t.Fatal(err)
	}
	o.Target, o.Certificate, o.UserAgent = cp.RESTConfig(), certificate, w.namespace+"/"+name
	proxy, err := faults.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	proxy.Calm()
	w.t.Cleanup(proxy.Close)
	w.log[name] = filepath.Join(w.t.TempDir(), name+".log")
	return &replica{name: name, proxy: proxy}
}

// start starts a replica.
func (w *twins) start(r *replica) {
	w.t.Helper()
	log, err := os.OpenFile(w.log[r.name], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Process, err = controller.Start(w.t.Context(), cp, controller.Options{Server: r.proxy.URL(), Log: log, Args: []string{
		"--leader-elect", "--leader-elect-namespace=" + w.namespace, "--namespace=" + w.namespace,
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		r.Kill()
		_ = log.Close() // it has been written
		if text, err := os.ReadFile(log.Name()); w.t.Failed() {
			w.t.Logf("replica %s:\n%s%v", r.name, text, err)
		}
	})
	if err := r.WaitReady(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// start two replicas, the first of which leads.
func (w *twins) startBoth(o faults.Options) (leader, other *replica) {
	w.t.Helper()
	leader, other = w.newReplica("a", o), w.newReplica("b", faults.Options{})
	w.start(leader)
	w.waitLeads(leader)
	w.start(other)
	return leader, other
}

// leaseWrites are the user agents of those who wrote the Lease, in that order.
func (w *twins) leaseWrites() []string {
	w.t.Helper()
	var agents []string
	for _, e := range w.successful() {
		if e.ObjectRef.Resource == "leases" {
			agents = append(agents, e.UserAgent)
		}
	}
	return agents
}

// successful are the audited writes of both replicas that were made, in that order.
func (w *twins) successful() []auditv1.Event {
	w.t.Helper()
	events, err := cp.AuditAbout(w.namespace, w.mark, controlplane.Writes, func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && strings.HasPrefix(e.UserAgent, w.namespace+"/") && e.ResponseStatus != nil && e.ResponseStatus.Code < 300
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return events
}

// waitLeads waits until a replica has the Lease.
func (w *twins) waitLeads(r *replica) {
	w.t.Helper()
	eventually(w.t, r.name+" to have the Lease", func() (bool, string) {
		agents := w.leaseWrites()
		return len(agents) > 0 && agents[len(agents)-1] == w.namespace+"/"+r.name, fmt.Sprint(agents)
	})
}

// busy edits the set until done says so, so that the replicas have something to do all the time.
func (w *twins) busy(what string, done func() bool) {
	w.t.Helper()
	i := 0
	eventually(w.t, what, func() (bool, string) {
		i++
		w.setResources(fmt.Sprintf("cpu=%dm", 110+i%50), "")
		return done(), ""
	})
}

// busyUntilItEnds is busy until a replica has ended by itself, which is an error.
func (w *twins) busyUntilItEnds(r *replica) {
	w.t.Helper()
	w.busy(r.name+" to end", func() bool {
		select {
		case <-r.Done():
			return true
		default:
			return false
		}
	})
	if r.ExitCode() != 1 {
		w.t.Errorf("%s ends with %d, want 1", r.name, r.ExitCode())
	}
	if log, err := os.ReadFile(w.log[r.name]); !strings.Contains(string(log), "leadership was lost") {
		w.t.Errorf("%s does not say that the lead was lost: %v", r.name, err)
	}
}

// assertTurns checks that each write was made by the one who had written the Lease last; that
// both have written something; and that everything ends well.
func (w *twins) assertTurns() {
	w.t.Helper()
	w.setResources("cpu=170m", "")
	w.waitFor("the last edit to be seen", observed)
	w.waitComplete()
	w.assertMoved(0)
	w.assertReplaced(w.uids)
	writes, holder := map[string]int{}, ""
	for _, e := range w.successful() {
		switch {
		case e.ObjectRef.Resource == "leases":
			holder = e.UserAgent
		case strings.HasSuffix(e.ObjectRef.Resource, "reviews"): // they write nothing
		case e.UserAgent != holder:
			w.t.Errorf("%s: %s writes %s %s/%s %s, but %s has the Lease", e.StageTimestamp.Format(time.StampMilli), e.UserAgent, e.Verb,
				e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name, holder)
		default:
			writes[e.UserAgent]++
		}
	}
	if len(writes) != 2 {
		w.t.Errorf("writes of each: %v, want some of both", writes)
	}
}

// TestReplicas has two replicas lose and take the Lease in every way, while there is always
// something to write. The one that lost it writes nothing more. It alone
// proves that with real Leases and real connections, whose deadlines are what takes the time.
func TestReplicas(t *testing.T) {
	t.Run("stopped for longer than the Lease", func(t *testing.T) {
		t.Parallel()
		w := newTwins(t)
		leader, other := w.startBoth(faults.Options{})
		w.begin("150m", "web-3")
		if err := leader.Pause(); err != nil {
			t.Fatal(err)
		}
		w.waitLeads(other)
		if err := leader.Resume(); err != nil {
			t.Fatal(err)
		}
		w.busyUntilItEnds(leader)
		w.assertTurns()
	})
	t.Run("cut off from its Lease", func(t *testing.T) {
		t.Parallel()
		w := newTwins(t)
		leader, other := w.startBoth(faults.Options{})
		w.begin("150m", "web-3")
		leader.proxy.CutLeases()
		w.busyUntilItEnds(leader)
		w.waitLeads(other)
		w.assertTurns()
	})
	t.Run("its Lease is taken away", func(t *testing.T) {
		t.Parallel()
		w := newTwins(t)
		leader, other := w.startBoth(faults.Options{})
		for i := range 4 {
			w.begin(fmt.Sprintf("%dm", 150+i%2), "web-3")
			if i%2 == 0 {
				administer(t, "delete", "-n", w.namespace, "lease/inplace-rollout")
			} else {
				administer(t, "patch", "-n", w.namespace, "lease/inplace-rollout", "--type=merge", "-p", `{"spec": {"holderIdentity": ""}}`)
			}
			eventually(t, "the Lease to be held", func() (bool, string) {
				lease, err := client.CoordinationV1().Leases(w.namespace).Get(t.Context(), "inplace-rollout", metav1.GetOptions{})
				return err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != "", fmt.Sprint(err)
			})
		}
		leader.Stop()
		w.waitLeads(other)
		w.assertTurns()
		if turns := slices.Compact(w.leaseWrites()); len(turns) != 2 {
			t.Errorf("the Lease was held by %v, want two turns", turns)
		}
	})
}
