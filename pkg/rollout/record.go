package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
)

// Record is what has happened in a guarded rollout: the annotation inplace-rollout.io/rollout. It is stored before the
// resize that it is about, so that whoever plans next knows which pods have been asked. It begins with the phase, which
// admission policies match.
type Record struct {
	// Phase is one of Pending, Canary, Rolling, Stopped, Reverting and Reverted.
	Phase Phase `json:"phase"`
	// Schema of the record: see [RecordSchema].
	Schema int `json:"version"`
	// Of is the version that is rolled out.
	Of Version `json:"of"`
	// Began is when the workload came to that version, by the clock of the API server.
	Began metav1.Time `json:"began"`
	// Since is when the rollout was recorded first, or tried again, by the controller's clock.
	Since metav1.Time `json:"since"`
	// Tried is since when sizes were asked for that were not proved, by the clock of the API server: after A→B→C, where B never was, when
	// the workload came to B. It is nil if there are none.
	Tried *metav1.Time `json:"tried,omitempty"`
	// From is the revision from before: the last one that was proved. After A→B→C, where B never was, it is A. Of
	// a Deployment, it is the digest of a template.
	From string `json:"from,omitempty"`
	// Promoted: the others need not wait for the canary any longer.
	Promoted bool `json:"promoted,omitempty"`
	// Failed says which pods have failed, and what was seen of them.
	Failed string `json:"failed,omitempty"`
	// Most is how many canaries there were to be at most: a percentage of fewer pods is less.
	Most int `json:"most,omitempty"`
	// Canaries are the pods that were asked while others wait for them.
	Canaries []Canary `json:"canaries,omitempty"`
}

// RecordSchema is the version of the schema of [Record].
const RecordSchema = 1

// maxRecord is how many bytes a record may have.
const maxRecord = 16 << 10

// Canary is a pod that was asked for the size while others wait for it.
type Canary struct {
	// UID, Name and Class of the pod.
	UID   types.UID `json:"uid"`
	Name  string    `json:"pod"`
	Class string    `json:"class,omitempty"`
	// Done is when its resize was seen done, by the controller's clock; zero before.
	Done *metav1.Time `json:"done,omitempty"`
	// Well is since when it is Ready with its size, by the controller's clock, and Ready since when by its kubelet's, in seconds.
	Well  *metav1.Time `json:"well,omitempty"`
	Ready int64        `json:"ready,omitempty"`
	// Proved: it has proved the size. If it goes then, it is not lost.
	Proved bool `json:"proved,omitempty"`
	// Past is how it was before.
	judge.Past
}

// ReadRecord reads the record of a workload; it returns nil if there is none. It fails if the record is of another version, or
// cannot be read.
func ReadRecord(annotations map[string]string) (*Record, error) {
	text := annotations[api.RolloutAnnotation]
	if text == "" {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("annotation %s cannot be read: %w", api.RolloutAnnotation, err)
	}
	if r.Schema != RecordSchema {
		return nil, fmt.Errorf("annotation %s: its version is %d, and this controller knows version %d", api.RolloutAnnotation, r.Schema, RecordSchema)
	}
	return r, nil
}

// String is the annotation's value.
func (r *Record) String() string {
	text, err := json.Marshal(r)
	if err != nil { // it has nothing that cannot be encoded
		panic(err)
	}
	return string(text)
}

