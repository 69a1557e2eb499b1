package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/proc"
)

// What goes wrong at the end, while a command cleans up, is printed whatever its exit status is.
func TestEnding(t *testing.T) {
	const interruption = "workshop: interrupted; everything it started has been stopped\n"
	stop, full := errors.New("stop the cluster: it still runs"), errors.New("disk full")
	for name, c := range map[string]struct {
		err         error
		interrupted bool
		status      int
		text        string
	}{
		"success":                    {nil, false, 0, ""},
		"an error":                   {full, false, 1, "workshop: disk full\n"},
		"two errors":                 {errors.Join(full, stop), false, 1, "workshop: disk full\nstop the cluster: it still runs\n"},
		"a status":                   {exitStatus(7), false, 7, ""},
		"a status of 0":              {exitStatus(0), true, 0, ""},
		"a status and an error":      {errors.Join(exitStatus(7), stop), false, 7, "workshop: stop the cluster: it still runs\n"},
		"a status of 0 and an error": {errors.Join(exitStatus(0), full), true, 1, "workshop: disk full\n"},
		"a status and errors that are joined twice": {errors.Join(errors.Join(full, exitStatus(3)), stop), false, 3, "workshop: disk full\nstop the cluster: it still runs\n"},
		"interrupted":                             {proc.ErrInterrupted, true, 130, interruption},
		"interrupted after its end":               {nil, true, 130, interruption},
		"interrupted, in a request":               {fmt.Errorf("get pods: %w", context.Canceled), true, 130, interruption},
		"interrupted, and an error":               {errors.Join(proc.ErrInterrupted, stop), true, 130, "workshop: interrupted\nworkshop: stop the cluster: it still runs\n"},
		"interrupted, with a status and an error": {errors.Join(exitStatus(130), context.Canceled, full), true, 130, "workshop: disk full\n"},
		"a request that was cancelled":            {context.Canceled, false, 1, "workshop: context canceled\n"},
		"an error with two causes":                {fmt.Errorf("start: %w (%w)", full, proc.ErrInterrupted), true, 130, interruption},
		"an error with two causes, uninterrupted": {fmt.Errorf("start: %w (%w)", full, stop), false, 1, "workshop: start: disk full (stop the cluster: it still runs)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := ending(c.err, c.interrupted)
			require.Equal(t, c.status, status)
			require.Equal(t, c.text, text)
		})
	}
}
