package torture

import (
	"context"
	"slices"
	"syscall"
	"time"

	"example.com/controllers/harness/history"
)

// freeze stops all threads of the program with SIGSTOP, and lets them continue with SIGCONT after a time, or when ctx ends.
// Time in which the programs waited for a processor does not count: another one is to lead meanwhile. freeze returns when the
// program runs again or has ended. A program that is being stopped is not frozen, and one that is stopped or killed meanwhile
// is thawed. If the program is frozen already, freeze waits for that to end. done is false if the program was not frozen,
// because it was being stopped or had ended.
func (p *process) freeze(ctx context.Context, long time.Duration) (done bool) {
	p.mu.Lock()
	if p.cmd == nil || p.stopping {
		p.mu.Unlock()
		return false
	}
	thawed := p.frozen
	if thawed == nil {
		thawed = make(chan struct{})
		p.frozen = thawed
		p.freezes = append(p.freezes, time.Now())
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGSTOP) // it may have exited just now
		p.noteState(history.Frozen)
	}
	p.mu.Unlock()
	for begin, left := time.Now(), long; left > 0 && ctx.Err() == nil; left = long - p.elapsed(begin) {
		select {
		case <-thawed:
			return true
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == thawed {
		p.thawLocked()
	}
	return true
}

// elapsed returns how long it is since a time.
func (p *process) elapsed(since time.Time) time.Duration {
	if p.unslowed == nil {
		return time.Since(since)
	}
	return p.unslowed(since)
}

// thawLocked lets the program continue if it is frozen. p.mu is held.
func (p *process) thawLocked() {
	if p.frozen == nil {
		return
	}
	if p.cmd != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT) // it may have been killed just now
		p.noteState(history.Running)
	}
	close(p.frozen)
	p.frozen = nil
}

// frozenSince reports whether the program has been frozen since a time.
func (p *process) frozenSince(from time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.freezes, func(at time.Time) bool { return !at.Before(from) })
}
