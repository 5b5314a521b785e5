package initialresources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

func usageOf(t *testing.T, flags string) (usageOptions, error) {
	t.Helper()
	o := newUsageOptions()
	cmd := &cobra.Command{}
	o.addFlags(cmd)
	must.Do(t, cmd.ParseFlags(strings.Fields(flags)))
	return o, o.complete()
}

func TestUsageFlags(t *testing.T) {
	const server = "--prometheus-url=http://127.0.0.1:9090 "
	o := must.Get(usageOf(t, server))(t)
	// The proposal's ladder; only with a flag are other namespaces told of.
	want := estimate.Default()
	if l := o.ladder; l.Percentile != want.Percentile || !slices.Equal(l.Rungs, want.Rungs) || !slices.Equal(l.Scopes, want.Scopes[:1]) ||
		l.OOMPercent != want.OOMPercent || l.OOMLeast.Cmp(want.OOMLeast) != 0 || len(l.Least) != 2 {
		t.Errorf("without flags the ladder is %+v, want %+v", l, want)
	}
	if o.history.Window != 30*24*time.Hour || o.history.ByContainer {
		t.Errorf("without flags %+v", o.history)
	}
	if h := o.history; !slices.Equal(h.CAdvisor, []string{`job="kubelet"`}) || !slices.Equal(h.StateMetrics, []string{`job="kube-state-metrics"`}) {
		t.Errorf("without flags cAdvisor is %q, kube-state-metrics %q", h.CAdvisor, h.StateMetrics)
	}
	if o, err := usageOf(t, server+"--cadvisor-matcher= --kube-state-metrics-matcher=job=ksm"); err != nil ||
		!slices.Equal(o.history.CAdvisor, []string{""}) || !slices.Equal(o.history.StateMetrics, []string{"job=ksm"}) {
		t.Errorf("with flags cAdvisor is %q, kube-state-metrics %q: %v", o.history.CAdvisor, o.history.StateMetrics, err)
	}

	o = must.Get(usageOf(t, server+`--percentile=95 --rung=1d:tag:10,2d:image:5 --rung=60d:image:1 --cluster-wide --key=image,container
		--least-cpu=5m --least-memory=16Mi --oom-percent=50 --oom-least=1Gi --matcher=cluster="eu-1" --matcher=job=~"a,b" --metric-cpu=cpu`))(t)
	rungs := make([]string, len(o.ladder.Rungs))
	for i, r := range o.ladder.Rungs {
		rungs[i] = r.String()
	}
	must.Equal(t, strings.Join(rungs, " "), "1d:tag:10 2d:image:5 60d:image:1", "rungs")
	if l := o.ladder; l.Percentile != 95 || !slices.Equal(l.Scopes, want.Scopes) || l.OOMPercent != 50 || l.OOMLeast.String() != "1Gi" ||
		l.Least.Cpu().String() != "5m" || l.Least.Memory().String() != "16Mi" {
		t.Errorf("the ladder is %+v", l)
	}
	if h := o.history; h.Window != 60*24*time.Hour || !h.ByContainer || !slices.Equal(h.Matchers, []string{`cluster="eu-1"`, `job=~"a,b"`}) || h.CPU != "cpu" {
		t.Errorf("the history is %+v", h)
	}

	for flags, want := range map[string]string{
		"":                            "--prometheus-url is required",
		"--prometheus-url=prometheus": `--prometheus-url is "prometheus": want a URL`,
		"--prometheus-url=prom:9090":  `--prometheus-url is "prom:9090": want a URL`,
		server + "--prometheus-client-cert=tls.crt":                                 "--prometheus-client-cert and --prometheus-client-key go together",
		server + "--prometheus-http-config=a --prometheus-ca-file=b":                "--prometheus-http-config cannot be combined",
		server + "--prometheus-http-config=a --prometheus-insecure-skip-tls-verify": "--prometheus-http-config cannot be combined",
		server + "--percentile=0":                                                   "--percentile is 0: want more than 0",
		server + "--percentile=101":                                                 "--percentile is 101: want more than 0",
		server + "--oom-percent=-1":                                                 "--oom-percent is -1",
		server + "--least-cpu=0":                                                    "--least-cpu and --least-memory: want more than 0",
		server + "--key=command":                                                    `--key is "command": want image or image,container`,
		server + "--rung=7d:tag":                                                    `--rung: "7d:tag" is not a rung`,
		server + "--default-requests=/nonexistent":                                  "--default-requests: reading /nonexistent",
		server + "--rung=":                                                          "--rung: at least one is needed",
	} {
		_, err := usageOf(t, flags)
		must.Fails(t, fmt.Sprint(flags), err, want)
	}
}
