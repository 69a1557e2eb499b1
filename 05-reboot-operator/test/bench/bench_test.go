package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// A reboot takes four writes: admit, approve, begin and complete. The ledger is written once for all Nodes that are admitted
// together. At rest, the leader renews its Lease.
func TestCosts(t *testing.T) {
	suite.Long(t, "it starts a control plane")
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	o := options{reboots: 10, maxUnavailable: 4, bootTime: time.Second, workers: 10, rest: time.Second}
	r, err := measure(t.Context(), o, 12, root, os.Stderr)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report(&text, o, r))
	t.Log(&text)
	require.Len(t, r.slots, o.reboots)
	require.LessOrEqual(t, r.mostAdmitted, o.maxUnavailable)
	controller, refused := sum(r.reboot.controller, isReboot)
	require.LessOrEqual(t, controller-refused, 3*o.reboots, "the controller's writes")
	agents, refused := sum(r.reboot.agents, isReboot)
	require.Equal(t, 2*o.reboots, agents-refused, "the agents' writes")
	for _, costs := range [][]history.Cost{r.rest.controller, r.rest.agents} {
		writes, _ := sum(costs, isReboot)
		events, _ := sum(costs, isEvents)
		reads, _ := sum(costs, isRead)
		require.Zero(t, writes+events+reads, "requests at rest but for the Lease")
	}
}

// Thousands of agents are at rest although some of them are always opening their watches again.
func TestAWatchThatIsOpenedAgainIsRest(t *testing.T) {
	var r recorder
	for _, q := range []history.Request{{Verb: "watch", Resource: "nodes"}, {Verb: "update", Resource: "leases"}} {
		r.Record(history.Record{Request: &q})
	}
	require.Zero(t, r.sent.Load())
	r.Record(history.Record{Request: &history.Request{Verb: "list", Resource: "nodes"}})
	require.EqualValues(t, 1, r.sent.Load())
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"an argument":            {"x", `unexpected argument "x"; --help lists the flags`},
		"too many Nodes":         {"--nodes=10,10001", "--nodes is 10,10001; each must be from 1 to 10000"},
		"no Nodes":               {"--nodes=0", `invalid value "0" for flag -nodes: it must be numbers from 1`},
		"reboots":                {"--reboots=-1", "--reboots is -1; it must be 0 or more"},
		"nothing is unavailable": {"--max-unavailable=0", "--max-unavailable is 0; it must be at least 1"},
		"no time to boot":        {"--boot-time=0s", "--boot-time is 0s; it must be from 1s to 10m0s"},
		"no workers":             {"--workers=0", "--workers is 0; it must be at least 1"},
		"images":                 {"--images=-1", "--images is -1; it must be at least 0"},
		"no rest":                {"--rest=0s", "--rest is 0s; it must be from 1s to 30m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]string{test.arg})
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestPicture(t *testing.T) {
	of := func(nodes int, perReboot time.Duration) result {
		return result{nodes: nodes, reboots: 10, reboot: phase{cpu: 10 * perReboot}}
	}
	require.Contains(t, string(picture([]result{of(500, time.Millisecond), of(2000, 4*time.Millisecond)})), `d="M112.0 204.5L262.0 62.0"`)
}
