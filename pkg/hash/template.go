package hash

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/inplace-rollout/inplace-rollout/pkg/resize"
)

// Template is a pod template that pods of a workload may have been made from.
type Template struct {
	*corev1.PodTemplateSpec

	// Raw is the template as it is stored: newer servers may have fields that our types lack.
	Raw []byte
	// Hash is the resource-free hash, as [Of] returns it.
	Hash string
	// Renewed is when the revision was last written that has the template, by the clock of the API server, such as when the workload
	// came back to it; zero if it is none of a revision.
	Renewed time.Time
	// Revision is its number in the history of the workload, as `kubectl rollout history` shows it; 0 if it has none.
	Revision int64
}

// NewTemplate reads a template from JSON, and rounds its quantities up as the API server does. It fails if raw is not a
// pod template.
func NewTemplate(raw []byte) (*Template, error) {
	t := &Template{Raw: raw, PodTemplateSpec: &corev1.PodTemplateSpec{}}
	if err := json.Unmarshal(raw, t.PodTemplateSpec); err != nil {
		return nil, fmt.Errorf("decoding a pod template: %w", err)
	}
	resize.RoundUp(&t.Spec)
	var err error
	if t.Hash, err = Of(raw); err != nil {
		return nil, fmt.Errorf("hashing a pod template: %w", err)
	}
	return t, nil
}

// OfRevision reads the template out of the patch that a ControllerRevision of a StatefulSet or DaemonSet stores (getPatch
// in pkg/controller/statefulset and pkg/controller/daemon of Kubernetes). It fails if there is none that can be read.
func OfRevision(stored *appsv1.ControllerRevision) (*Template, error) {
	var patch struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(stored.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("decoding ControllerRevision %s: %w", stored.Name, err)
	}
	template, err := NewTemplate(patch.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("reading ControllerRevision %s: %w", stored.Name, err)
	}
	template.Revision, template.Renewed = stored.Revision, stored.CreationTimestamp.Time
	for _, entry := range stored.ManagedFields {
		if entry.Time != nil && entry.Time.After(template.Renewed) {
			template.Renewed = entry.Time.Time
		}
	}
	return template, nil
}

// Same reports whether the Deployment controller takes the two templates for the same one. Fields that our types lack
// count too, by the hash. Comparing every field takes long, and is seldom necessary.
func (t *Template) Same(other *Template) bool {
	switch {
	case t.Hash != other.Hash:
		return false
	case bytes.Equal(t.Raw, other.Raw):
		return true
	case len(resize.Between(t.PodTemplateSpec, other.PodTemplateSpec)) > 0:
		return false
	default:
		return equality.Semantic.DeepEqual(t.PodTemplateSpec, other.PodTemplateSpec)
	}
}

// SameText reports whether two templates are written in the same way, as the StatefulSet and the
// DaemonSet controller compare them: a quantity that is spelled otherwise makes a new revision.
func SameText(a, b *corev1.PodTemplateSpec) bool {
	return Brief(a).Name == Brief(b).Name
}

// SameRevision reports whether the StatefulSet and the DaemonSet controller take the two templates for the same one.
func (t *Template) SameRevision(other *Template) bool {
	return t.Same(other) && SameText(t.PodTemplateSpec, other.PodTemplateSpec)
}

// Brief returns nothing of a template but its name by [SameText], and as generation how large it is. That is kept in memory instead
// of it. It takes a template that is brief already, too.
func Brief(template *corev1.PodTemplateSpec) (brief corev1.PodTemplateSpec) {
	if len(template.Spec.Containers) == 0 && template.Name != "" {
		return *template
	}
	rounded := template.DeepCopy()
	resize.RoundUp(&rounded.Spec)
	if text, err := json.Marshal(rounded); err == nil { // always
		brief.Name, brief.Generation = Text(text), int64(len(text))
	}
	return brief
}

// Means reports whether the two templates mean the same, however they are spelled. The API server spells out defaults
// when it stores a template.
func (t *Template) Means(other *Template) bool {
	return t.Hash == other.Hash && len(resize.Between(t.PodTemplateSpec, other.PodTemplateSpec)) == 0
}

// Digest names the template by what it means: two have the same one exactly when each [Template.Means] the other.
func (t *Template) Digest() string {
	sum := fnv.New64a()
	_, _ = fmt.Fprint(sum, t.Hash) // never fails
	for _, size := range resize.Between(&corev1.PodTemplateSpec{}, t.PodTemplateSpec) {
		_, _ = fmt.Fprintln(sum, size.Container, size.Resource, size.Side, canonicalQuantity(size.To))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// SpelledAs returns the template as it is stored, but with each quantity that means the same in other spelled as there:
// what is written over other then differs from it in nothing that means the same.
func (t *Template) SpelledAs(other *Template) ([]byte, error) {
	fields, err := decode(t.Raw)
	if err != nil {
		return nil, err
	}
	before, err := decode(other.Raw)
	if err != nil {
		return nil, err
	}
	spelled, err := json.Marshal(spellAs("", fields, before))
	if err != nil {
		return nil, fmt.Errorf("encoding a pod template: %w", err)
	}
	return spelled, nil
}

// spellAs returns value, where a quantity that is equal to that of other at the same path is the one of other. Objects
// and lists are changed in place.
func spellAs(path string, value, other any) any {
	switch v := value.(type) {
	case map[string]any:
		before, _ := other.(map[string]any)
		for key, each := range v {
			at := elementOf(path, key)
			if quantities(path) {
				at = path
			}
			v[key] = spellAs(at, each, before[key])
		}
	case []any:
		before, _ := other.([]any)
		for i := range v {
			if i < len(before) {
				v[i] = spellAs(path+"[]", v[i], before[i])
			}
		}
	default:
		if quantities(path) && sameQuantity(v, other) {
			return other
		}
	}
	return value
}

func sameQuantity(a, b any) bool {
	one, errOne := resource.ParseQuantity(fmt.Sprint(a))
	other, errOther := resource.ParseQuantity(fmt.Sprint(b))
	return errOne == nil && errOther == nil && one.Cmp(other) == 0
}

// Differs says where newer differs from t in more than cpu and memory; empty if it does not.
func (t *Template) Differs(newer *Template) string {
	if t.Hash == newer.Hash {
		return ""
	}
	paths, err := Differences(t.Raw, newer.Raw)
	if err != nil || len(paths) == 0 {
		return "the template changed"
	}
	const most = 3
	if len(paths) > most {
		paths = append(paths[:most:most], "…")
	}
	return "the template changed in " + strings.Join(paths, ", ")
}