// seconds is the time as it is stored.
func seconds(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

// Stopped reports whether a pod has failed, and nothing goes on by itself; false if r is nil.
func (r *Record) Stopped() bool {
	return r != nil && slices.Contains([]Phase{PhaseStopped, PhaseReverting, PhaseReverted}, r.Phase)
}

// roll ends the canary. How containers had ended before is not forgotten: a controller that is restarted would take that for a failure.
func (r *Record) roll() {
	r.Phase = PhaseRolling
	r.Canaries = slices.DeleteFunc(slices.Clone(r.Canaries), func(c Canary) bool { return len(c.Containers) == 0 })
}

// Stopped reports whether the record of a workload says so. One that cannot be read does.
func Stopped(annotations map[string]string) bool {
	r, err := ReadRecord(annotations)
	return err != nil || r.Stopped()
}

// Unproved reports whether the size has failed, or is tried on a few pods, or is to be: it does not get to the others by itself. It is
// false if r is nil. Admission policies ask the same of the phase.
func (r *Record) Unproved() bool { return r != nil && r.Phase != PhaseRolling }

// Unproved returns the record of a workload whose size is not proved, and whose canary nobody has promoted; nil if there is none. It fails
// if the record cannot be read.
func Unproved(annotations map[string]string) (*Record, error) {
	r, err := ReadRecord(annotations)
	if !r.Unproved() || r.PromotedBy(annotations) {
		r = nil
	}
	return r, err
}

// canary returns what is recorded of a pod; nil if it is no canary.
func (r *Record) canary(pod types.UID) *Canary {
	if i := slices.IndexFunc(r.Canaries, func(c Canary) bool { return c.UID == pod }); i >= 0 {
		return &r.Canaries[i]
	}
	return nil
}

// asBefore takes over from an earlier record, which may be nil, how the canary was before, if it was one then.
func (c *Canary) asBefore(earlier *Record) {
	if earlier == nil || earlier.canary(c.UID) == nil {
		return
	}
	before := earlier.canary(c.UID)
	c.Unready = before.Unready
	for name, is := range c.Containers {
		if was := before.Containers[name]; was.Loops != "" {
			is.Loops, is.After, is.Unproved = was.Loops, was.After, was.Unproved
		}
		c.Containers[name] = is
	}
}

// tried returns since when sizes were asked for that were not proved; zero if there are none.
func (r *Record) tried() time.Time { return ptr.Deref(r.Tried, metav1.Time{}).Time }

// health is what the record has of the canary, which was resized then.
func (c *Canary) health(resized time.Time) *judge.Health {
	h := &judge.Health{Past: c.Past, Asked: resized}
	if c.Done != nil {
		h.Done = c.Done.Time
	}
	return h
}

// Name is the value of the annotation with which the rollout is promoted, and, where it was stopped, of the one with which it is tried
// again: a value from before means another rollout, also where it is of the same version.
func (r *Record) Name() string {
	return string(r.Of) + "@" + r.Since.UTC().Format(time.RFC3339)
}

// PromotedBy reports whether somebody has promoted the canary, seen by a controller or not.
func (r *Record) PromotedBy(annotations map[string]string) bool {
	return r.Phase == PhaseCanary && (r.Promoted || annotations[api.PromoteAnnotation] == r.Name())
}

// triedAgainBy reports whether somebody has had the rollout, which was stopped, tried again.
func (r *Record) triedAgainBy(annotations map[string]string) bool {
	word, _, _ := strings.Cut(annotations[api.RetryAnnotation], ";")
	return r.Stopped() && word == r.Name()
}

// room is how many bytes a record may have beside the other annotations of a workload.
func room(annotations map[string]string) int {
	left := 256 << 10 // TotalAnnotationSizeLimitB in k8s.io/apimachinery/pkg/api/validation
	for name, value := range annotations {
		if name != api.RolloutAnnotation {
			left -= len(name) + len(value)
		}
	}
	return min(left-len(api.RolloutAnnotation), maxRecord)
}

// Keep writes the record of a guarded rollout into its workload; none if After is nil. It comes alone, before what it is about.
type Keep struct {
	// Before is the record that is replaced, and After the new one; nil for none.
	Before, After *Record
	// Called is what people call the version that is rolled out, and Says what the condition says then.
	Called Version
	Says   string
}

// Records reports whether the plan writes the record of a guarded rollout, which its condition speaks of.
func (p Plan) Records() bool {
	return slices.ContainsFunc(p.Writes, func(w Write) bool { _, is := w.(Keep); return is })
}

// ToAsk are the pods that are canaries from now on, and have yet to be asked for the size. Those of a rollout that is tried again may have
// it.
func (w Keep) ToAsk() (pods []types.UID) {
	if w.Before == nil || w.After == nil || w.Before.Name() != w.After.Name() {
		return nil
	}
	for _, c := range w.After.Canaries {
		if w.Before.canary(c.UID) == nil {
			pods = append(pods, c.UID)
		}
	}
	return pods
}

// Harmless is that of [Harmless].
func (Keep) Harmless() {}

func (w Keep) String() string {
	if w.After == nil {
		return "remove the record of a guarded rollout"
	}
	return strings.TrimSpace(fmt.Sprintf("record that the guarded rollout of %s is in the phase %s %s", w.After.Of, w.After.Phase, w.After.Failed))
}
