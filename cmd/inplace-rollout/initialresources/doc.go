// Package initialresources has the commands of the second product: the estimator, which publishes what new
// containers should request, and estimate, which shows it to people.
package initialresources
