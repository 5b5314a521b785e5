package main

import (
	"cmp"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// figures are how requests have fared, of one resource.
type figures struct {
	births, answered int
	samples, above   int
	far              int     // samples that are above by a tenth of the request or more
	requested, slack float64 // sums over the samples
	most             float64 // the largest multiple of its request that a pod has used on average
}

// add holds a request against what was used; 0 is none.
func (f *figures) add(requested float64, then []use, of func(use) float64) {
	f.births++
	if requested == 0 {
		return
	}
	f.answered++
	used := 0.0
	for _, u := range then {
		used += of(u)
		if of(u) > requested {
			f.above++
		}
		if of(u) >= 1.1*requested {
			f.far++
		}
		f.slack += max(0, requested-of(u))
	}
	f.samples += len(then)
	f.requested += requested * float64(len(then))
	f.most = max(f.most, used/requested/float64(len(then)))
}

func (f *figures) merge(other figures) {
	f.births += other.births
	f.answered += other.answered
	f.samples += other.samples
	f.above += other.above
	f.far += other.far
	f.requested += other.requested
	f.slack += other.slack
	f.most = max(f.most, other.most)
}

// score is what is known of both resources.
type score struct{ cpu, memory figures }

func (s *score) merge(other score) {
	s.cpu.merge(other.cpu)
	s.memory.merge(other.memory)
}

// about says whose score it is.
type about struct {
	kind      string
	situation situation
	rule      string
}

// scores are all that was found out.
type scores map[about]score

// of adds up the scores of a rule.
func (s scores) of(rule string, which func(kind string, s situation) bool) score {
	var sum score
	for _, k := range kinds {
		for i := range situations {
			if which(k.name, situation(i)) {
				sum.merge(s[about{k.name, situation(i), rule}])
			}
		}
	}
	return sum
}

// play has pods of all kinds born, of so many casts of each kind, and scores the rules. It adds
// up in the same order each time, so that the last digits are the same, too.
func play(casts int) (scores, error) {
	model.GetAggregationsConfig() // is made by who asks first, without a lock
	found := make([]scores, len(kinds)*casts)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range found {
		group.Go(func() (err error) {
			found[i], err = playOne(&kinds[i/casts], i%casts)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := scores{}
	for _, some := range found {
		for a, one := range some {
			sum := all[a]
			sum.merge(one)
			all[a] = sum
		}
	}
	return all, nil
}

func playOne(k *kind, number int) (scores, error) {
	c, err := newCast(k, number)
	if err != nil {
		return nil, err
	}
	found, rules := scores{}, rules()
	for n := range births {
		born, err := c.born(n)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(born, func(a, b *birth) int { return cmp.Compare(a.situation, b.situation) })
		for _, b := range born {
			for _, r := range rules {
				asked, err := r.ask(b)
				if err != nil {
					return nil, err
				}
				a := about{k.name, b.situation, r.name}
				s := found[a]
				s.cpu.add(asked.cpu, b.then, func(u use) float64 { return u.cpu })
				s.memory.add(asked.memory, b.then, func(u use) float64 { return u.memory })
				found[a] = s
			}
		}
	}
	return found, nil
}
