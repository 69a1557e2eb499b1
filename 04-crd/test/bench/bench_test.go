package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// The page says how many requests a Network costs.
func TestCosts(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	o := options{networks: 20, workers: workers{2}, rest: time.Second}
	all, err := measure(t.Context(), o, root, os.Stderr)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report(&text, o, all))
	t.Log(&text)
	made, rest, deleted := all[0].made, all[0].rest, all[0].deleted
	require.Positive(t, made.writes())
	require.Positive(t, made.totalCalls())
	require.LessOrEqual(t, made.writes(), 4*o.networks, "writes until all are Ready")
	require.LessOrEqual(t, made.totalCalls(), 6*o.networks, "calls until all are Ready")
	require.Zero(t, rest.writes(), "writes at rest")
	require.LessOrEqual(t, deleted.writes(), 2*o.networks, "writes until all are gone")
	require.LessOrEqual(t, deleted.totalCalls(), 3*o.networks, "calls until all are gone")
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"an argument":       {"x", `unexpected argument "x"; --help lists the flags`},
		"too many Networks": {"--networks=10001", "--networks is 10001; it must be from 0 to 10000"},
		"no workers":        {"--workers=0", `invalid value "0" for flag -workers: it must be numbers from 1`},
		"not a Neutron":     {"--neutron=127.0.0.1:9696", `invalid value "127.0.0.1:9696" for flag -neutron: it must be like http://127.0.0.1:9696`},
		"no rest":           {"--rest=0s", "--rest is 0s; it must be from 1s to 30m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]string{test.arg})
			require.ErrorContains(t, err, test.want)
		})
	}
}
