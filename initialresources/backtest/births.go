package main

import (
	"fmt"
	"hash/fnv"

	"github.com/inplace-rollout/inplace-rollout/initialresources/estimate"
)

// birth is a pod that is created, what is known by then, and what it uses afterwards.
type birth struct {
	kind      *kind
	situation situation
	at        minute
	of        *run // what has run of its workload; nil if nothing has
	key       estimate.Key
	known     known
	then      []use
}

// situation is what is known when a pod is born.
type situation int

const (
	afterHour situation = iota
	afterDay
	afterWeek
	afterMonth
	newVersion
	newWorkload
)

var situations = []string{
	afterHour:   "its workload, for 1 hour",
	afterDay:    "its workload, for 1 day",
	afterWeek:   "its workload, for 7 days",
	afterMonth:  "its workload, for 30 days",
	newVersion:  "the same, in an older version",
	newWorkload: "its image, in another workload",
}

// known says whether pods of the same workload have run, so that all rules have an answer.
func (s situation) known() bool { return s <= newVersion }

// The last week of 30 days and 7 has births, one a day in each situation. What a pod uses in
// the days afterwards is held against what it requests.
const (
	births    = 7
	afterDays = 3 * day
)

// bornAt is when: at one of four times of the day.
func bornAt(n int) minute { return 30*day + minute(n)*day + minute(n%4)*quarter }

// cast are the workloads of one kind, of which all the births are, in the order of time.
type cast struct {
	*kind
	number int
	long   []*run // one for each role
	kept   []*kept
}

func newCast(k *kind, number int) (*cast, error) {
	c := &cast{kind: k, number: number}
	c.long = c.runs("long", 0, bornAt(births))
	var err error
	c.kept, err = sketches(c.long...)
	return c, err
}

// runs has one workload for each role run the image of that name.
func (c *cast) runs(name string, from, to minute) []*run {
	var all []*run
	for role := range c.roles {
		all = append(all, trace(c.workload(name, role), "shop", c.image(name), from, to))
	}
	return all
}

func (c *cast) workload(name string, role int) *workload {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, c.name, c.number, name, role)
	return makeUp(c.kind, role, h.Sum64())
}

func (c *cast) image(name string) string {
	return fmt.Sprintf("registry.example.com:5000/%s", name)
}

// born are the births of one of the days.
func (c *cast) born(n int) ([]*birth, error) {
	at := bornAt(n)
	role := (c.number*births + n) % c.roles
	of := func(s situation, of *run, w *workload, namespace, image string, version int, kept []*kept) (*birth, error) {
		parsed, err := estimate.ParseImage(tagged(image, version))
		return &birth{
			kind: c.kind, situation: s, at: at, of: of,
			key:   estimate.Key{Namespace: namespace, Image: parsed, Role: w.container()},
			known: known{of: kept, until: at},
			then:  w.lives(newborn+uint64(n), version, at, at+afterDays).uses,
		}, err
	}
	var all []*birth
	add := func(b *birth, err error) error {
		all = append(all, b)
		return err
	}
	for s, long := range map[situation]minute{afterHour: hour, afterDay: day, afterWeek: week} {
		name := fmt.Sprintf("short-%d-%d", n, s)
		short := c.runs(name, at-long, at)
		kept, err := sketches(short...)
		if err != nil {
			return nil, err
		}
		r := short[role]
		if err := add(of(s, r, r.workload, r.namespace, r.image, r.at(at-1), kept)); err != nil {
			return nil, err
		}
	}
	r := c.long[role]
	for s, b := range map[situation]struct {
		of      *run
		w       *workload
		version int
	}{
		afterMonth:  {r, r.workload, r.at(at)},
		newVersion:  {r, r.workload, r.at(at) + 1},
		newWorkload: {nil, c.workload(fmt.Sprint("other-", n), role), r.at(at)},
	} {
		if err := add(of(s, b.of, b.w, r.namespace, r.image, b.version, c.kept)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// newborn is the number of the first pod whose use is held out.
const newborn = 1 << 20
