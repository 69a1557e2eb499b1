package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTortureOnWrongInput(t *testing.T) {
	good := onFlags{on: "kind", cpu: "1", memory: "3Gi", workers: 3}
	require.NoError(t, good.check())
	for want, change := range map[string]func(*onFlags){
		`--on is "production"; it must be`: func(f *onFlags) { f.on = "production" },
		`--cpu is "many"`:                  func(f *onFlags) { f.cpu = "many" },
		`--cpu is "0"`:                     func(f *onFlags) { f.cpu = "0" },
		`--memory is "-1Gi"`:               func(f *onFlags) { f.memory = "-1Gi" },
		"--workers must be 1 or more":      func(f *onFlags) { f.workers = 0 },
	} {
		f := good
		change(&f)
		require.ErrorContains(t, f.check(), want)
		f.on = ""
		require.NoError(t, f.check(), "without --on, the others do not matter")
	}
}

// Nobody's cluster is changed without a yes; one that we have started is.
func TestTortureOnAsks(t *testing.T) {
	require.NoError(t, (&onFlags{on: "kind"}).ask(t.Context()))
	require.NoError(t, (&onFlags{on: "context:production", yes: true}).ask(t.Context()))
	require.ErrorContains(t, (&onFlags{on: "context:production"}).ask(t.Context()), "nothing was changed") // standard input is empty
}
