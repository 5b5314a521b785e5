//go:build around

package integration

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inplace-rollout/inplace-rollout/test/controller"
	"github.com/inplace-rollout/inplace-rollout/test/controlplane"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestMoreHeldThanWatched: more Deployments are held than may be watched at once, each with a pod
// that its kubelet defers, and there is room elsewhere. All are restarted when that has lasted for too
// long. HELD says how many there are; then as many are watched as without a flag.
// It alone proves that a deadline passes for workloads that are not being watched.
func TestMoreHeldThanWatched(t *testing.T) {
	number, flags := 12, []string{"--max-sessions=4"}
	if said := os.Getenv("HELD"); said != "" {
		var err error
		if number, err = strconv.Atoi(said); err != nil {
			t.Fatal(err)
		}
		flags = nil
	}
	const timeout = 20 * time.Second
	ownController(t, controller.Options{Args: append(flags, "--deferred-timeout="+timeout.String())})
	for i := range number/100 + 1 {
		name := fmt.Sprintf("roomy-%d", i)
		must.Do(t, cp.AddNode(t.Context(), name, controlplane.Node{CPU: "64", Memory: "64Gi"}))
		defer administer(t, "delete", "node", name)
	}
	namespace, kinds := newNamespace(t, nil), map[string]string{}
	var manifests []string
	for i := range number {
		name := fmt.Sprintf("held-%d", i)
		kinds[name] = "Deployment"
		manifests = append(manifests, strings.ReplaceAll(manifest(t, namespace, options{
			Kind: "Deployment", Replicas: 1, Resources: "{requests: {cpu: 1m}}",
			PodMeta: "annotations: {" + strings.Replace(simDeferred, "=", ": ", 1) + "}",
		}), "web", name))
	}
	defer administer(t, "delete", "deployments,pods", "--all", "-n", namespace, "--wait=false")
	apply(t, namespace, strings.Join(manifests, "---\n"))
	waitAllComplete(t, namespace, kinds)

	begun := time.Now()
	var edits errgroup.Group
	edits.SetLimit(8)
	for name := range kinds {
		edits.Go(func() error {
			_, err := client.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
				[]byte(`{"spec": {"template": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "2m"}}}]}}}}`), metav1.PatchOptions{})
			return err
		})
	}
	must.Do(t, edits.Wait())
	edited := time.Since(begun)
	restarted := func() (count int) {
		t.Helper()
		for size := range strings.FieldsSeq(administer(t, "get", "pods", "-n", namespace, "-o",
			`jsonpath={range .items[?(@.status.phase=="Running")]}{.status.containerStatuses[0].resources.requests.cpu}{" "}{end}`)) {
			if size == "2m" {
				count++
			}
		}
		return count
	}
	first := time.Duration(0)
	eventually(t, "all to be restarted", func() (bool, string) {
		count := restarted()
		if count > 0 && first == 0 {
			first = time.Since(begun)
		}
		return count >= number, fmt.Sprintf("%d of %d are after %s", count, number, time.Since(begun).Round(time.Second))
	})
	last := time.Since(begun)
	waitAllComplete(t, namespace, kinds)
	t.Logf("%d Deployments were edited within %s; the first was restarted after %s, the last after %s; all were Complete after %s",
		number, edited.Round(time.Second), first.Round(time.Second), last.Round(time.Second), time.Since(begun).Round(time.Second))
}
