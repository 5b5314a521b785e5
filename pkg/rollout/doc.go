// Package rollout decides what happens next in a rollout. Everything in it is a
// pure function of what was observed: no client, no clock, no logger. What the
// kinds of workloads share is here; what only one of them has is in its package.
package rollout
