package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	text := string(picture([]sizeResult{result(2000, 4*time.Second), result(500, time.Second)}))
	require.Equal(t, 6, strings.Count(text, "L112.0 204.5L262.0 62.0")+strings.Count(text, "L378.0 204.5L528.0 62.0")+strings.Count(text, "L644.0 204.5L794.0 62.0"), text)
}

func TestReportOfTwoRounds(t *testing.T) {
	of := func(seconds float64, writes int) lifecycle {
		p := phase{took: time.Duration(seconds * float64(time.Second)), writes: writes}
		return lifecycle{p, p, p}
	}
	s := sizeResult{size: size{1, 10}, rounds: []round{
		{plain: of(1, 10), watching: of(1.5, 10), controller: of(3, 10), burst: phase{took: 4 * time.Second, writes: 12}, memory: 40e6, peer: of(6, 0), peerMemory: 80e6},
		{plain: of(2, 10), watching: of(2, 10), controller: of(2, 10), burst: phase{took: 2 * time.Second, writes: 18}, memory: 60e6, peer: of(8, 0), peerMemory: 60e6},
	}}
	var out strings.Builder
	require.NoError(t, reportSize(&out, options{workers: 4, bytes: 5, rest: time.Second, replicator: "/x"}, s))
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimRight(strings.Join(strings.Fields(line), " "), " "))
	}
	require.Equal(t, []string{
		"", "1 × 10 = 10 copies of 5 bytes, 4 workers", "",
		"plain client its watches controller beside it beside it with watches writes per copy reads per copy",
		"create all copies 1.50 s 1.25 × (1.00 – 1.50) 2.50 s 2.00 × (1.00 – 3.00) 1.50 × (1.00 – 2.00) 1.00 0.00",
		"update all copies 1.50 s 1.25 × (1.00 – 1.50) 2.50 s 2.00 × (1.00 – 3.00) 1.50 × (1.00 – 2.00) 1.00 0.00",
		"delete all copies 1.50 s 1.25 × (1.00 – 1.50) 2.50 s 2.00 × (1.00 – 3.00) 1.50 × (1.00 – 2.00) 1.00 0.00",
		"5 changes within 400ms, beside one 1.50 s 1.25 × (1.00 – 1.50) 3.00 s 2.50 × (1.00 – 4.00) 1.83 × (1.00 – 2.67) 1.50 0.00",
	}, lines[:8])
	require.Equal(t, []string{
		"kubernetes-replicator controller beside it",
		"create all copies 7.00 s 2.50 s 0.38 × (0.25 – 0.50)",
		"update all copies 7.00 s 2.50 s 0.38 × (0.25 – 0.50)",
		"delete all copies 7.00 s 2.50 s 0.38 × (0.25 – 0.50)",
		"resident memory at its peak 70 MB 50 MB 0.75 × (0.50 – 1.00)",
	}, lines[len(lines)-5:])
}

// The source of kubernetes-replicator has the label of a copy.
func TestTheSourceIsNoCopy(t *testing.T) {
	o := observer{revisions: map[string]string{}, counts: map[string]int{}}
	for _, place := range []string{namespace, "team-00000", namespace + "-too", "team-00001"} {
		o.set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "source-000"}, Data: data("1", 1)})
	}
	all, current := o.count("1")
	require.Equal(t, []int{3, 3}, []int{all, current})
}
