package hash_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// app is a template with one container, given by its further fields as YAML.
func app(fields string) string {
	return "{spec: {containers: [{name: app, image: 'app:1', " + fields + "}]}}"
}

// spec is a template with further fields of its spec.
func spec(fields string) string {
	return "{spec: {containers: [{name: app, image: 'app:1'}], " + fields + "}}"
}

func TestEqual(t *testing.T) {
	tests := map[string]struct{ a, b string }{
		"a cpu request changes": {app("resources: {requests: {cpu: 100m}}"), app("resources: {requests: {cpu: 200m}}")},
		"cpu and memory appear": {app(""), app("resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}")},
		"cpu and memory of an init container change": {spec("initContainers: [{name: init, resources: {limits: {cpu: 1, memory: 1Gi}}}]"),
			spec("initContainers: [{name: init, resources: {limits: {cpu: 2, memory: 2Gi}}}]")},
		"the pod's own cpu and memory appear": {spec(""), spec("resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}")},
		"resources, requests and limits are empty": {
			spec(""),
			"{spec: {resources: {limits: {}}, " +
				"containers: [{name: app, image: 'app:1', resources: {requests: {}, limits: {}}}]}}",
		},
		"cpu changes beside an equal extended resource":  {app("resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}"), app("resources: {limits: {cpu: 2, nvidia.com/gpu: '1'}}")},
		"a quantity is spelled in binary and in decimal": {app("resources: {limits: {ephemeral-storage: 0.5Gi}}"), app("resources: {limits: {ephemeral-storage: 536870912}}")},
		"a quantity is spelled in milli, with a point and with an exponent": {spec("overhead: {cpu: 1500m, memory: 1.0, other: 1000}"),
			spec("overhead: {cpu: '1.5', memory: 1000m, other: 1e3}")},
		"a quantity below milli is rounded up":              {spec("overhead: {cpu: 0.1m}"), spec("overhead: {cpu: 1m}")},
		"the size limit of a volume is spelled differently": {spec("volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]"), spec("volumes: [{name: v, emptyDir: {sizeLimit: 1024Mi}}]")},
		"a divisor is spelled differently": {app("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}]"),
			app("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1000m}}}]")},
		"keys are in another order": {`{"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}, "spec": {}}`,
			`{"spec": {}, "metadata": {"labels": {"b": "2", "a": "1"}, "name": "x"}}`},
		"nulls, empty lists and zero values mean nothing": {
			app(""),
			"{metadata: {creationTimestamp: null, labels: {}}, spec: {hostNetwork: false, volumes: [], nodeSelector: {}, " +
				"containers: [{name: app, image: 'app:1', args: [], tty: false, workingDir: '', securityContext: null}]}}",
		},
		"a ControllerRevision adds $patch":                {app(""), "{$patch: replace, spec: {containers: [{name: app, image: 'app:1'}]}}"},
		"an empty variable has no value":                  {app("env: [{name: A}]"), app("env: [{name: A, value: ''}]")},
		"the deprecated service account is an alias":      {spec("serviceAccount: robot"), spec("serviceAccountName: robot, serviceAccount: robot")},
		"the service account's name wins over the alias":  {spec("serviceAccountName: robot, serviceAccount: other"), spec("serviceAccountName: robot")},
		"a volume without a source is an empty directory": {spec("volumes: [{name: v}]"), spec("volumes: [{name: v, emptyDir: {}}]")},
		"NotRequired is what the kubelet takes for no resize policy": {app(""),
			app("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: NotRequired}]")},
		"so it makes no difference beside RestartContainer, nor does the order": {app("resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]"),
			app("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]")},
		"resize policies are in another order": {app("resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}, {resourceName: cpu, restartPolicy: RestartContainer}]"),
			app("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}, {resourceName: memory, restartPolicy: RestartContainer}]")},
		"an init container's resize policy has the same default": {spec("initContainers: [{name: init}]"),
			spec("initContainers: [{name: init, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}]")},
		"a tag that moves is always pulled": {
			"{spec: {containers: [{image: app}, {image: 'app:latest'}, {image: 'host:5000/app'}]}}",
			"{spec: {containers: [{image: app, imagePullPolicy: Always}, {image: 'app:latest', imagePullPolicy: Always}, " +
				"{image: 'host:5000/app', imagePullPolicy: Always}]}}",
		},
		"a pinned or malformed image is pulled if not present": {
			"{spec: {initContainers: [{image: 'app:1'}, {image: 'No Image'}, {name: none}]}}",
			"{spec: {initContainers: [{image: 'app:1', imagePullPolicy: IfNotPresent}, " +
				"{image: 'No Image', imagePullPolicy: IfNotPresent}, {name: none, imagePullPolicy: IfNotPresent}]}}",
		},
		"a volume's image has the same defaults": {
			spec("volumes: [{name: a, image: {reference: data}}, {name: b, image: {reference: 'data:1'}}]"),
			spec("volumes: [{name: a, image: {reference: data, pullPolicy: Always}}, " +
				"{name: b, image: {reference: 'data:1', pullPolicy: IfNotPresent}}]"),
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			must.EqualLists(t, differing(t, fromYAML(t, test.a), fromYAML(t, test.b)), nil, "what differs")
		})
	}
}

