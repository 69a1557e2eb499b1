package main

import (
	"bytes"
	"os"
	"strings"
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
	const networks = 20
	o := options{networks: numbers{networks}, workers: numbers{2}, rest: time.Second}
	var text bytes.Buffer
	all, err := measure(t.Context(), o, root, &text, os.Stderr)
	require.NoError(t, err)
	t.Log(&text)
	made, rest, deleted := all[0].made, all[0].rest, all[0].deleted
	require.Positive(t, made.writes())
	require.Positive(t, made.totalCalls())
	require.LessOrEqual(t, made.writes(), 4*networks, "writes until all are Ready")
	require.LessOrEqual(t, made.totalCalls(), 6*networks, "calls until all are Ready")
	require.Zero(t, rest.writes(), "writes at rest")
	require.LessOrEqual(t, deleted.writes(), 2*networks, "writes until all are gone")
	require.LessOrEqual(t, deleted.totalCalls(), 3*networks, "calls until all are gone")
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"an argument":       {"x", `unexpected argument "x"; --help lists the flags`},
		"too many Networks": {"--networks=10,10001", "--networks is 10,10001; each must be from 1 to 10000"},
		"no Networks":       {"--networks=", `invalid value "" for flag -networks: it must be numbers from 1`},
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

func TestPicture(t *testing.T) {
	of := func(networks, workers int, seconds float64) result {
		p := phase{took: time.Duration(seconds * float64(time.Second))}
		return result{networks: networks, workers: workers, made: p, deleted: p}
	}
	text := string(picture([]result{of(500, 2, 2), of(500, 8, 1), of(2000, 2, 4), of(2000, 8, 4)}))
	for _, line := range []string{"M62.0 252.0L112.0 157.0L262.0 62.0", "M62.0 252.0L112.0 204.5L262.0 62.0"} {
		require.Equal(t, 1, strings.Count(text, line), "a line for each number of workers: %s", text)
	}
	require.Equal(t, 2, strings.Count(text, "M328.0 252.0L378.0"), "in both panels")
}
