// Package capacity tells whether the API server would let a pod into its namespace:
// what its LimitRanges, its ResourceQuotas and the validation of sizes say. A running
// pod is not given up for one that would be refused. Everything here is pure.
package capacity
