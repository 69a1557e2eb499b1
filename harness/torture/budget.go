package torture

import (
	"sync"
	"time"
)

// budget is the time for plans. A third of it is kept for the repetition and comparison of failures as soon as there is one.
type budget struct {
	end  time.Time
	over chan struct{} // closed when no further plan is to begin

	mu      sync.Mutex
	isOver  bool
	isLate  bool // only the last third is left
	hasSeen bool // a failure
	timers  []*time.Timer
}

// newBudget begins a budget of a duration; with 0, it has no end, and is nil.
func newBudget(of time.Duration) *budget {
	if of == 0 {
		return nil
	}
	b := &budget{end: time.Now().Add(of), over: make(chan struct{})}
	b.timers = []*time.Timer{
		time.AfterFunc(of*2/3, func() { b.note(func() { b.isLate = true }) }),
		time.AfterFunc(of, func() { b.note(func() { b.isLate, b.hasSeen = true, true }) }),
	}
	return b
}

// failed notes that there is a failure to repeat.
func (b *budget) failed() {
	if b != nil {
		b.note(func() { b.hasSeen = true })
	}
}

func (b *budget) note(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	if b.isLate && b.hasSeen && !b.isOver {
		b.isOver = true
		close(b.over)
	}
}

// ended returns a channel that is closed when no further plan is to begin; nil, which is never closed, without a budget.
func (b *budget) ended() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.over
}

// left returns how much is left of a budget, or more than any run takes if there is none.
func (b *budget) left() time.Duration {
	if b == nil {
		return 1 << 62
	}
	return time.Until(b.end)
}

// stop stops the timers.
func (b *budget) stop() {
	if b != nil {
		for _, t := range b.timers {
			t.Stop()
		}
	}
}
