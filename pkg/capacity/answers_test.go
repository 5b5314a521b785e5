package capacity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
	"github.com/inplace-rollout/inplace-rollout/pkg/rollout"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// objectsOf reads manifests that are separated by lines of three dashes.
func objectsOf(t *testing.T, manifests string) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		if strings.TrimSpace(manifest) == "" {
			continue
		}
		plain := must.Get(yaml.YAMLToJSON([]byte(manifest)))(t)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(plain, nil, nil)
		must.Do(t, err)
		all = append(all, object)
	}
	return all
}

// nameOf is the kind and name of an object.
func nameOf(t *testing.T, object runtime.Object) string {
	t.Helper()
	accessor := must.Get(meta.Accessor(object))(t)
	return fmt.Sprintf("%T %s", object, accessor.GetName())
}

// world has two nodes in zones a and b, of 4 cpus each, and what a pod refers to.
const world = `
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {zone: a, host: a}}, status: {allocatable: {cpu: 4}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {zone: b, host: b}}, status: {allocatable: {cpu: 4}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: {team: x}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: ns}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 5}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: disks, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns, annotations: {pv.kubernetes.io/bind-completed: "yes"}}, spec: {volumeName: data}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: data}, spec: {csi: {driver: disks, volumeHandle: data}, claimRef: {namespace: ns, name: data}}}
`

