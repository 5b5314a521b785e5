// Package initialresources has the commands of initial resources: the estimator, which publishes what new
// containers should request, and estimate, which shows it to people.
package initialresources
