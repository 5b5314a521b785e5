// Package promapi asks Prometheus: it says how to reach it, and what to do about it when that fails. What is to be believed of an answer, its
// callers know.
package promapi
