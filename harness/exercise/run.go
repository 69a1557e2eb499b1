package exercise

import (
	"context"
	"errors"
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
	watched := make(chan time.Duration, 1)
	started := false
	p.Started = func(guard int) {
		started = true
		go func() { watched <- awaitLimit(limited, cancel, limit, int32(guard)) }()
	}
	var err error
	f.status, err = guard.Exec(limited, p, f.output)
	cancel(nil)
	if started {
		f.allowed = <-watched
	}
	if errors.Is(err, errLimit) {
		f.timedOut, err = true, nil
	}
	return f, err
}

// awaitLimit cancels the context when the guard's program has reached its limit, and returns how long the program was
// allowed to take. It returns early if the context is cancelled.
func awaitLimit(ctx context.Context, cancel context.CancelCauseFunc, limit time.Duration, guard int32) time.Duration {
	var before time.Duration
	for allowed := limit; ; allowed += limit {
		select {
		case <-ctx.Done():
			return allowed
		case <-time.After(limit):
		}
		used, err := processorTime(ctx, guard)
		if err != nil || allowed >= patience*limit || !isStarved(used-before, limit) {
			cancel(errLimit)
			return allowed
		}
		before = used
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
