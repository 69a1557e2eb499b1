package exercise

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"example.com/controllers/harness/guard"
)

// finished is how a program ended.
type finished struct {
	status   int
	timedOut bool
	allowed  time.Duration // how long the program was allowed to take, if it has timed out
	output   *output       // standard output and standard error
}

// patience is how many times the limit a program may take on a machine that is so busy that the program hardly runs.
const patience = 6

var errLimit = errors.New("the program has reached its limit")

// runLimited runs a program under a guard, which ends it after the limit, or later if the machine is busy. The error says
// what kept it from running.
func runLimited(ctx context.Context, limit time.Duration, p guard.Program) (finished, error) {
	limited, cancel := context.WithCancelCause(ctx)
	f := finished{output: &output{}}
	type end struct {
		allowed time.Duration
		reached bool
	}
	watched := make(chan end, 1)
	started := false
	p.Started = func(guard int) {
		started = true
		go func() {
			allowed, reached := awaitLimit(limited, limit, func() (time.Duration, error) { return processorTime(limited, int32(guard)) })
			if reached {
				askWhere(limited, int32(guard))
				cancel(errLimit)
			}
			watched <- end{allowed, reached}
		}()
	}
	var err error
	f.status, err = guard.Exec(limited, p, f.output)
	cancel(nil)
	if started {
		limit := <-watched
		f.allowed, f.timedOut = limit.allowed, limit.reached
	}
	if errors.Is(err, errLimit) {
		err = nil
	}
	return f, err
}

// awaitLimit returns when a program has reached its limit, and how long it was allowed to take. It returns early, with false, if
// the context is cancelled. processorTime returns how much the program has used.
func awaitLimit(ctx context.Context, limit time.Duration, processorTime func() (time.Duration, error)) (allowed time.Duration, reached bool) {
	var before time.Duration
	for allowed = limit; ; allowed += limit {
		select {
		case <-ctx.Done():
			return allowed, false
		case <-time.After(limit):
		}
		used, err := processorTime()
		if err != nil || allowed >= patience*limit || !isStarved(used-before, limit) {
			return allowed, true
		}
		before = used
	}
}

// lastWords is how long a program may take to print the stacks of its goroutines.
const lastWords = 5 * time.Second

// askWhere makes the children of a guard print the stacks of their goroutines and exit. It returns when they have, or when they
// do not.
func askWhere(ctx context.Context, guard int32) {
	children, err := (&process.Process{Pid: guard}).ChildrenWithContext(ctx)
	if err != nil {
		return
	}
	for _, child := range children {
		_ = child.SendSignalWithContext(ctx, syscall.SIGQUIT) // it may have ended
	}
	select {
	case <-ctx.Done():
	case <-time.After(lastWords):
	}
}

// isStarved reports whether a program got so much processor time in a while that it was not just waiting, and so little that
// it was not in an endless loop.
func isStarved(used, while time.Duration) bool { return used > while/100 && used < while/2 }

// processorTime returns how much processor time the children of a guard have used.
func processorTime(ctx context.Context, guard int32) (time.Duration, error) {
	children, err := (&process.Process{Pid: guard}).ChildrenWithContext(ctx)
	if err != nil {
		return 0, err
	}
	var seconds float64
	for _, child := range children {
		times, err := child.TimesWithContext(ctx)
		if err != nil {
			return 0, err
		}
		seconds += times.User + times.System
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
