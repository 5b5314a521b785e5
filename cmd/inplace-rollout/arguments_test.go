package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What is wrong with the arguments is said before any cluster is asked, and what
// is allowed with it.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		cmd  func() *cobra.Command
		args string
		want string
	}{
		{newPlanCommand, "", "want either a workload, such as sts/web, or -f FILE"},
		{newPlanCommand, "sts/web -f web.yaml", "want either a workload, such as sts/web, or -f FILE"},
		{newPlanCommand, "sts/web -o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newPlanCommand, "sts/web --default-resource-resize-policy=Live", `--default-resource-resize-policy is "Live": want LiveResizeable or RestartOnly`},
		{newEstimateCommand, "", "want either images, such as nginx:1.25, or -f FILE"},
		{newEstimateCommand, "nginx -f web.yaml", "want either images, such as nginx:1.25, or -f FILE"},
		{newEstimateCommand, "nginx --patch", "--patch goes with -f FILE"},
		{newEstimateCommand, "-f web.yaml --patch -o wide", "--patch prints yaml, or json"},
		{newEstimateCommand, "nginx -o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newEstimateCommand, "-f web.yaml --policy=sometimes", `--policy is "sometimes": want always, if-not-set, never`},
		{newEstimateCommand, "nginx", "--prometheus-url is needed"},
		{newEstimateCommand, "nginx:1:2 --prometheus-url=http://127.0.0.1:1", `"nginx:1:2" names no image`},
		{newEstimateCommand, "-f testdata/nothing.yaml --prometheus-url=http://127.0.0.1:1", "testdata/nothing.yaml has no workload and no pod"},
		{newStatusCommand, "-o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newStatusCommand, "-w -o json", "--watch prints no json: leave one of them away"},
		{newStatusCommand, "sts/web -A", "want either a workload, such as sts/web, or --all-namespaces"},
		{newReleaseCommand, "", "want either a workload, such as sts/web, or --all"},
		{newReleaseCommand, "sts/web --all", "want either a workload, such as sts/web, or --all"},
		{newReleaseCommand, "sts/web -A", "--all-namespaces goes with --all"},
		{newControllerCommand, "--workers=0", "--workers is 0: at least 1 is needed"},
		{newControllerCommand, "--when-absent=Wait", `--when-absent is "Wait": want LetGo or Hold`},
		{newControllerCommand, "--booster-timeout=-1s", "--booster-timeout is -1s: want 0 or more"},
		{newControllerCommand, "--max-sessions=0", "--max-sessions is 0: at least 1 is needed"},
		{newControllerCommand, "--kube-api-burst=10", "--kube-api-burst is 10 and --kube-api-qps 0: a burst needs a limit, so give both or none"},
		{newControllerCommand, "--kube-api-burst=10 --kube-api-qps=-1", "--kube-api-burst is 10 and --kube-api-qps -1: a burst needs a limit, so give both or none"},
		{newControllerCommand, "--kube-api-burst=-1 --kube-api-qps=5", "--kube-api-burst is -1: want 0 or more"},
		{newControllerCommand, "--default-resource-resize-policy=Live", `--default-resource-resize-policy is "Live": want LiveResizeable or RestartOnly`},
		{newControllerCommand, "--metrics-bind-address=8080", `--metrics-bind-address is "8080": want host:port, :port or 0`},
	} {
		cmd := tt.cmd()
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceErrors = true
		cmd.SetOut(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %s", cmd.Name(), tt.args, err, tt.want)
		}
	}
}

func TestManifests(t *testing.T) {
	c := newCluster()
	c.namespace = "default"
	found, err := c.fromFile("testdata/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range found {
		names = append(names, u.GetNamespace()+"/"+nameOf(u))
	}
	if got, want := strings.Join(names, " "), "default/statefulset.apps/web other/deployment.apps/web default/daemonset.apps/web"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if _, err := c.fromFile("testdata/nothing.yaml"); err == nil || !strings.Contains(err.Error(), "has no StatefulSet, Deployment or DaemonSet of apps/v1") {
		t.Errorf("a file with nothing: %v", err)
	}
}
