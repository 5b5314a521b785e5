package estimate

import (
	"encoding/json"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are those that are estimated, each by itself.
var Resources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// What has capped an estimate, or raised it to a minimum.
const (
	CappedByLimitRange = "LimitRange"
	CappedByNode       = "node"  // the largest has no more
	CappedByLimit      = "limit" // the container's own
)

// Estimate is what a container would request of a resource, and why. Its JSON is what a
// pod's annotation and the ConfigMaps tell of it.
type Estimate struct {
	Resource corev1.ResourceName `json:"-"`
	Request  resource.Quantity   `json:"request"`
	From     From                `json:"from"`
	Window   Window              `json:"window,omitzero"`
	// Percentile of the samples, from 0 to 100.
	Percentile float64 `json:"percentile,omitzero"`
	// Samples is how many there were.
	Samples int   `json:"samples"`
	Scope   Scope `json:"scope"`
	// Capped is what has kept the request from being what the samples say; empty if nothing has.
	Capped string `json:"capped,omitempty"`
	// OOMKills for which memory was raised.
	OOMKills int `json:"oomKills,omitempty"`
}

const mebibyte = 1 << 20

// size sets what is requested, by the samples.
func (l Ladder) size(e *Estimate, samples Samples) {
	used := samples.Quantile(l.Percentile / 100)
	if kills := samples.OOMKills(); e.Resource == corev1.ResourceMemory && kills > 0 {
		used += max(used*l.OOMPercent/100, l.OOMLeast.AsApproximateFloat64())
		e.OOMKills = kills
	}
	e.Request = rounded(e.Resource, used)
	if least, ok := l.Least[e.Resource]; ok && e.Request.Cmp(least) < 0 {
		e.Request = plain(e.Resource, least)
	}
}

// rounded is a quantity of at least as much: whole thousandths of a core of cpu, but for
// the billionths that a float's precision adds; whole mebibytes of memory.
func rounded(name corev1.ResourceName, used float64) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(int64(math.Ceil(used*1000-1e-6)), resource.DecimalSI)
	}
	return *resource.NewQuantity(int64(math.Ceil(used/mebibyte))*mebibyte, resource.BinarySI)
}

// plain is a quantity that is written with a suffix at most: admission takes no exponent.
func plain(name corev1.ResourceName, q resource.Quantity) resource.Quantity {
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(q.MilliValue(), resource.DecimalSI)
	}
	return *resource.NewQuantity(q.Value(), resource.BinarySI)
}

// Value is the estimate as the value of an entry in a ConfigMap: what is requested, a
// space, and all of it as JSON.
func (e Estimate) Value() string {
	why, err := json.Marshal(e)
	if err != nil { // none of the fields can fail
		panic(fmt.Sprintf("encoding an estimate: %v", err))
	}
	return e.Request.String() + " " + string(why)
}
