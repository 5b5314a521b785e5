// Package history reads from Prometheus what containers have used, and keeps it by image,
// as sketches of a quarter of a day each.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
	"github.com/inplace-rollout/inplace-rollout/pkg/promapi"
)

// quarter is a quarter of a day, in seconds: what is kept in one sketch, and forgotten at once.
const quarter = 6 * 60 * 60

// Store is what has been read. Its methods may be called while it is refreshed.
//
// It takes some 2.3 KB for each Key and day on which there are samples of it, and cannot take
// more than 50: a sketch tells apart no more than some 1500 sizes, whatever comes.
type Store struct {
	*reader

	refreshing sync.Mutex
	length     time.Duration // of the pieces that are read
	longest    time.Duration
	passed     int // pieces since the length was last changed

	retried int64 // of what could not be read, that is tried next which comes before it

	lock   sync.RWMutex // guards what follows
	window span         // that was wanted last
	read   spans
	failed spans                              // that were tried, and could not be read
	images map[string]map[estimate.Key]series // by the images' names
}

var _ estimate.Source = (*Store)(nil)

// series is what is known of a Key: its quarters of days, in order.
type series []quarterly

type quarterly struct {
	start       int64
	kills       int
	cpu, memory packed
}

// New checks the options. It asks for nothing yet.
func New(o Options) (*Store, error) {
	reader, err := newReader(o)
	if err != nil {
		return nil, err
	}
	longest := time.Hour
	if len(o.Images) > 0 { // of few pods
		longest = 24 * time.Hour
	}
	return &Store{reader: reader, length: longest, longest: longest, images: map[string]map[estimate.Key]series{}}, nil
}

// mostFailures is how many pieces may fail in one refresh: it is asked again then.
const mostFailures = 10

// Refresh reads what is missing of the window that ends now, the newest first, and forgets
// what is older. What has been read before an error stays: call it again. An older piece that
// cannot be read does not keep those from being read that are older still; after each refresh
// that has nothing else to do, one of them is tried again, and all if that can be read.
func (s *Store) Refresh(ctx context.Context, now time.Time) error {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	until := now.Add(-s.Lag).Truncate(s.Resolution)
	window := span{until.Add(-s.Window).Truncate(quarter * time.Second).Unix(), until.Unix()}
	s.forget(window)
	failures := 0
	for {
		piece, again := s.next(window)
		if piece.empty() {
			return nil
		}
		asked := s.length
		err := s.readPiece(ctx, piece, piece.to == window.to)
		if err == nil || promapi.TooMuch(err) && s.length < asked {
			continue
		}
		if piece.to == window.to || s.length < asked || ctx.Err() != nil || !promapi.OnlyThen(err) {
			return err
		}
		s.fail(piece)
		if failures++; again || failures == mostFailures || s.allTried(window) {
			return fmt.Errorf("%s of history are missing, as of %s: %w", s.Missing(), time.Unix(piece.from, 0).UTC().Format(time.RFC3339), err)
		}
	}
}

// readPiece reads and keeps a piece. If it may be too much, less is read at once from then on.
func (s *Store) readPiece(ctx context.Context, piece span, newest bool) error {
	found, err := s.reader.read(ctx, piece, newest)
	switch {
	case err == nil:
		s.keep(piece, found)
		s.lengthen()
	case promapi.TooMuch(err):
		if !s.shorten() {
			return fmt.Errorf("no answer of Prometheus even for %s at once: raise its limits on queries (--query.max-samples, --query.timeout), or select less (--matcher): %w", s.length, err)
		}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // it did not even say that it is too much
		s.shorten()
	}
	return err
}

// next is what is read next: what is missing of the newest hour that is not whole, and has not been
// tried; or else of what could not be read, and whether it is that.
func (s *Store) next(window span) (piece span, again bool) {
	s.lock.RLock()
	defer s.lock.RUnlock()
	tried := s.read
	for _, failed := range s.failed {
		tried = slices.Clone(tried).add(failed)
	}
	gap := tried.newestGap(window)
	if gap.empty() {
		again = true
		if gap = s.read.newestGap(span{window.from, min(window.to, s.retried)}); gap.empty() {
			gap = s.read.newestGap(window)
		}
	}
	length := int64(s.length / time.Second)
	gap.from = max(gap.from, (gap.to-1)/length*length)
	return gap, again
}

