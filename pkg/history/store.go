// Package history reads from Prometheus what containers have used, and keeps it by image,
// as sketches of a quarter of a day each.
package history

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/pkg/estimate"
)

// Store is what has been read. Its methods may be called while it is refreshed.
type Store struct{ options Options }

var _ estimate.Source = (*Store)(nil)

// New checks the options. It asks for nothing yet.
func New(o Options) (*Store, error) { return &Store{o}, nil }

// Refresh reads what is missing of the window that ends now, the newest first, and forgets
// what is older. What has been read before an error stays: call it again.
func (s *Store) Refresh(context.Context, time.Time) error { return errors.New("not there yet") }

// Complete reports whether nothing is missing between the start of the window and Until.
func (s *Store) Complete() bool { return false }

// Until is up to when it has been read; zero before anything has.
func (s *Store) Until() time.Time { return time.Time{} }

// Keys are those that there are samples of.
func (s *Store) Keys() []estimate.Key { return nil }

// Samples implements estimate.Source. They start with the quarter of a day that from is in.
func (s *Store) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	return nil
}