func TestDifferences(t *testing.T) {
	tests := map[string]struct {
		a, b string
		want []string
	}{
		"the image changes, and cpu": {app("resources: {limits: {cpu: 1}}"), "{spec: {containers: [{name: app, image: 'app:2', resources: {limits: {cpu: 2}}}]}}",
			[]string{"spec.containers[app].image"}},
		"a pod is restarted by kubectl": {
			app(""),
			"{metadata: {annotations: {kubectl.kubernetes.io/restartedAt: now}}, " +
				"spec: {containers: [{name: app, image: 'app:1'}]}}",
			[]string{"metadata.annotations[kubectl.kubernetes.io/restartedAt]"},
		},
		"an empty label appears": {"{}", "{metadata: {labels: {a: ''}}}", []string{"metadata.labels.a"}},
		"other resources change": {
			app("resources: {limits: {cpu: 1, ephemeral-storage: 1Gi, nvidia.com/gpu: 1}}"),
			app("resources: {limits: {cpu: 1, ephemeral-storage: 2Gi}, requests: {hugepages-2Mi: 2Mi}}"),
			[]string{
				"spec.containers[app].resources.limits.ephemeral-storage",
				"spec.containers[app].resources.limits[nvidia.com/gpu]",
				"spec.containers[app].resources.requests.hugepages-2Mi",
			},
		},
		"a zero request is not an absent one": {app(""), app("resources: {requests: {ephemeral-storage: 0}}"),
			[]string{"spec.containers[app].resources.requests.ephemeral-storage"}},
		"resource claims change": {app("resources: {claims: [{name: gpu}]}"), app("resources: {claims: [{name: npu}]}"),
			[]string{"spec.containers[app].resources.claims[gpu]", "spec.containers[app].resources.claims[npu]"}},
		"the resize policy changes": {app("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]"),
			app("resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]"), []string{"spec.containers[app].resizePolicy[0]"}},
		"cpu counts where it is not that of a container": {spec("overhead: {cpu: 1}"), spec("overhead: {cpu: 2}, nodeSelector: {cpu: fast}"),
			[]string{"spec.nodeSelector.cpu", "spec.overhead.cpu"}},
		"storage requested for an ephemeral volume grows": {spec("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 1Gi}}}}}}]"),
			spec("volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {resources: {requests: {storage: 2Gi}}}}}}]"),
			[]string{"spec.volumes[v].ephemeral.volumeClaimTemplate.spec.resources.requests.storage"}},
		"a default gives way":                      {spec(""), spec("terminationGracePeriodSeconds: 0, dnsPolicy: Default"), []string{"spec.dnsPolicy", "spec.terminationGracePeriodSeconds"}},
		"a pull policy is not the image's default": {app(""), app("imagePullPolicy: Always"), []string{"spec.containers[app].imagePullPolicy"}},
		"false is not absent where the API can tell them apart": {app(""), "{spec: {hostUsers: false, containers: [{name: app, image: 'app:1', securityContext: {runAsUser: 0}}]}}",
			[]string{"spec.containers[app].securityContext.runAsUser", "spec.hostUsers"}},
		"an empty object is not an absent one": {
			spec("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a}]}}"),
			spec("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"[{topologyKey: a, namespaceSelector: {}}]}}"),
			[]string{"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaceSelector"},
		},
		"unknown fields count, even if zero": {"{}", "{future: 1, spec: {future: false, containers: [{name: app, future: ''}]}, metadata: {$patch: replace}}",
			[]string{"future", "metadata.$patch", "spec.containers[app]", "spec.future"}},
		"a key with dots is no path": {"{}", "{spec.dnsPolicy: ClusterFirst, spec: {'': {}}}", []string{"[spec.dnsPolicy]", `spec[""]`}},
		"a number is not the string of it": {"{spec: {containers: [{name: app, ports: [{containerPort: 80}]}]}}",
			"{spec: {containers: [{name: app, ports: [{containerPort: '80'}]}]}}", []string{"spec.containers[app].ports[0].containerPort"}},
		"a container is put first":        {app(""), "{spec: {containers: [{name: proxy}, {name: app, image: 'app:1'}]}}", []string{"spec.containers[proxy]"}},
		"the first variable appears":      {app(""), app("env: [{name: A, value: a}]"), []string{"spec.containers[app].env[A]"}},
		"the order of containers changes": {"{spec: {containers: [{name: a}, {name: b}]}}", "{spec: {containers: [{name: b}, {name: a}]}}", []string{"spec.containers"}},
		"elements without names, or with the same one, are counted": {
			app("args: [a, b], volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}]"),
			app("args: [a, c, ''], volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /c}]"),
			[]string{
				"spec.containers[app].args[1]",
				"spec.containers[app].args[2]",
				"spec.containers[app].volumeMounts[1].mountPath",
			},
		},
		"an init container becomes an ordinary one": {"{spec: {initContainers: [{name: a}]}}", "{spec: {containers: [{name: a}]}}",
			[]string{"spec.containers[a]", "spec.initContainers[a]"}},
		"a volume changes its kind": {spec("volumes: [{name: v}]"), spec("volumes: [{name: v, configMap: {name: c}}]"),
			[]string{"spec.volumes[v].configMap.name", "spec.volumes[v].emptyDir"}},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			a, b := fromYAML(t, test.a), fromYAML(t, test.b)
			must.EqualLists(t, differing(t, a, b), test.want, "what differs")
			must.EqualLists(t, differing(t, b, a), test.want, "the other way round")
		})
	}
}

