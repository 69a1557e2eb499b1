package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/suite"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// Each copy costs one write and no read, and at rest there is neither.
func TestCosts(t *testing.T) {
	suite.Long(t, "it starts control planes")
	t.Parallel()
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	o := options{sizes: sizes{{2, 10}}, rounds: 2, workers: 4, bytes: 10, rest: time.Second, unrelated: 5}
	var text bytes.Buffer
	r, err := measure(t.Context(), o, root, &text, os.Stderr)
	require.NoError(t, err)
	t.Log(&text)
	require.Len(t, r.sizes, 1)
	s := r.sizes[0]
	require.Len(t, s.rounds, 2)
	for _, round := range s.rounds {
		for name, l := range map[string]lifecycle{"controller": round.controller, "plain client": round.plain, "plain client with watches": round.watching} {
			for _, of := range phases {
				require.Equal(t, 20, of.of(l).writes, "%s: %s", name, of.title)
				require.Zero(t, of.of(l).reads, "%s: %s", name, of.title)
			}
		}
		require.LessOrEqual(t, round.burst.writes, 20*burstChanges)
		require.NotZero(t, round.memory)
	}
	require.Equal(t, phase{took: s.rest.took}, s.rest, "at rest")
	require.NotZero(t, r.memory.after.memory)
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"an argument":         {"x", `unexpected argument "x"; --help lists the flags`},
		"sizes":               {"--sizes=1", "it must be numbers of sources and namespaces, with at most 100000 copies, such as 1x2000,20x500"},
		"no namespaces":       {"--sizes=1x0", "it must be numbers of sources and namespaces"},
		"too many copies":     {"--sizes=1x10,100001x1", "with at most 100000 copies"},
		"no rounds":           {"--rounds=0", "--rounds is 0; it must be at least 1"},
		"no workers":          {"--workers=0", "--workers is 0; it must be at least 1"},
		"data":                {"--bytes=-1", "--bytes is -1; it must be from 0 to 524288"},
		"no rest":             {"--rest=0s", "--rest is 0s; it must be from 1s to 30m0s"},
		"too many of another": {"--unrelated=50001", "--unrelated is 50001; it must be from 0 to 50000"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]string{test.arg})
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestPicture(t *testing.T) {
	result := func(copies int, took time.Duration) sizeResult {
		l := lifecycle{phase{took: took}, phase{took: took}, phase{took: took}}
		return sizeResult{size: size{1, copies}, rounds: []round{{plain: l, controller: l}}}
	}
	for _, results := range [][]sizeResult{nil, {result(2000, 4*time.Second), result(500, time.Second)}} {
		text := string(picture(results))
		decoder := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := decoder.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
		}
		if results != nil {
			require.Equal(t, 6, strings.Count(text, "L108.0 204.5L258.0 62.0")+strings.Count(text, "L370.0 204.5L520.0 62.0")+strings.Count(text, "L632.0 204.5L782.0 62.0"), text)
		}
	}
}
