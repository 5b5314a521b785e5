// Package estimate decides what a container requests of which nothing else says it: a
// percentile of what containers with the same image have used. It is pure. Samples come
// from a Source, and what it decides becomes the data of a ConfigMap, in which admission
// looks images up.
package estimate
