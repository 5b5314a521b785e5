package deployment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json" // numbers without a fraction are int64
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	deploymentutil "k8s.io/kubectl/pkg/util/deployment"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// Deployment is a Deployment with its template as it is stored.
type Deployment struct {
	*appsv1.Deployment // without its template

	template *hash.Template // nil where it is watched: see [Kind.whole]
	text     string         // names the template
	size     int            // of it, in bytes
}

// replicaSet is a ReplicaSet with its template as it is stored, but for the pod-template-hash
// in the template's labels. It is shared: do not change it.
type replicaSet struct {
	*appsv1.ReplicaSet // without its template

	template *hash.Template
	hash     *string // the pod-template-hash of the pods; nil if a ReplicaSet of the user's own, which was adopted, has none
	revision int64
	adoption adoption
	previous *previousTemplate // nil if there is no record of adoption, or it is not in there
}

// previousTemplate is the former template of a ReplicaSet that has adopted the Deployment's, and the
// annotations that go with it. The record of adoption has it until it is in the history.
type previousTemplate struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Template    json.RawMessage   `json:"template,omitempty"`

	template *hash.Template
}

// adoption is the record of a ReplicaSet that has adopted the Deployment's template, as it stands
// in an annotation. It says which pods are left that were made from the former template. The
// pods themselves do not show that once admission, such as a vertical autoscaler's, changes
// their size; and a controller that is restarted has to know it, too.
type adoption struct {
	previousTemplate

	// Restarts names the pods that only a new one can replace.
	Restarts []string `json:"restarts,omitempty"`
	// Closed: Restarts names all of them. The ReplicaSet controller has seen the new template,
	// and makes no other pods any more.
	Closed bool `json:"closed,omitempty"`
	// Back: the template is the one from before a guarded rollout that was stopped, and the former one is what has failed.
	Back bool `json:"back,omitempty"`
	// Earlier are pods of Restarts that were to be restarted already when another edit overtook the one before. So
	// they were made from a template before the former one.
	Earlier []remainder `json:"earlier,omitempty"`
}

// remainder is pods that are left of a template.
type remainder struct {
	Template json.RawMessage `json:"template"`
	Pods     []string        `json:"pods"`

	template *hash.Template
}

// remaining returns what is left of the record, and of those before it, when only these pods are still to be restarted.
func (rs *replicaSet) remaining(restarts []string) (left []remainder) {
	all := rs.adoption.Earlier
	if rs.previous != nil {
		all = append(slices.Clone(all), remainder{Template: rs.previous.Template, Pods: rs.adoption.Restarts})
	}
	known := sets.New[string]()
	for _, r := range all {
		r.Pods = slices.DeleteFunc(slices.Clone(r.Pods), func(name string) bool { return known.Has(name) || !slices.Contains(restarts, name) })
		if known.Insert(r.Pods...); len(r.Pods) > 0 {
			left = append(left, r)
		}
	}
	return left
}

// origin is the template that a pod which was made before the adoption was made from. There must be a former template.
func (rs *replicaSet) origin(pod *corev1.Pod) *hash.Template {
	for _, r := range rs.adoption.Earlier {
		if slices.Contains(r.Pods, pod.Name) {
			return r.template
		}
	}
	return rs.previous.template
}

// decodeDeployment reads a Deployment as it is stored. What is decoded already it returns as
// it is. It fails if obj is something else.
func decodeDeployment(obj any) (*Deployment, error) {
	if d, decoded := obj.(*Deployment); decoded {
		return d, nil
	}
	d := &Deployment{Deployment: &appsv1.Deployment{}}
	var err error
	if d.template, err = decode(obj, d.Deployment); err == nil {
		d.text, d.size = hash.Text(d.template.Raw), len(d.template.Raw)
	}
	if u, stored := obj.(*unstructured.Unstructured); stored {
		d.ManagedFields = writes(u)
	}
	return d, err
}

// ofTemplate are the fields of those who have written fields of the pod template.
var ofTemplate = metav1.NewFieldsV1(`{"f:spec":{"f:template":{}}}`)

// writes are the entries of managedFields without the fields, which are large: who has written the object, and when. Of them only is left
// whether the template is among them.
func writes(u *unstructured.Unstructured) (entries []metav1.ManagedFieldsEntry) {
	stored, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "managedFields")
	list, _ := stored.([]any)
	for _, one := range list {
		of, _ := one.(map[string]any)
		manager, _ := of["manager"].(string)
		subresource, _ := of["subresource"].(string)
		text, _ := of["time"].(string)
		entry := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource}
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			entry.Time = ptr.To(metav1.NewTime(at))
		}
		if _, edits, _ := unstructured.NestedFieldNoCopy(of, "fieldsV1", "f:spec", "f:template"); edits {
			entry.FieldsV1 = ofTemplate
		}
		entries = append(entries, entry)
	}
	return entries
}

