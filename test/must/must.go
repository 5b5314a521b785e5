// Package must ends a test with an error that it is not about, or for want of what does not come, and reports what is not as it must be.
package must

import (
	"fmt"
	"slices"
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

// Reporter is what a test reports to, and goes on.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Fails reports it if the error has not these words in it; without words, if there is an error.
func Fails(t Reporter, what string, err error, words string) {
	t.Helper()
	if said := Said(err); (words == "") != (err == nil) || !strings.Contains(said, words) {
		t.Errorf("%s: got the error %q, want %q", what, said, words)
	}
}

// Equal reports it, with what it is about, if something is not what is wanted.
func Equal[V comparable](t Reporter, got, want V, about string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", fmt.Sprintf(about, args...), spelled(got), spelled(want))
	}
}

// EqualLists reports it, with what it is about, if a list is not what is wanted; nil is none.
func EqualLists[E comparable](t Reporter, got, want []E, about string, args ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %s, want %s", fmt.Sprintf(about, args...), spelled(got), spelled(want))
	}
}

// Contain reports it, with what it is about, if these words are not in a text.
func Contain(t Reporter, text, words, about string, args ...any) {
	t.Helper()
	if !strings.Contains(text, words) {
		t.Errorf("%s: there is no %q in\n%s", fmt.Sprintf(about, args...), words, text)
	}
}

// spelled is a value in a report: texts are in quotes.
func spelled(value any) string {
	switch value.(type) {
	case string, []string:
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf("%+v", value)
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