// TestAnswers asks about a pod that runs on node a with 1 cpu, and whose successor is to have 2.
func TestAnswers(t *testing.T) {
	const (
		onlyA    = "nodeSelector: {host: a}"
		claims   = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"
		port     = "containers: [{name: app, resources: {requests: {cpu: 1}}, ports: [{containerPort: 80, hostPort: 80}]}]"
		full     = "the only node that is large enough has no room beside its pods"
		rules    = "{name: app, restartPolicyRules: [{action: RestartAllContainers}], resources: {requests: {cpu: 3}}}"
		declares = "{apiVersion: v1, kind: Node, metadata: {name: c}, status: {allocatable: {cpu: 1}, declaredFeatures: [RestartAllContainersOnContainerExits]}}\n---\n"
		excluded = " (pod affinity, topology spread constraints or a ReadWriteOncePod claim exclude nodes with room)"
	)
	other := func(node, spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: other, uid: other, labels: {app: other}}, spec: {nodeName: " + node + ", " + spec + "}}"
	}
	apart := func(term string) string {
		return "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{" + term + "}]}}"
	}
	spread := func(more string) string {
		return "topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, topologyKey: zone, maxSkew: 1, labelSelector: {matchLabels: {app: web}}" + more + "}]"
	}
	sibling := func(node, hash string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: s, namespace: ns, uid: s, labels: {app: web, pod-template-hash: " + hash + "}}, spec: {nodeName: " + node + "}}"
	}
	for _, tt := range []struct {
		name     string
		spec     string // of the pod
		besides  string // in the world, in place of what has the same name
		newFirst bool
		hidden   string // resource that may not be read
		kind     string // of the refusal; empty if there is room
		says     string
	}{
		{name: "there is room"},
		{name: "its claim is there", spec: claims},
		{name: "its claim is being deleted", spec: claims, kind: judge.ReasonNoNodeFits, says: "its claim data is being deleted: a new pod could not use it",
			besides: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [kubernetes.io/pvc-protection]}, spec: {volumeName: data}}"},
		{name: "its claim is lost", spec: claims, kind: judge.ReasonNoNodeFits, says: "its claim data is Lost: the volume that it was bound to is gone",
			besides: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns}, spec: {volumeName: data}, status: {phase: Lost}}"},
		{name: "its claim is gone", spec: "volumes: [{name: data, persistentVolumeClaim: {claimName: gone}}]", kind: judge.ReasonNoNodeFits, says: "its claim gone is gone"},
		{name: "its volume is gone", spec: claims, kind: judge.ReasonNoNodeFits, says: "the volume gone of its claim data is gone",
			besides: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns, annotations: {pv.kubernetes.io/bind-completed: "yes"}}, spec: {volumeName: gone}}`},
		{name: "its claim waits for no pod", spec: claims, kind: judge.ReasonNoNodeFits, says: "its claim data is not bound to a volume yet",
			besides: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns}}"},
		{name: "its claim waits for a pod", spec: claims,
			besides: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns}, spec: {storageClassName: late}}"},
		{name: "which no node has the storage for", spec: claims, kind: judge.ReasonNoNodeFits, says: "none of the 2 nodes that are large enough has room beside its pods",
			besides: "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns}, spec: {storageClassName: late, resources: {requests: {storage: 2Gi}}}}\n---\n" +
				"{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: disks}, spec: {storageCapacity: true}}\n---\n" +
				"{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {name: a, namespace: x}, storageClassName: late, capacity: 1Gi, nodeTopology: {matchLabels: {zone: a}}}"},
		{name: "its ephemeral volume can be made in zone b only, where there is no room", kind: judge.ReasonNoNodeFits, says: "none of the 2 nodes that are large enough has room beside its pods",
			spec: "volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: late}}}}]",
			besides: "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: disks, volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [b]}]}]}\n---\n" +
				other("b", "containers: [{name: x, resources: {requests: {cpu: 3}}}]")},
		{name: "its ephemeral volume is of the default class", spec: "volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOncePod]}}}}]"},
		{name: "also where the new one comes first", newFirst: true, spec: "volumes: [{name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOncePod]}}}}]"},
		{name: "its volume is on the node already", spec: onlyA + ", " + claims,
			besides: "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: a}, spec: {drivers: [{name: disks, nodeID: a, allocatable: {count: 1}}]}}"},
		{name: "the node may not have one more volume", spec: onlyA + ", " + claims, kind: judge.ReasonNoNodeFits, says: full,
			besides: "{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: a}, spec: {drivers: [{name: disks, nodeID: a, allocatable: {count: 1}}]}}\n---\n" +
				"{apiVersion: v1, kind: PersistentVolume, metadata: {name: more}, spec: {csi: {driver: disks, volumeHandle: more}, claimRef: {namespace: other, name: more}}}\n---\n" +
				other("a", "volumes: [{name: data, persistentVolumeClaim: {claimName: more}}]")},

		{name: "the template names its node, which has room", spec: "nodeName: a", besides: other("b", "containers: [{name: x, resources: {requests: {cpu: 4}}}]")},
		{name: "the template names its node, which has none", spec: "nodeName: a", kind: judge.ReasonNoNodeFits, says: full,
			besides: other("a", "containers: [{name: x, resources: {requests: {cpu: 3}}}]")},
		{name: "another pod keeps it out of its zone", spec: onlyA, kind: judge.ReasonNoNodeFits, says: full + excluded,
			besides: "{apiVersion: v1, kind: Node, metadata: {name: c, labels: {zone: a}}, status: {allocatable: {cpu: 1}}}\n---\n" +
				other("c", apart("topologyKey: zone, namespaces: [ns], labelSelector: {matchLabels: {app: web}}"))},
		{name: "one that waits does, once it has come to a node that is too small", spec: onlyA, kind: judge.ReasonNoNodeFits, says: full + " and those that are to come" + excluded,
			besides: "{apiVersion: v1, kind: Node, metadata: {name: c, labels: {zone: a, host: c}}, status: {allocatable: {cpu: 1}}}\n---\n" +
				other(`""`, "nodeSelector: {host: c}, "+apart("topologyKey: zone, namespaces: [ns], labelSelector: {matchLabels: {app: web}}"))},
		{name: "by a namespaceSelector", spec: onlyA, kind: judge.ReasonNoNodeFits, says: full + excluded,
			besides: "{apiVersion: v1, kind: Node, metadata: {name: c, labels: {zone: a}}, status: {allocatable: {cpu: 1}}}\n---\n" +
				other("c", apart("topologyKey: zone, namespaceSelector: {matchLabels: {team: x}}, labelSelector: {matchLabels: {app: web}}"))},
		{name: "that selects other namespaces", spec: onlyA,
			besides: "{apiVersion: v1, kind: Node, metadata: {name: c, labels: {zone: a}}, status: {allocatable: {cpu: 1}}}\n---\n" +
				other("c", apart("topologyKey: zone, namespaceSelector: {matchLabels: {team: w}}, labelSelector: {matchLabels: {app: web}}"))},
		{name: "its own anti-affinity merges the new hash", kind: judge.ReasonNoNodeFits, says: full + excluded, besides: sibling("a", "new"),
			spec: onlyA + ", " + apart("topologyKey: host, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: pod-template-hash, operator: In, values: [old]}]}")},
		{name: "and not the old one", besides: sibling("a", "old"),
			spec: onlyA + ", " + apart("topologyKey: host, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: web}, matchExpressions: [{key: pod-template-hash, operator: In, values: [old]}]}")},
		{name: "its zone would have two more than the other one", spec: onlyA + ", " + spread(", nodeAffinityPolicy: Ignore"), besides: sibling("a", "old"),
			kind: judge.ReasonNoNodeFits, says: full + excluded},
		{name: "which is nothing to it where it cannot go", spec: onlyA + ", " + spread(""), besides: sibling("a", "old")},
		{name: "unless it wants more zones", spec: onlyA + ", " + spread(", minDomains: 3"), besides: sibling("a", "old"), kind: judge.ReasonNoNodeFits, says: full + excluded},
		{name: "what it has to be near is where no room is", kind: judge.ReasonNoNodeFits, says: "none of the 2 nodes that are large enough has room beside its pods" + excluded,
			spec:    "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, namespaces: [other], labelSelector: {matchLabels: {app: other}}}]}}",
			besides: other("b", "containers: [{name: x, resources: {requests: {cpu: 3}}}]")},
		{name: "its node is not Ready, and it tolerates everything", spec: "nodeSelector: {host: c}, tolerations: [{operator: Exists}]", kind: judge.ReasonNoNodeFits,
			says:    "no node that is Ready matches the node selector, affinity and tolerations of the pod",
			besides: `{apiVersion: v1, kind: Node, metadata: {name: c, labels: {host: c}}, status: {allocatable: {cpu: 4}, conditions: [{type: Ready, status: Unknown}]}}`},

		{name: "its ServiceAccount is there", spec: "serviceAccountName: web, priorityClassName: high"},
		{name: "its ServiceAccount is gone", spec: "serviceAccountName: gone", kind: judge.ReasonInvalid, says: `a new pod would be refused: error looking up service account ns/gone: serviceaccount "gone" not found`},
		{name: "its PriorityClass is gone", spec: "priorityClassName: gone", kind: judge.ReasonInvalid, says: "a new pod would be refused: no PriorityClass with name gone was found"},
		{name: "its RuntimeClass is gone", spec: "runtimeClassName: gone", kind: judge.ReasonInvalid, says: `a new pod would be refused: RuntimeClass "gone" not found`},
		{name: "its PriorityClass was made again, lower", spec: onlyA + ", priorityClassName: high, priority: 5", kind: judge.ReasonNoNodeFits, says: full,
			besides: "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: -5}\n---\n" + other("a", "containers: [{name: x, resources: {requests: {cpu: 3}}}]")},
		{name: "its RuntimeClass takes more", spec: "runtimeClassName: vm", kind: judge.ReasonNoNodeFits,
			says:    "it needs 5 cpu; the largest node has 4",
			besides: "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 3}}}"},
		{name: "its RuntimeClass is for other nodes", spec: "runtimeClassName: vm", kind: judge.ReasonNoNodeFits,
			says:    "no node that is Ready matches the node selector, affinity and tolerations of the pod",
			besides: "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, scheduling: {nodeSelector: {vm: \"true\"}}}"},
		{name: "another pod has the room that others go for", spec: onlyA, kind: judge.ReasonNoNodeFits, says: full + " and those that are to come",
			besides: "{apiVersion: v1, kind: Pod, metadata: {name: victim, namespace: other, uid: victim, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x]}, spec: {nodeName: a, containers: [{name: x, resources: {requests: {cpu: 2}}}]}}\n---\n" +
				"{apiVersion: v1, kind: Pod, metadata: {name: nominated, namespace: other, uid: nominated}, spec: {priority: 9, containers: [{name: x, resources: {requests: {cpu: 3}}}]}, status: {nominatedNodeName: a}}"},
		{name: "its namespace goes", kind: judge.ReasonInvalid, says: "a new pod would be refused: namespace ns is being terminated",
			besides: "{apiVersion: v1, kind: Namespace, metadata: {name: ns, deletionTimestamp: 2026-01-01T00:00:00Z, finalizers: [x]}}"},
		{name: "its namespace enforces PodSecurity", spec: "hostNetwork: true", kind: judge.ReasonInvalid, says: `a new pod would be refused: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`,
			besides: "{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: {pod-security.kubernetes.io/enforce: baseline}}}"},

		{name: "the new one comes first, and the old one has the host port", newFirst: true, spec: onlyA + ", " + port,
			kind: judge.ReasonNoNodeFits, says: full},
		{name: "another pod has the host port", spec: onlyA + ", " + port, kind: judge.ReasonNoNodeFits, says: full, besides: other("a", port)},
		{name: "the new one comes first, elsewhere", newFirst: true, spec: port},
		{name: "the new one comes first, and the old one has the volume", newFirst: true, spec: claims, kind: judge.ReasonNoNodeFits,
			says:    "none of the 2 nodes that are large enough has room beside its pods" + excluded,
			besides: `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: ns, annotations: {pv.kubernetes.io/bind-completed: "yes"}}, spec: {volumeName: data, accessModes: [ReadWriteOncePod]}}`},

		{name: "the new one comes first, and there is no room beside the old one", newFirst: true, kind: judge.ReasonNoNodeFits, says: full,
			spec: onlyA + ", containers: [{name: app, resources: {requests: {cpu: 1}}}, {name: more, resources: {requests: {cpu: 1500m}}}]"},
		{name: "the new one comes first, near to another workload", newFirst: true, besides: other("a", "containers: []"),
			spec: "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, namespaces: [other], labelSelector: {matchLabels: {app: other}}}]}}"},
		{name: "an init container has the host port of another pod", spec: onlyA + ", initContainers: [{name: i, ports: [{containerPort: 80, hostPort: 80}]}]",
			besides: other("a", "containers: [{name: x, ports: [{containerPort: 80, hostPort: 80}]}]")},
		{name: "a sidecar has", spec: onlyA + ", initContainers: [{name: i, restartPolicy: Always, ports: [{containerPort: 80, hostPort: 80}]}]", kind: judge.ReasonNoNodeFits, says: full,
			besides: other("a", "containers: [{name: x, ports: [{containerPort: 80, hostPort: 80}]}]")},
		{name: "somebody debugs it with more than its namespace allows", spec: "ephemeralContainers: [{name: debug, securityContext: {privileged: true}}]",
			besides: "{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: {pod-security.kubernetes.io/enforce: baseline}}}"},

		{name: "no scheduler asks for the feature of its restart rules", spec: "containers: [" + rules + "]"},
		{name: "a small node declares it", spec: "containers: [" + rules + "]", besides: declares, kind: judge.ReasonNoNodeFits,
			says: "it needs 2 cpu; the only node that it can run on has 1, of those that declare RestartAllContainersOnContainerExits"},
		{name: "a small node does, and its template names another one", spec: "nodeName: a, containers: [" + rules + "]", besides: declares},
		{name: "a pod waits for the node that declares it", spec: onlyA,
			besides: declares + "{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: other, uid: other}, spec: {containers: [" + rules + "]}}"},

		{name: "scheduling gates", spec: "schedulingGates: [{name: wait}]", kind: judge.ReasonRoomUnknown, says: "its template has scheduling gates: whoever removes them decides that"},
		{name: "another scheduler", spec: "schedulerName: mine", kind: judge.ReasonRoomUnknown, says: "the scheduler mine decides that"},
		{name: "devices", spec: "resourceClaims: [{name: gpu, resourceClaimName: gpu}]", kind: judge.ReasonRoomUnknown, says: "it has resource claims (dynamic resource allocation)"},
		{name: "pods may not be listed", hidden: "pods", kind: judge.ReasonRoomUnknown, says: "not allowed to list the pods of nodes"},
		{name: "claims may not be read", hidden: "persistentvolumeclaims", spec: claims, kind: judge.ReasonRoomUnknown, says: "not allowed to get persistent volume claims"},
		{name: "namespaces may not be read", hidden: "namespaces", kind: judge.ReasonRoomUnknown, says: "not allowed to get namespaces"},
		{name: "another scheduler, and its claim is gone", spec: "schedulerName: mine, volumes: [{name: data, persistentVolumeClaim: {claimName: gone}}]",
			kind: judge.ReasonNoNodeFits, says: "its claim gone is gone"},
		{name: "volumes may not be read, and another claim is gone", hidden: "persistentvolumes", kind: judge.ReasonNoNodeFits, says: "its claim gone is gone",
			spec: "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: more, persistentVolumeClaim: {claimName: gone}}]"},
		{name: "namespaces may not be read, and its ServiceAccount is gone", hidden: "namespaces", spec: "serviceAccountName: gone", kind: judge.ReasonInvalid,
			says: `a new pod would be refused: error looking up service account ns/gone: serviceaccount "gone" not found`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := tt.spec
			if !strings.Contains(spec, "containers:") {
				spec = strings.TrimSuffix("containers: [{name: app, resources: {requests: {cpu: 1}}}], "+spec, ", ")
			}
			older := build.Template(t, "{"+spec+"}")
			newer := older.DeepCopy()
			newer.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
			pod := &corev1.Pod{Spec: *older.Spec.DeepCopy()}
			pod.Name, pod.Namespace, pod.UID, pod.Labels = "web", "ns", "web", map[string]string{"app": "web", "pod-template-hash": "old"}
			pod.Spec.NodeName = "a"
			target := must.Get(resize.For(pod, older, newer))(t)
			objects := append(objectsOf(t, tt.besides), pod)
			for _, object := range objectsOf(t, world) {
				if !slices.ContainsFunc(objects, func(other runtime.Object) bool { return nameOf(t, other) == nameOf(t, object) }) {
					objects = append(objects, object)
				}
			}
			client := fake.NewClientset(objects...)
			client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if a.GetResource().Resource != tt.hidden {
					return false, nil, nil
				}
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: tt.hidden}, "", errors.New("no"))
			})
			m := judge.Member{Place: judge.Place{Name: "web", Pod: pod, Target: target}}
			revision := rollout.Revision{Name: "new", Template: newer, Labels: map[string]string{"pod-template-hash": "new"}}
			for _, keep := range []bool{true, false} {
				room := must.Get(New(client, All, build.Start).Room(t.Context(), "web", "ns", []*corev1.Pod{pod}, nil, keep))(t)
				kind, says := tt.kind, tt.says
				if kind == judge.ReasonRoomUnknown && !keep {
					kind, says = "", ""
				}
				got, err := room.Replace(t.Context(), m, revision, tt.newFirst)
				if err != nil || got.Kind != kind || got.Reason != says {
					t.Errorf("keep %t: got %q, %q and %v, want %q, %q", keep, got.Kind, got.Reason, err, kind, says)
				}
				must.Equal(t, room.unknown != "", tt.kind == judge.ReasonRoomUnknown, "keep %t: it is unknown, %q", keep, room.unknown)
			}
		})
	}
}

// TestUnreadable: what could not be read just now is an error, and no answer.
func TestUnreadable(t *testing.T) {
	pod := podOf(t, "web", "node", "1")
	for _, resource := range []string{"nodes", "pods", "namespaces", "resourcequotas", "limitranges"} {
		client := fake.NewClientset(node("node", "4"), pod)
		build.Answers(client, "*", resource, nil, apierrors.NewInternalError(errors.New("no")))
		if full, _, err := New(client, All, build.Start).withoutRoom(t.Context(), []judge.Member{{Place: placeOf(t, pod)}}, []*corev1.Pod{pod}, rollout.Revision{Name: "b"}, false); !apierrors.IsInternalError(err) {
			t.Errorf("%s: got %v and %v, want that it could not be read", resource, full, err)
		}
	}
}
