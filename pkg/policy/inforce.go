package policy

import (
	"maps"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// inForce are the annotations that count as they were when the template was edited, in the order in which [api.InForceAnnotation]
// has their values. The version before wrote down the first two only.
var inForce = []string{
	api.ResizeActionAnnotation, api.ResizePolicyAnnotation, api.CanaryAnnotation, api.CanaryDurationAnnotation, api.OnFailureAnnotation, api.ChecksAnnotation,
}

// InForce returns the settings that count for the rollout in flight: action, policy and guard are those of the time when the
// template was edited, see [AnnotationsInForce]. If those are malformed, which is possible only if they were there before the
// admission policy was, those of now count, so that mending them helps. It fails if those are malformed, too.
func InForce(annotations map[string]string) (Settings, error) {
	settings, err := Read(AnnotationsInForce(annotations))
	if err != nil {
		return Read(annotations)
	}
	return settings, nil
}

// AnnotationsInForce returns the annotations with the values that they had when the template was edited. These are written down
// where one of them has changed since then; else what they say is in force, and so it is where what was written cannot be read.
func AnnotationsInForce(annotations map[string]string) map[string]string {
	written := strings.Split(annotations[api.InForceAnnotation], ";")
	if len(written) != 2 && len(written) != len(inForce) {
		return annotations
	}
	edited := maps.Clone(annotations)
	for i, value := range written {
		edited[inForce[i]] = value
	}
	return edited
}

// ActionInForce returns what the annotations for action and policy said when the template was edited.
func ActionInForce(annotations map[string]string) (action, resizePolicy string) {
	edited := AnnotationsInForce(annotations)
	return edited[api.ResizeActionAnnotation], edited[api.ResizePolicyAnnotation]
}