// fail notes that a piece cannot be read: the whole of it, if it is only the shortest that can be asked for.
func (s *Store) fail(piece span) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.length = s.longest
	length := int64(s.longest / time.Second)
	piece.from = max(s.window.from, (piece.to-1)/length*length)
	for _, gap := range (spans{piece}).minus(s.read) {
		s.failed = s.failed.add(gap)
	}
	s.retried = piece.from
}

func (s *Store) allTried(window span) bool {
	_, again := s.next(window)
	return again
}

// shorten has less read at once, if it can.
func (s *Store) shorten() bool {
	s.passed = 0
	half := max(s.Resolution, (s.length / 2).Truncate(s.Resolution))
	shorter := half < s.length
	s.length = half
	return shorter
}

// lengthen has more read at once after a while, for the server may have been busy.
func (s *Store) lengthen() {
	if s.passed++; s.passed >= 16 {
		s.passed = 0
		s.length = min(s.longest, 2*s.length)
	}
}

// keep adds what was found in a piece.
func (s *Store) keep(piece span, found harvest) {
	s.lock.Lock()
	defer s.lock.Unlock()
	for of, gathered := range found {
		name := of.key.Image.Name
		if s.images[name] == nil {
			s.images[name] = map[estimate.Key]series{}
		}
		quarters := s.images[name][of.key]
		i, there := slices.BinarySearchFunc(quarters, of.quarter, func(q quarterly, start int64) int { return cmp.Compare(q.start, start) })
		if !there {
			quarters = slices.Insert(quarters, i, quarterly{start: of.quarter})
			s.images[name][of.key] = quarters
		}
		q := &quarters[i]
		q.kills += gathered.kills
		if gathered.cpu != nil {
			q.cpu = q.cpu.with(gathered.cpu)
		}
		if gathered.memory != nil {
			q.memory = q.memory.with(gathered.memory)
		}
	}
	s.read = s.read.add(piece)
	s.failed = s.failed.without(piece)
}

// forget lets go of what is before a window.
func (s *Store) forget(window span) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.window = window
	s.read, s.failed = s.read.forget(window.from), s.failed.forget(window.from)
	for name, keys := range s.images {
		for key, quarters := range keys {
			gone := slices.IndexFunc(quarters, func(q quarterly) bool { return q.start >= window.from })
			switch gone {
			case 0:
			case -1:
				delete(keys, key)
			default:
				keys[key] = slices.Clone(quarters[gone:])
			}
		}
		if len(keys) == 0 {
			delete(s.images, name)
		}
	}
}

// Complete reports whether nothing is missing between the start of the window and Until.
func (s *Store) Complete() bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.read) == 1 && s.read[0].from <= s.window.from
}

// Tried reports whether all of the window has been read, but for what cannot be.
func (s *Store) Tried() bool {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return len(s.read) > 0 && s.read[len(s.read)-1].to >= s.window.to && (spans{s.window}).minus(s.read).minus(s.failed) == nil
}

// Missing is how much of the window has not been read.
func (s *Store) Missing() time.Duration {
	s.lock.RLock()
	defer s.lock.RUnlock()
	return time.Duration((spans{s.window}).minus(s.read).seconds()) * time.Second
}

// Until is up to when it has been read; zero before anything has.
func (s *Store) Until() time.Time {
	s.lock.RLock()
	defer s.lock.RUnlock()
	if len(s.read) == 0 {
		return time.Time{}
	}
	return time.Unix(s.read[len(s.read)-1].to, 0)
}

// Keys are those that there are samples of.
func (s *Store) Keys() []estimate.Key {
	s.lock.RLock()
	defer s.lock.RUnlock()
	var all []estimate.Key
	for _, keys := range s.images {
		for key := range keys {
			all = append(all, key)
		}
	}
	return all
}

// Samples implements estimate.Source. They start with the quarter of a day that from is in.
func (s *Store) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	all := samples{sketch: newSketch()}
	s.lock.RLock()
	defer s.lock.RUnlock()
	for key, quarters := range s.images[of.Image.Name] {
		if !of.Matches(key) {
			continue
		}
		for _, q := range slices.Backward(quarters) {
			if q.start+quarter <= from.Unix() {
				break
			}
			all.kills += q.kills
			if resource == corev1.ResourceCPU {
				q.cpu.addTo(all.sketch)
			} else {
				q.memory.addTo(all.sketch)
			}
		}
	}
	if all.sketch.IsEmpty() {
		return nil
	}
	return all
}
