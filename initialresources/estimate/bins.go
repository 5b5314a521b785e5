package estimate

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Bin is how many samples are above one value, and not above another. The first has those
// of its lower end, too.
type Bin struct {
	From    resource.Quantity `json:"from"`
	To      resource.Quantity `json:"to"`
	Samples int               `json:"samples"`
}

// Histogram sorts samples of a resource into bins, the lowest first: at most so many, all
// as wide, with round ends, and with samples in the first and the last.
func Histogram(samples Samples, name corev1.ResourceName, most int) []Bin {
	if samples == nil || samples.Count() == 0 {
		return nil
	}
	unit, next := 0.001, nextDecimal // thousandths of a core
	if name == corev1.ResourceMemory {
		unit, next = mebibyte, func(n int) int { return 2 * n }
	}
	least, greatest := math.Inf(1), math.Inf(-1)
	for value := range samples.All() {
		least, greatest = min(least, value), max(greatest, value)
	}
	width := 1
	bin := func(value float64) int { return max(0, int(math.Ceil(value/unit/float64(width)-1e-9))-1) }
	for bin(greatest)-bin(least) >= most {
		width = next(width)
	}
	first := bin(least)
	bins := make([]Bin, bin(greatest)-first+1)
	counts := make([]float64, len(bins))
	for value, count := range samples.All() {
		counts[bin(value)-first] += count
	}
	for i := range bins {
		lower := float64((first+i)*width) * unit
		bins[i] = Bin{From: rounded(name, lower), To: rounded(name, lower+float64(width)*unit), Samples: int(math.Round(counts[i]))}
	}
	return bins
}

// nextDecimal is the next of 1, 2, 5, 10, 20, 50 …
func nextDecimal(n int) int {
	leading := n
	for leading >= 10 {
		leading /= 10
	}
	if leading == 2 {
		return n / 2 * 5
	}
	return 2 * n
}
