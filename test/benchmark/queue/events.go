package queue

import "container/heap"

// clock runs what is due, in the order of its time. Times are in seconds.
type clock struct {
	now   float64
	due   due
	added int
}

type event struct {
	at    float64
	order int // of those at the same time
	do    func()
}

type due []event

func (d due) Len() int { return len(d) }

func (d due) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].order < d[j].order
}

func (d due) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

func (d *due) Push(e any) { *d = append(*d, e.(event)) }

func (d *due) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = event{}
	*d = (*d)[:last]
	return e
}

func (c *clock) after(seconds float64, do func()) {
	c.added++
	heap.Push(&c.due, event{c.now + seconds, c.added, do})
}

// run ends when nothing is due any more.
func (c *clock) run() {
	for len(c.due) > 0 {
		e := heap.Pop(&c.due).(event)
		c.now = e.at
		e.do()
	}
}

// places are taken in turn: workers, sessions, seats of a priority level. None means that there is room for all.
type places struct {
	clock       *clock
	all, taken  int
	line        []turn
	since, used float64 // taken places × seconds
}

type turn struct {
	width int
	do    func()
}

// take has do called when there is room for so many.
func (p *places) take(width int, do func()) {
	p.line = append(p.line, turn{width, do})
	p.next()
}

func (p *places) leave(width int) {
	p.count()
	p.taken -= width
	p.next()
}

func (p *places) next() {
	for len(p.line) > 0 && (p.all == 0 || p.taken == 0 || p.taken+p.line[0].width <= p.all) {
		first := p.line[0]
		p.line[0] = turn{}
		p.line = p.line[1:]
		p.count()
		p.taken += first.width
		first.do()
	}
}

func (p *places) count() {
	p.used += float64(p.taken) * (p.clock.now - p.since)
	p.since = p.clock.now
}

// work takes a place for so many seconds.
func (p *places) work(seconds float64, then func()) {
	p.take(1, func() {
		p.clock.after(seconds, func() {
			p.leave(1)
			then()
		})
	})
}

// rate is a limit of requests per second, as client-go has it: a bucket of tokens. 0 is none.
type rate struct {
	clock     *clock
	perSecond float64
	burst     float64
	tokens    float64
	at        float64
}

func newRate(c *clock, perSecond, burst float64) *rate {
	return &rate{clock: c, perSecond: perSecond, burst: burst, tokens: burst}
}

func (r *rate) wait(then func()) {
	if r.perSecond == 0 {
		then()
		return
	}
	r.tokens = min(r.burst, r.tokens+(r.clock.now-r.at)*r.perSecond) - 1
	r.at = r.clock.now
	r.clock.after(max(0, -r.tokens/r.perSecond), then)
}
