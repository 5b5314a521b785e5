// Package plural spells numbers of things for people.
package plural

import "strconv"

// Of is how many of something there are: 1 pod, 2 pods.
func Of(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
