package main

import (
	"fmt"
	"iter"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
)

// epoch is when the generated time starts.
var epoch = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

func (m minute) time() time.Time { return epoch.Add(time.Duration(m) * time.Minute) }

// quarter of a day: initialresources/history keeps its samples in as many sketches.
const quarter = day / 4

// kept are the samples of one key.
type kept struct {
	of          estimate.Key
	kills       map[minute]int
	cpu, memory map[minute]*ddsketch.DDSketch // by the start of the quarter
}

// sketches keeps what runs have used as initialresources/history does, so that estimates are as good as
// those that are made of it, and no better.
func sketches(all ...*run) ([]*kept, error) {
	var found []*kept
	of := map[estimate.Key]*kept{}
	for _, r := range all {
		for _, p := range r.pods {
			image, err := estimate.ParseImage(tagged(r.image, p.version))
			if err != nil {
				return nil, err
			}
			key := estimate.Key{Namespace: r.namespace, Image: image, Role: r.container()}
			if of[key] == nil {
				of[key] = &kept{of: key, kills: map[minute]int{}, cpu: map[minute]*ddsketch.DDSketch{}, memory: map[minute]*ddsketch.DDSketch{}}
				found = append(found, of[key])
			}
			if err := of[key].add(p); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (k *kept) add(p *pod) error {
	for _, at := range p.kills {
		k.kills[at/quarter*quarter]++
	}
	for i, u := range p.uses {
		start := (p.start + minute(i)) / quarter * quarter
		if k.cpu[start] == nil {
			cpu, err := newSketch()
			if err != nil {
				return err
			}
			memory, err := newSketch()
			if err != nil {
				return err
			}
			k.cpu[start], k.memory[start] = cpu, memory
		}
		if err := k.cpu[start].Add(u.cpu); err != nil {
			return fmt.Errorf("keeping %v cores: %w", u.cpu, err)
		}
		if err := k.memory[start].Add(u.memory); err != nil {
			return fmt.Errorf("keeping %v bytes: %w", u.memory, err)
		}
	}
	return nil
}

// newSketch is as accurate as those of initialresources/history.
func newSketch() (*ddsketch.DDSketch, error) { return ddsketch.NewDefaultDDSketch(0.01) }

// known implements estimate.Source: what is known at a moment, the start of a quarter.
type known struct {
	of    []*kept
	until minute
}

// Samples implements estimate.Source.
func (k known) Samples(from time.Time, of estimate.Key, resource corev1.ResourceName) estimate.Samples {
	sketch, err := newSketch()
	if err != nil { // the accuracy is none
		panic(err)
	}
	all := samples{sketch: sketch}
	for _, some := range k.of {
		if !of.Matches(some.of) {
			continue
		}
		for start := k.until - quarter; start+quarter > minute(from.Sub(epoch)/time.Minute) && start >= 0; start -= quarter {
			all.kills += some.kills[start]
			quarters := some.cpu
			if resource == corev1.ResourceMemory {
				quarters = some.memory
			}
			if one := quarters[start]; one != nil {
				if err := sketch.MergeWith(one); err != nil { // they are of one kind
					panic(err)
				}
			}
		}
	}
	if sketch.IsEmpty() {
		return nil
	}
	return all
}

type samples struct {
	sketch *ddsketch.DDSketch
	kills  int
}

func (s samples) Count() float64 { return s.sketch.GetCount() }

func (s samples) Quantile(q float64) float64 {
	value, err := s.sketch.GetValueAtQuantile(q)
	if err != nil { // there are none, or q is no share
		panic(err)
	}
	return value
}

func (s samples) OOMKills() int { return s.kills }

func (s samples) All() iter.Seq2[float64, float64] {
	return func(yield func(float64, float64) bool) {
		s.sketch.ForEach(func(value, count float64) bool { return !yield(value, count) })
	}
}