// decodeReplicaSet does the same for a ReplicaSet.
func decodeReplicaSet(obj any) (*replicaSet, error) {
	if rs, decoded := obj.(*replicaSet); decoded {
		return rs, nil
	}
	rs := &replicaSet{ReplicaSet: &appsv1.ReplicaSet{}}
	var err error
	if rs.template, err = decode(obj, rs.ReplicaSet); err != nil {
		return nil, err
	}
	if u, stored := obj.(*unstructured.Unstructured); stored {
		rs.hash = podTemplateHash(u)
	}
	// One that nobody has numbered yet counts as the oldest, as it does for kubectl.
	rs.revision, _ = deploymentutil.Revision(rs.ReplicaSet)
	rs.readAdoption()
	if rs.template.Revision = rs.revision; rs.previous != nil && rs.previous.template.Revision == rs.revision {
		rs.template.Revision = 0 // it is still that of the former one
	}
	return rs, nil
}

// podTemplateHash returns the label that pods of the ReplicaSet get; nil if they get none. The label
// of that name of the ReplicaSet itself is nobody's concern, and anybody's to change.
func podTemplateHash(rs *unstructured.Unstructured) *string {
	hash, found, err := unstructured.NestedString(rs.Object, "spec", "template", "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey)
	if err != nil || !found {
		return nil
	}
	return &hash
}

// revision is the number that the template had; 0 if it had none.
func (o *previousTemplate) revision() int64 {
	n, _ := strconv.ParseInt(o.Annotations[deploymentutil.RevisionAnnotation], 10, 64)
	return n
}

// readAdoption reads the record of adoption. What cannot be read is not there. Nor is a former template
// that differs in more than cpu and memory: we have not written that, and would create a
// ReplicaSet with it for somebody who may not.
func (rs *replicaSet) readAdoption() {
	if json.Unmarshal([]byte(rs.Annotations[api.AdoptedAnnotation]), &rs.adoption) != nil {
		rs.adoption = adoption{}
	}
	if len(rs.adoption.Template) == 0 {
		return
	}
	if rs.adoption.template = rs.formerly(rs.adoption.Template); rs.adoption.template != nil {
		rs.previous = &rs.adoption.previousTemplate
		rs.previous.template.Revision = rs.previous.revision()
	}
	for i := range rs.adoption.Earlier {
		rs.adoption.Earlier[i].template = rs.formerly(rs.adoption.Earlier[i].Template)
	}
	rs.adoption.Earlier = slices.DeleteFunc(rs.adoption.Earlier, func(r remainder) bool { return r.template == nil })
}

// formerly reads a template that the ReplicaSet had; nil if it cannot have had that.
func (rs *replicaSet) formerly(template []byte) *hash.Template {
	if t, err := hash.NewTemplate(template); err == nil && t.Hash == rs.template.Hash {
		return t
	}
	return nil
}

// decode reads obj into the typed object into, but for its template and managedFields. It
// returns the template without its pod-template-hash. The template is read from what is stored:
// fields that our types lack count too. It fails if obj is not an object as stored.
func decode(obj, into any) (*hash.Template, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T where an object as stored belongs", obj)
	}
	rest := without(without(u.Object, "metadata", "managedFields"), "spec", "template")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(rest, into); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	stored, _, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "template")
	template, _ := stored.(map[string]any)
	if err != nil || template == nil {
		return nil, fmt.Errorf("reading the template of %s %s: %w", u.GetKind(), u.GetName(), cmp.Or(err, errNoTemplate))
	}
	raw, err := json.Marshal(without(template, "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey))
	if err != nil {
		return nil, fmt.Errorf("encoding the template of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return hash.NewTemplate(raw)
}

var errNoTemplate = errors.New("there is none")

// without returns a copy of object without the field at the path. It shares the other fields
// with object.
func without(object map[string]any, path ...string) map[string]any {
	object = maps.Clone(object)
	if len(path) == 1 {
		delete(object, path[0])
	} else if inner, is := object[path[0]].(map[string]any); is {
		object[path[0]] = without(inner, path[1:]...)
	}
	return object
}

func (rs *replicaSet) replicas() int32 { return ptr.Deref(rs.Spec.Replicas, 1) }

// active reports whether the ReplicaSet has, or is to have, pods.
func (rs *replicaSet) active() bool { return rs.replicas() > 0 }

// idle reports whether the ReplicaSet is history: it has no pods, and is to have none.
func (rs *replicaSet) idle() bool {
	return rs.replicas() == 0 && rs.Status.Replicas == 0 && rs.DeletionTimestamp == nil
}

// lags reports whether the ReplicaSet may still get pods of a template that it had before.
func (rs *replicaSet) lags() bool { return rs.Status.ObservedGeneration < rs.Generation }

// adopted reports whether the ReplicaSet has a record of adoption: it has got its template from us, and
// pods that were not made from it may be left in it.
func (rs *replicaSet) adopted() bool {
	_, is := rs.Annotations[api.AdoptedAnnotation]
	return is
}

// acknowledged reports whether the Deployment controller has taken the ReplicaSet for the new
// one since we removed the record, or closed it. We remove the copy of the hold with that. When
// the Deployment controller syncs the new ReplicaSet, it copies the Deployment's annotations to
// it, the hold among them.
func (rs *replicaSet) acknowledged() bool {
	_, copied := rs.Annotations[api.HoldAnnotation]
	return copied
}

// failure returns why the ReplicaSet controller cannot make pods, and since when a quota keeps them out; without a reason if it can.
func (rs *replicaSet) failure() judge.Refusal {
	for _, c := range rs.Status.Conditions {
		if c.Type != appsv1.ReplicaSetReplicaFailure || c.Status != corev1.ConditionTrue {
			continue
		}
		if strings.Contains(c.Message, "exceeded quota") { // the API server says it in words only
			return judge.Refusal{Reason: c.Message, Kind: judge.ReasonQuotaExceeded, Since: c.LastTransitionTime.Time}
		}
		return judge.Refusal{Reason: c.Message, Kind: judge.ReasonProgressing}
	}
	return judge.Refusal{}
}

// byAge orders ReplicaSets as the Deployment controller does when it looks for the
// new one among equals (ReplicaSetsByCreationTimestamp).
func byAge(a, b *replicaSet) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

// notHistory are the annotations of a ReplicaSet that say nothing about its template.
var notHistory = []string{
	api.HoldAnnotation, api.AdoptedAnnotation,
	"deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas", "deployment.kubernetes.io/revision-history",
}

// historyAnnotations are those that go with the template of rs into the history:
// the number of its revision, and the cause of the change.
func historyAnnotations(rs *replicaSet) map[string]string {
	annotations := maps.Clone(rs.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(notHistory, key) })
	return annotations
}

// newHistory returns a ReplicaSet without pods that has the former template of rs, as the
// Deployment controller would have left it: owned by the Deployment, with a pod-template-hash
// of its own. Its name follows from that template, so that a second try makes no second one.
// It is not the name of one of those that are taken.
func newHistory(d *Deployment, rs *replicaSet, taken []*replicaSet) (*unstructured.Unstructured, error) {
	hash, name := "", ""
	for salt := 0; name == "" || slices.ContainsFunc(taken, func(other *replicaSet) bool { return other.Name == name }); salt++ {
		sum := fnv.New32a()
		_, _ = fmt.Fprint(sum, rs.UID, string(rs.previous.Template), salt) // never fails
		hash = rand.SafeEncodeString(fmt.Sprint(sum.Sum32()))
		name = replicaSetName(d.Name, hash)
	}
	template, err := labelled(rs.previous.template.Raw, &hash)
	if err != nil {
		return nil, err
	}
	labels, _, err := unstructured.NestedMap(template, "metadata", "labels")
	if err != nil {
		return nil, fmt.Errorf("reading the labels of the template: %w", err)
	}
	selector := d.Spec.Selector.DeepCopy()
	metav1.AddLabelToSelector(selector, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	fields := map[string]any{}
	for key, part := range map[string]any{"selector": selector, "owner": owner} {
		if fields[key], err = runtime.DefaultUnstructuredConverter.ToUnstructured(part); err != nil {
			return nil, fmt.Errorf("encoding the %s of ReplicaSet %s: %w", key, name, err)
		}
	}
	history := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"name": name, "namespace": d.Namespace, "labels": labels, "ownerReferences": []any{fields["owner"]},
		},
		"spec": map[string]any{
			"replicas": int64(0), "minReadySeconds": int64(d.Spec.MinReadySeconds),
			"selector": fields["selector"], "template": template,
		},
	}}
	history.SetAnnotations(rs.previous.Annotations)
	return history, nil
}

