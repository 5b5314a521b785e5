package heartbeat

import (
	"strings"
	"time"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
)

// There reports whether a controller is there at a time of the API server's clock, by the annotations of the heartbeat's object. This is
// what the policies of deploy/cluster compute of a write; a test in pkg/webhook holds the two together.
func There(annotations map[string]string, now time.Time) bool {
	until := annotations[api.ReadyUntilAnnotation]
	return until != "" && now.UTC().Format(time.RFC3339) <= until
}

// LeftOut are the namespaces in which edits are not held all the same, by the same annotations.
func LeftOut(annotations map[string]string) []string {
	return strings.FieldsFunc(annotations[api.LeftOutAnnotation], func(r rune) bool { return r == ',' })
}