func TestBadInput(t *testing.T) {
	for sentence, raw := range map[string]string{
		"nothing":            "",
		"not JSON":           "spec: {}",
		"cut off":            `{"spec": {`,
		"more than a value":  "{} {}",
		"a list":             "[]",
		"null":               "null",
		"a string":           `"spec"`,
		"trailing gibberish": "{}}",
	} {
		t.Run(sentence, func(t *testing.T) {
			const reason = "decoding pod template: "
			_, err := hash.Of([]byte(raw))
			wantError(t, err, reason)
			_, err = hash.Differences([]byte(raw), []byte("{}"))
			wantError(t, err, "reading the first template: "+reason)
			_, err = hash.Differences([]byte("{}"), []byte(raw))
			wantError(t, err, "reading the second template: "+reason)
		})
	}
}

func wantError(t *testing.T, err error, prefix string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("got error %v, want one that starts with %q", err, prefix)
	}
}

// TestGolden fails when the hash of a template changes. It must not, although no hash is stored anywhere: while the
// controller is upgraded, its old and its new version would say different things about the same template. Only a hash
// that was wrong is a reason to use -update: one that was the same for different templates, or different for equal ones.
func TestGolden(t *testing.T) {
	templates, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(templates) == 0 {
		t.Fatalf("templates %v, error %v", templates, err)
	}
	for _, file := range templates {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := hashOf(t, fromFile(t, file)) + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".hash"
			if *update {
				must.Do(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want := must.Get(os.ReadFile(filepath.Clean(golden)))(t)
			must.Equal(t, got, string(want), "the hash")
		})
	}
}

func TestWhatAnAPIServerPersists(t *testing.T) {
	tests := map[string]struct{ a, b string }{
		"defaults make no difference":            {"kitchen-sink", "kitchen-sink-defaulted"},
		"the server's version makes none either": {"persisted-1.33", "persisted-1.37"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			a, b := fromFile(t, "testdata/"+test.a+".yaml"), fromFile(t, "testdata/"+test.b+".yaml")
			must.EqualLists(t, differing(t, a, b), nil, "what differs")
		})
	}
}

// T is what *testing.T and *rapid.T have in common here.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func fromFile(t T, path string) []byte {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Clean(path)))(t)
	return fromYAML(t, string(text))
}

func fromYAML(t T, text string) []byte {
	t.Helper()
	raw := must.Get(yaml.YAMLToJSON([]byte(text)))(t)
	return raw
}

func toJSON(t T, value any) []byte {
	t.Helper()
	raw := must.Get(json.Marshal(value))(t)
	return raw
}

func hashOf(t T, raw []byte) string {
	t.Helper()
	sum := must.Get(hash.Of(raw))(t)
	if len(sum) != 32 || strings.Trim(sum, "0123456789abcdef") != "" {
		t.Errorf("hash %q is not 32 hexadecimal digits", sum)
	}
	return sum
}

// differing returns the differences of two templates, and checks that there are none exactly if the hashes are equal.
func differing(t T, a, b []byte) []string {
	t.Helper()
	paths := must.Get(hash.Differences(a, b))(t)
	must.Equal(t, hashOf(t, a) == hashOf(t, b), len(paths) == 0, "equal hashes, where they differ at %q", paths)
	if !slices.IsSorted(paths) {
		t.Errorf("%q are not sorted", paths)
	}
	return paths
}

