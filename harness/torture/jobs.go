package torture

import (
	"context"
	"slices"
	"sync"
)

// jobs are what is to be run, in order. Those that are put back come first.
type jobs struct {
	mu      sync.Mutex
	changed *sync.Cond
	urgent  []job // that are to be run even after the budget: a run that they shared has failed
	waiting []job
	running int
	isOver  bool          // only urgent ones begin
	isEnded bool          // none begins
	ended   chan struct{} // closed then
}

// newJobs returns jobs; after over is closed, only urgent ones begin, and after ctx has ended, none.
func newJobs(ctx context.Context, waiting []job, over <-chan struct{}) (all *jobs, stop func()) {
	all = &jobs{waiting: waiting, ended: make(chan struct{})}
	all.changed = sync.NewCond(&all.mu)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-over:
			all.change(func() { all.isOver = true })
		case <-ctx.Done():
		case <-done:
		}
		select {
		case <-ctx.Done():
			all.change(func() { all.isEnded = true })
		case <-done:
		}
	})
	all.change(func() {
		select {
		case <-over: // already: none may begin before the goroutine runs
			all.isOver = true
		default:
		}
	})
	return all, func() { close(done); watching.Wait() }
}

// change changes something, and ends the jobs if none can begin any more.
func (all *jobs) change(something func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	something()
	if all.running == 0 && len(all.urgent) == 0 && (all.isOver || len(all.waiting) == 0) {
		all.isEnded = true
	}
	if all.isEnded {
		select {
		case <-all.ended:
		default:
			close(all.ended)
		}
	}
	all.changed.Broadcast()
}

// next returns the next job, when there is one. ok is false if there will be none.
func (all *jobs) next() (next job, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for !all.isEnded {
		from := &all.urgent
		if len(*from) == 0 && !all.isOver {
			from = &all.waiting
		}
		if len(*from) > 0 {
			next, *from = (*from)[0], (*from)[1:]
			all.running++
			return next, true
		}
		all.changed.Wait()
	}
	return nil, false
}

// done says that a job was run, and what is to be run because of it; failed, that it has failed, so that its plans are urgent.
func (all *jobs) done(again []job, failed bool) {
	all.change(func() {
		all.running--
		if failed {
			all.urgent = append(all.urgent, again...)
		} else {
			all.waiting = append(slices.Clip(again), all.waiting...)
		}
	})
}
