package torture

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/apiproxy"
	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/plan"
)

// hasLine reports whether a text has a line.
func hasLine(text, line string) bool { return slices.Contains(strings.Split(text, "\n"), line) }

// baseline is the recording of a controller that lists Pods and deletes two.
func baseline() *history.History {
	return &history.History{Requests: []history.Request{
		{ID: 1, Verb: "list", Resource: "pods"}, {ID: 2, Verb: "delete", Resource: "pods", Name: "a"}, {ID: 3, Verb: "delete", Resource: "pods", Name: "b"},
	}}
}

func TestPlansOfOptions(t *testing.T) {
	all := plan.Possible(plan.World{Baseline: baseline()})
	killed := slices.DeleteFunc(plan.Possible(plan.World{Baseline: baseline()}), func(p Plan) bool { return p.Kind != "killed before" && p.Kind != "killed after" })
	require.NotEmpty(t, killed)
	fault := apiproxy.Fault{Match: apiproxy.Match{Verb: "get"}, Effect: apiproxy.Effect{Delay: time.Second}}
	replay := Plan{Kind: "replay", Faults: []apiproxy.Fault{fault}}
	for name, c := range map[string]struct {
		options Options
		want    []Plan
	}{
		"all":                  {Options{}, all},
		"the first":            {Options{MaxPlans: 5}, all[:5]},
		"more than there are":  {Options{MaxPlans: 100000}, all},
		"drawn":                {Options{Seed: 3, Seeds: 4}, plan.Random(all, 3, 4)},
		"a fault":              {Options{Faults: replay.Faults}, []Plan{replay}},
		"a fault, three times": {Options{Faults: replay.Faults, Replays: 3, Seeds: 7}, []Plan{replay, replay, replay}},
		"killed":               {Options{Kinds: regexp.MustCompile("^killed")}, killed},
		"drawn of the killed":  {Options{Kinds: regexp.MustCompile("^killed"), Seeds: 1}, []Plan{{Kind: "seed 0 of ^killed", Faults: plan.Random(killed, 0, 1)[0].Faults}}},
		"with a reference":     {Options{Reference: Single("x"), MaxPlans: 3}, append([]Plan{NoFault}, all[:2]...)},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Scenario = &Scenario{}
			require.Equal(t, c.want, c.options.plans(&Baseline{History: baseline()}))
		})
	}
}

// Faults are aimed at the program that sent a request: at any of its replicas, but at one of the instances on Nodes.
func TestPlansOfSeveralPrograms(t *testing.T) {
	s, err := read(t, severalPrograms)
	require.NoError(t, err)
	update := func(program string) history.Request {
		return history.Request{Verb: "update", Resource: "pods", Program: program}
	}
	renewal := history.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Program: "controller-1"}
	h := &history.History{Requests: []history.Request{
		update("agent-node-1"), update("controller-2"), renewal, update("controller-1"), update("agent-node-1"),
		{Verb: "watch", Resource: "pods", Program: "controller-1"}, {Verb: "watch", Resource: "nodes", Program: "agent-node-1"},
	}}
	of := func(kind string) (faults []string) {
		for _, plan := range (Options{Scenario: s}).plans(&Baseline{History: h}) {
			if plan.Kind == kind {
				faults = append(faults, plan.Faults[0].String())
			}
		}
		slices.Sort(faults)
		return faults
	}
	require.Equal(t, []string{
		"verb=update,group=coordination.k8s.io,resource=leases,program=controller,nth=1,refuse=409",
		"verb=update,resource=pods,program=agent-node-1,nth=1,refuse=409", "verb=update,resource=pods,program=agent-node-1,nth=2,refuse=409",
		"verb=update,resource=pods,program=controller,nth=1,refuse=409", "verb=update,resource=pods,program=controller,nth=2,refuse=409",
	}, of("answered 409"))
	require.Equal(t, []string{
		"verb=update,group=coordination.k8s.io,resource=leases,program=controller,nth=1,freeze=before",
		"verb=update,resource=pods,program=agent-node-1,nth=1,freeze=before,freeze-for=5s",
		"verb=update,resource=pods,program=controller,nth=1,freeze=before",
	}, of("frozen before"), "only the controller has a Lease")
	require.Empty(t, of("one cache behind"), "each watches one resource")
	require.Equal(t, "controller-2", h.Requests[1].Program, "the recording stays as it was")
}