// replicaSetName joins the Deployment's name and the hash, and cuts the former if both are too
// long (generateReplicaSetName in pkg/controller/deployment of Kubernetes).
func replicaSetName(deployment, hash string) string {
	most := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return deployment[:min(len(deployment), most)] + "-" + hash
}

// labelled returns the template as a ReplicaSet of that pod-template-hash has it; with nil, as one without.
func labelled(template []byte, hash *string) (map[string]any, error) {
	var fields map[string]any
	if err := utiljson.Unmarshal(template, &fields); err != nil {
		return nil, fmt.Errorf("decoding a pod template: %w", err)
	}
	if hash == nil {
		return fields, nil
	}
	if err := unstructured.SetNestedField(fields, *hash, "metadata", "labels", appsv1.DefaultDeploymentUniqueLabelKey); err != nil {
		return nil, fmt.Errorf("labelling a pod template: %w", err)
	}
	return fields, nil
}

// written returns the template as it is to be written over that of rs. A quantity that means the same as before is
// written as before: the Deployment controller takes the two for equal, and then the write changes no text but that of
// the size, which is all that the fence around our ServiceAccount lets through.
func (rs *replicaSet) written(template *hash.Template) (map[string]any, error) {
	raw, err := template.SpelledAs(rs.template)
	if err != nil {
		return nil, fmt.Errorf("spelling a pod template: %w", err)
	}
	return labelled(raw, rs.hash)
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// precondition makes a JSON patch fail unless it meets this very version of rs: the API server takes a changed UID or resource
// version for a conflict. The ReplicaSet controller writes a status whenever a pod of it comes or goes, or is Ready, so nor does it
// meet one whose pods have changed since they were seen.
func precondition(rs *replicaSet) []operation {
	return []operation{{"replace", "/metadata/uid", rs.UID}, {"replace", "/metadata/resourceVersion", rs.ResourceVersion}}
}

// unchanged is a precondition of all but the status of rs. Where kubelets reject what it makes, that changes some ten times in a
// second, and a patch of one version would never get through. Of a test that fails see unapplied.
func unchanged(rs *replicaSet) []operation {
	if len(rs.Annotations) == 0 { // a test of nothing fails
		return precondition(rs)
	}
	return []operation{
		{"replace", "/metadata/uid", rs.UID},
		{"test", "/metadata/generation", rs.Generation},
		{"test", "/metadata/ownerReferences", rs.OwnerReferences},
		{"test", "/metadata/annotations", rs.Annotations},
	}
}

// historyPatch gives an idle ReplicaSet the former template of rs.
func historyPatch(idle, rs *replicaSet) ([]byte, error) {
	template, err := idle.written(rs.previous.template)
	if err != nil {
		return nil, err
	}
	return encode(append(precondition(idle),
		operation{"replace", "/spec/template", template},
		operation{"add", "/metadata/annotations", rs.previous.Annotations}))
}

// growth is what annotations of a Deployment and its ReplicaSet may grow by while there is a record of adoption, in bytes.
const growth = 32 << 10

// adoptPatch makes a ReplicaSet of d its new one: see adopt. It records its former template, and with that the pods that
// are still to be restarted. Where kubelets reject what it makes, its status may have changed meanwhile. Lost says that the former
// template is too large for the record; empty if it is not.
func adoptPatch(d *Deployment, w adopt) (patch []byte, lost string, err error) {
	rs := w.set
	fields, err := rs.written(w.template)
	if err != nil {
		return nil, "", err
	}
	annotations, kept, err := adoptionAnnotations(d, rs, adoption{
		previousTemplate: previousTemplate{Annotations: historyAnnotations(rs), Template: rs.template.Raw},
		Restarts:         w.restarts, Earlier: rs.remaining(w.restarts), Back: w.back,
	})
	if err != nil {
		return nil, "", err
	}
	if !kept && ptr.Deref(d.Spec.RevisionHistoryLimit, 1) > 0 {
		lost = notKept(rs.revision, "its template and annotations are too large")
	}
	seen := precondition
	if w.rejects || w.back { // it takes nothing from a pod, and kubelets may reject what comes until then
		seen = unchanged
	}
	patch, err = encode(append(seen(rs),
		operation{"replace", "/spec/template", fields},
		operation{"add", "/metadata/annotations", annotations}))
	return patch, lost, err
}

// revertPatch undoes adoptPatch, but for the number of the revision, which is the Deployment
// controller's to give.
func revertPatch(rs *replicaSet, template *hash.Template) ([]byte, error) {
	fields, err := rs.written(template)
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(rs.Annotations)
	delete(annotations, api.AdoptedAnnotation)
	return encode(append(precondition(rs),
		operation{"replace", "/spec/template", fields},
		operation{"add", "/metadata/annotations", annotations}))
}

// sizedLike returns the template with the cpu and memory of the pod.
func sizedLike(template *hash.Template, pod *corev1.Pod) (*hash.Template, error) {
	fields, err := labelled(template.Raw, nil)
	if err != nil {
		return nil, err
	}
	spec, _, err := unstructured.NestedMap(fields, "spec")
	if err != nil {
		return nil, fmt.Errorf("reading a pod template: %w", err)
	}
	sizes := map[string]corev1.ResourceRequirements{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		sizes[c.Name] = c.Resources
	}
	for _, part := range []string{"initContainers", "containers"} {
		list, _ := spec[part].([]any)
		for _, item := range list {
			c, _ := item.(map[string]any)
			name, _ := c["name"].(string)
			takeSize(c, sizes[name])
		}
	}
	if _, of := spec["resources"]; of && pod.Spec.Resources != nil {
		takeSize(spec, *pod.Spec.Resources)
	}
	fields["spec"] = spec
	raw, err := encode(fields)
	if err != nil {
		return nil, err
	}
	return hash.NewTemplate(raw)
}

// takeSize gives a container, or a pod, this cpu and memory.
func takeSize(c map[string]any, size corev1.ResourceRequirements) {
	resources, _ := c["resources"].(map[string]any)
	if resources == nil {
		resources = map[string]any{}
	}
	for part, list := range map[string]corev1.ResourceList{"requests": size.Requests, "limits": size.Limits} {
		said, _ := resources[part].(map[string]any)
		if said == nil {
			said = map[string]any{}
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			delete(said, string(name))
			if quantity, is := list[name]; is {
				said[string(name)] = quantity.String()
			}
		}
		delete(resources, part)
		if len(said) > 0 {
			resources[part] = said
		}
	}
	c["resources"] = resources
}

// closeAdoptionPatch closes the record of adoption of rs, which has the Deployment's template already, so that no pods but
// these are restarted any more. It takes the copy of the hold away, as endAdoptionPatch does.
func closeAdoptionPatch(d *Deployment, rs *replicaSet, restarts []string) ([]byte, error) {
	closed := rs.adoption
	closed.Restarts, closed.Closed = restarts, true
	annotations, _, err := adoptionAnnotations(d, rs, closed)
	if err != nil {
		return nil, err
	}
	delete(annotations, api.HoldAnnotation)
	return encode(append(precondition(rs), operation{"add", "/metadata/annotations", annotations}))
}

// adoptionAnnotations returns the annotations of rs with a record of adoption. The former template is not kept in it if the API
// server would refuse that many, with those that the Deployment controller copies from d.
func adoptionAnnotations(d *Deployment, rs *replicaSet, m adoption) (annotations map[string]string, kept bool, err error) {
	annotations = map[string]string{}
	maps.Copy(annotations, d.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation) // which it does not copy
	maps.Copy(annotations, rs.Annotations)
	delete(annotations, api.AdoptedAnnotation)
	left := apivalidation.TotalAnnotationSizeLimitB - growth
	for key, value := range annotations {
		left -= len(key) + len(value)
	}
	encoded, err := encode(m)
	if kept = len(encoded) <= left; !kept && err == nil {
		m.previousTemplate, m.Earlier = previousTemplate{}, nil
		encoded, err = encode(m)
	}
	clear(annotations)
	maps.Copy(annotations, rs.Annotations)
	annotations[api.AdoptedAnnotation] = string(encoded)
	return annotations, kept, err
}

// endAdoptionPatch removes the record of adoption, and the annotation by which the Deployment controller will
// acknowledge the ReplicaSet as the new one.
func endAdoptionPatch(rs *replicaSet) ([]byte, error) {
	annotations := maps.Clone(rs.Annotations)
	delete(annotations, api.AdoptedAnnotation)
	delete(annotations, api.HoldAnnotation)
	return encode(append(precondition(rs), operation{"add", "/metadata/annotations", annotations}))
}

func encode(patch any) ([]byte, error) {
	encoded, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return encoded, nil
}
