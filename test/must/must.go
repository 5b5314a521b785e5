// Package must ends a test with an error that it is not about, or for want of what does not come.
package must

import (
	"fmt"
	"strings"
	"time"
)

// T is what tests, benchmarks, fuzz tests and properties have in common.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if there is an error.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value for which there is no error.
func Get[V any](value V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Said is what an error says; nothing without one.
func Said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Fails reports it if the error has not these words in it; without words, if there is an error.
func Fails(t interface {
	Helper()
	Errorf(format string, args ...any)
}, what string, err error, words string) {
	t.Helper()
	if said := Said(err); (words == "") != (err == nil) || !strings.Contains(said, words) {
		t.Errorf("%s: got the error %q, want %q", what, said, words)
	}
}

// Eventually asks now and then, and ends the test with what is seen instead if the answer is not yes in time.
func Eventually(t T, every, patience time.Duration, what string, check func() (done bool, seen string)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(every) {
		done, seen := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(fmt.Sprintf("waited %s for %s: %s", patience, what, seen))
		}
	}
}
