//go:build around

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestDryRun: the API server takes what the chart makes of values, by its own validation and compiler of
// expressions. It warns of none of it.
func TestDryRun(t *testing.T) {
	cp, _ := needCluster(t)
	must.Get(cp.Kubectl(t.Context(), "create", "namespace", "dry-run"))(t)
	for _, values := range []string{
		"hold=policy",
		"hold=webhook",
		"hold=policy,fenceOwners=true,resizeRight=true,networkPolicy.enabled=true,metrics.secure=true,metrics.dashboard.enabled=true",
		"hold=policy,serviceAccount.name=resizer,flowControl=false,metrics.service=false",
		"hold=policy,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090,initialResources.resizeAfterwards=true",
		"hold=webhook,initialResources.enabled=true,initialResources.prometheusURL=http://prometheus:9090,metrics.service=false",
		"hold=policy,watch=namespace,parts=cluster,fenceOwners=true",
		"hold=webhook,watch=namespace,parts=cluster,webhook.replicas=3",
		"watch=namespace,parts=controller,networkPolicy.enabled=true",
		"parts=controller,serviceAccount.create=false,replicas=1,leaderElection=false",
		"image.digest=sha256:" + strings.Repeat("0", 64) + ",image.pullPolicy=Always,image.pullSecrets[0].name=registry,priorityClassName=system-cluster-critical," +
			"podLabels.team=a,podAnnotations.a=b,extraEnv[0].name=A,extraEnv[0].value=b,extraArgs[0]=--profiling,tolerations[0].operator=Exists," +
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=a," +
			"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists",
	} {
		out, _, err := helm(t.Context(), t, os.DevNull, "template", release, folder(), "--namespace", "dry-run", "--set", "hold=policy", "--set", values)
		if err != nil {
			t.Error(err)
			continue
		}
		file := filepath.Join(t.TempDir(), "all.yaml")
		must.Do(t, os.WriteFile(file, []byte(out), 0o600))
		applied, err := cp.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", file)
		if err != nil {
			t.Errorf("--set %s: %v", values, err)
		}
		if want, got := len(objectsIn(t, out)), strings.Count(applied, "(server dry run)"); err == nil && want != got {
			t.Errorf("--set %s: it took %d of %d objects", values, got, want)
		}
	}
}
