// Package heap measures, for benchmarks, what is kept in memory.
package heap

import "runtime"

// InUse returns how many bytes of the heap are in use, after a garbage collection.
func InUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