// TestNewTemplateRoundsQuantities: a manifest has the quantities as its author wrote them, and the API server stores
// them rounded up.
func TestNewTemplateRoundsQuantities(t *testing.T) {
	template := func(resources string) *hash.Template {
		raw := fmt.Sprintf(`{"spec": {"resources": %s, "initContainers": [{"name": "init", "resources": %s}], "containers": [{"name": "app", "resources": %s}]}}`,
			resources, resources, resources)
		return must.Get(hash.NewTemplate([]byte(raw)))(t)
	}
	manifest := template(`{"requests": {"cpu": "100.5m", "memory": "0.0001"}, "limits": {"cpu": "0.2000001"}}`)
	stored := template(`{"requests": {"cpu": "101m", "memory": "1m"}, "limits": {"cpu": "201m"}}`)
	if changes := resize.Between(stored.PodTemplateSpec, manifest.PodTemplateSpec); len(changes) > 0 {
		t.Errorf("what the API server stores differs from the manifest: %s", resize.Describe(changes))
	}
	if !stored.Same(manifest) {
		t.Error("what the API server stores is not the same as the manifest")
	}
}

// TestSpelledAs: what is equal is spelled as before, so that no text changes but that of the size.
func TestSpelledAs(t *testing.T) {
	template := func(cpu, quantity string) *hash.Template {
		raw := strings.NewReplacer("CPU", cpu, "QUANTITY", quantity).Replace(`{"metadata":{"labels":{"a":"1Gi"}},"spec":{"containers":[
			{"env":[{"name":"A","value":"1Gi"},{"name":"B","valueFrom":{"resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}}],"name":"app",
				"resources":{"limits":{"cpu":"CPU","ephemeral-storage":"QUANTITY","example.com/device":"QUANTITY"},"requests":{"hugepages-2Mi":"QUANTITY"}}}],
			"initContainers":[{"env":[{"name":"B","valueFrom":{"resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}}],"name":"init","resources":{"limits":{"ephemeral-storage":"QUANTITY"}}}],
			"overhead":{"memory":"QUANTITY"},"resources":{"limits":{"cpu":"CPU","memory":"QUANTITY"}},
			"volumes":[{"emptyDir":{"sizeLimit":"QUANTITY"},"name":"a"},
				{"downwardAPI":{"items":[{"path":"p","resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}]},"name":"b"},
				{"name":"c","projected":{"sources":[{"downwardAPI":{"items":[{"path":"p","resourceFieldRef":{"divisor":"QUANTITY","resource":"limits.memory"}}]}}]}},
				{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"QUANTITY"}}}}},"name":"d"}]}}`)
		var compact bytes.Buffer
		must.Do(t, json.Compact(&compact, []byte(raw)))
		return must.Get(hash.NewTemplate(compact.Bytes()))(t)
	}
	before, after := template("1", "1Gi"), template("2", "1073741824")
	if before.Hash != after.Hash || before.Same(after) {
		t.Fatalf("the edit is not of cpu alone: %s", before.Differs(after))
	}
	must.Equal(t, sorted(t, must.Get(after.SpelledAs(before))(t)), sorted(t, template("2", "1Gi").Raw), "as the one before")
	// What is not equal stays as it is, and so does what was not there.
	other := template("1", "2Gi")
	must.Equal(t, sorted(t, must.Get(after.SpelledAs(other))(t)), sorted(t, after.Raw), "as another template")
	empty := must.Get(hash.NewTemplate([]byte(`{"spec":{"containers":[]}}`)))(t)
	must.Equal(t, sorted(t, must.Get(after.SpelledAs(empty))(t)), sorted(t, after.Raw), "as an empty template")
}

// sorted is JSON with the keys of its objects in order.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	must.Do(t, json.Unmarshal(text, &value))
	encoded := must.Get(json.Marshal(value))(t)
	return string(encoded)
}

// TestSameText: the built-in controllers of sets make a new revision of another spelling.
func TestSameText(t *testing.T) {
	of := func(limit string) *corev1.PodTemplateSpec {
		size := resource.MustParse(limit)
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}}}
	}
	for other, want := range map[string]bool{"1Gi": true, "1024Mi": true, "1073741824": false, "2Gi": false} {
		must.Equal(t, hash.SameText(of("1Gi"), of(other)), want, "1Gi and %s", other)
		brief := hash.Brief(of("1Gi"))
		again := hash.Brief(&brief)
		must.Equal(t, hash.SameText(&again, of(other)), want, "1Gi, kept in brief, and %s", other)
	}
}
