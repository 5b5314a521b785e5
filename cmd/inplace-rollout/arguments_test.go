package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/controller"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// What is wrong with the arguments is said before any cluster is asked, and what
// is allowed with it.
func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		cmd  func() *cobra.Command
		args string
		want string
	}{
		{newPlanCommand, "", "want either a workload, such as sts/web, or -f FILE, or -k FOLDER"},
		{newPlanCommand, "sts/web -f web.yaml", "want either a workload, such as sts/web, or -f FILE, or -k FOLDER"},
		{newPlanCommand, "sts/web -R", "must specify one of -f and -k"},
		{newPlanCommand, "-k . -f web.yaml", "only one of -f or -k can be specified"},
		{newRetryCommand, "", "want either a workload, such as sts/web, or --all-namespaces or --selector"},
		{newRetryCommand, "sts/web -A", "want either a workload, such as sts/web, or --all-namespaces or --selector"},
		{newRetryCommand, "-l a==b=c", `--selector is "a==b=c"`},
		{newCheckCommand, "-o wide", `--output is "wide": want json or yaml, or none for lines`},
		{newPlanCommand, "sts/web --fail-on=restart,never", `--fail-on has "never": want restart, infeasible, unknown`},
		{newPlanCommand, "sts/web -o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newPlanCommand, "sts/web --default-resource-resize-policy=Live", `--default-resource-resize-policy is "Live": want LiveResizeable or RestartOnly`},
		{newEstimateCommand, "", "want either images, such as nginx:1.25, or -f FILE"},
		{newEstimateCommand, "nginx -f web.yaml", "want either images, such as nginx:1.25, or -f FILE"},
		{newEstimateCommand, "nginx --patch", "--patch goes with -f FILE"},
		{newEstimateCommand, "-f web.yaml --patch -o wide", "--patch prints yaml or json"},
		{newEstimateCommand, "nginx -o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newEstimateCommand, "-f web.yaml --policy=sometimes", `--policy is "sometimes": want always, if-not-set, never`},
		{newEstimateCommand, "nginx", "--prometheus-url is required"},
		{newEstimateCommand, "nginx:1:2 --prometheus-url=http://127.0.0.1:1", `"nginx:1:2" is not the name of an image`},
		{newEstimateCommand, "nginx --prometheus-url=http://127.0.0.1:1 --server=http://127.0.0.1:1", `reading what containers have used: asking Prometheus for info: Post "http://127.0.0.1:1/api/v1/query": `},
		{newEstimateCommand, "-f testdata/nothing.yaml --prometheus-url=http://127.0.0.1:1", "testdata/nothing.yaml has no workload and no pod"},
		{newPlanCommand, "sts/web --field-manager=app", "must specify one of -f and -k"},
		{newStatusCommand, "-o xml", `--output is "xml": want json, yaml or wide, or none for a table`},
		{newStatusCommand, "--timeout=1m", "--timeout goes with --watch"},
		{newStatusCommand, "-w --timeout=-1m", "--timeout is -1m0s: want 0 or more"},
		{newStatusCommand, "sts/web -l a=b", "want either a workload, such as sts/web, or --selector"},
		{newStatusCommand, "-l a==b=c", `--selector is "a==b=c"`},
		{newStatusCommand, "sts/web -A", "want either a workload, such as sts/web, or --all-namespaces"},
		{newUndoCommand, "sts/web --to-revision=-1", "--to-revision is -1: want the number of a revision, or 0"},
		{newReleaseCommand, "", "want either a workload, such as sts/web, or --all"},
		{newReleaseCommand, "sts/web --all", "want either a workload, such as sts/web, or --all"},
		{newReleaseCommand, "sts/web -A", "--all-namespaces goes with --all"},
		{controller.NewCommand, "--workers=0", "--workers is 0: at least 1 is needed"},
		{controller.NewCommand, "--when-absent=Wait", `--when-absent is "Wait": want LetGo or Hold`},
		{controller.NewCommand, "--when-room-unknown=Wait", `--when-room-unknown is "Wait": want Keep or Restart`},
		{controller.NewCommand, "--not-ready-timeout=0s", "--not-ready-timeout is 0s: it must be positive"},
		{controller.NewCommand, "--booster-timeout=-1s", "--booster-timeout is -1s: want 0 or more"},
		{controller.NewCommand, "--max-sessions=0", "--max-sessions is 0: at least 1 is needed"},
		{controller.NewCommand, "--kube-api-burst=10", "--kube-api-burst is 10 and --kube-api-qps 0: a burst needs a limit, so give both or none"},
		{controller.NewCommand, "--kube-api-burst=10 --kube-api-qps=-1", "--kube-api-burst is 10 and --kube-api-qps -1: a burst needs a limit, so give both or none"},
		{controller.NewCommand, "--kube-api-burst=-1 --kube-api-qps=5", "--kube-api-burst is -1: want 0 or more"},
		{controller.NewCommand, "--default-resource-resize-policy=Live", `--default-resource-resize-policy is "Live": want LiveResizeable or RestartOnly`},
		{controller.NewCommand, "--check-timeout=0s", "--check-timeout is 0s: it must be positive"},
		{controller.NewCommand, "--on-unknown-check=Fail", `--on-unknown-check is "Fail": want Hold or Pass`},
		{controller.NewCommand, "--checks-prometheus=prom:9090", `--checks-prometheus: "prom:9090" is not a URL of Prometheus`},
		{controller.NewCommand, "--checks-http-config=a", "--checks-http-config goes with --checks-prometheus"},
		{controller.NewCommand, "--checks-http-config=/nothing --checks-prometheus=http://prom:9090", "reading /nothing: "},
		{controller.NewCommand, "--metrics-bind-address=8080", `--metrics-bind-address is "8080": want host:port, :port or 0`},
	} {
		cmd := tt.cmd()
		cmd.SetArgs(strings.Fields(tt.args))
		cmd.SilenceErrors = true
		cmd.SetOut(&bytes.Buffer{})
		must.Fails(t, cmd.Name()+" "+tt.args, cmd.ExecuteContext(t.Context()), tt.want)
	}
}

func TestManifests(t *testing.T) {
	const folder = "testdata/manifests"
	all := "default/statefulset.apps/web other/deployment.apps/web default/daemonset.apps/web"
	for _, tt := range []struct {
		what  string
		files resource.FilenameOptions
		want  string
	}{
		{"a file", resource.FilenameOptions{Filenames: []string{folder + "/all.yaml"}}, all},
		{"two files", resource.FilenameOptions{Filenames: []string{folder + "/all.yaml", folder + "/more/api.yaml"}}, all + " default/deployment.apps/api"},
		{"a folder", resource.FilenameOptions{Filenames: []string{folder}}, all},
		{"a folder with those in it", resource.FilenameOptions{Filenames: []string{folder}, Recursive: true}, all + " default/deployment.apps/api"},
		{"a kustomization", resource.FilenameOptions{Kustomize: "testdata/kustomization"}, "shop/deployment.apps/api"},
	} {
		c := newCluster()
		c.namespace = "default"
		found, err := c.fromFiles(tt.files)
		must.Fails(t, tt.what, err, "")
		names := build.Each(found, func(u *unstructured.Unstructured) string { return u.GetNamespace() + "/" + nameOf(u) })
		must.Equal(t, strings.Join(names, " "), tt.want, "%s: what is found", tt.what)
	}
	_, err := newCluster().fromFiles(resource.FilenameOptions{Filenames: []string{"testdata/nothing.yaml"}})
	must.Fails(t, "a file with nothing", err, "testdata/nothing.yaml has no StatefulSet, Deployment or DaemonSet of apps/v1")
}
