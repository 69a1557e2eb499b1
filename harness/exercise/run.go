package exercise

import (
	"context"
	"errors"
	"time"

	"example.com/controllers/harness/guard"
)

// finished is how a program ended.
type finished struct {
	status   int
	timedOut bool
	output   *output // standard output and standard error
}

var errLimit = errors.New("the program has reached its limit")

// runLimited runs a program under a guard, which ends it after the limit. The error says what kept it from running.
func runLimited(ctx context.Context, limit time.Duration, p guard.Program) (finished, error) {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
	defer cancel()
	f := finished{output: &output{}}
	var err error
	f.status, err = guard.Exec(limited, p, f.output)
	if errors.Is(err, errLimit) {
		f.timedOut, err = true, nil
	}
	return f, err
}
