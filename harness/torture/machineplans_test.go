package torture

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/machine"
	"example.com/controllers/harness/torture/plan"
)

func TestMachineActionsThatAreWrong(t *testing.T) {
	const cluster = "resources: [nodes]\nconverged: [{rule: 'true'}]\nscope: cluster\n"
	for text, want := range map[string]string{
		"steps: [{name: x, do: [{machine: {do: 'on'}}]}]":                               "machine: name is required",
		"steps: [{name: x, do: [{machine: {name: a, do: burn}}]}]":                      `machine: do is "burn"; it must be one of add, remove, on, off, `,
		"setup: [{name: x, do: [{machine: {name: a, do: 'on', bootTime: 1s}}]}]":        "machine: behavior and bootTime are for reboot and set-reboot, not for on",
		"steps: [{name: x, do: [{machine: {name: a, do: reboot, behavior: slow}}]}]":    `machine: behavior is "slow"; it must be one of ["normal" "hang"`,
		"steps: [{name: x, do: [{machine: {name: a, do: set-reboot, bootTime: -1s}}]}]": "machine: bootTime must not be negative",
		"controller: {module: ., package: ., args: ['--reboot={reboot}']}":              "program controller: {reboot} is for programs with eachNode",
		"controller: {module: ., package: ., env: {REBOOT: '{reboot}'}}":                "program controller: {reboot} is for programs with eachNode",
		"steps: [{name: x, do: [{machine: {name: a, do: 'on'}, pause: 1s}]}]":           "each entry of do must be one of",
	} {
		_, err := read(t, cluster+text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := read(t, "resources: [pods]\nconverged: [{rule: 'true'}]\nsteps: [{name: x, do: [{machine: {name: a, do: 'on'}}]}]")
	require.ErrorContains(t, err, "other runs use the same machines; it needs scope: cluster")
}

const withMachines = `
resources: [nodes]
converged: [{rule: 'true'}]
scope: cluster
programs:
  controller: {module: ., package: ./cmd/controller}
  agent: {module: ., package: ./cmd/agent, eachNode: true, args: ["--reboot-command={reboot}"]}
steps:
- name: a machine is added
  do: [machine: {name: node-2, do: add}]
`

// A machine that a step adds has an agent, which does not run before.
func TestInstancesOnMachines(t *testing.T) {
	s, err := read(t, withMachines)
	require.NoError(t, err)
	all, err := s.instances(t.Context(), fake.NewClientset(machine.Node("node-0", "v1"), machine.Node("node-2", "v1")))
	require.NoError(t, err)
	var names []string
	for _, one := range all {
		names = append(names, one.name)
	}
	require.Equal(t, []string{"agent-node-0", "agent-node-2", "controller"}, names)
}

func TestPlansForMachines(t *testing.T) {
	s, err := read(t, withMachines)
	require.NoError(t, err)
	h := &history.History{Requests: []history.Request{
		{ID: 1, Program: "agent-node-0", Verb: "patch", Resource: "nodes", Name: "node-0", Status: 200},
		{ID: 2, Program: "agent-node-0", Verb: "list", Resource: "nodes", Status: 200},
		{ID: 3, Program: "agent-node-0", Verb: "create", Resource: "events", Status: 201},
		{ID: 4, Program: "controller", Verb: "update", Resource: "nodes", Subresource: "status", Name: "node-1", Status: 200},
		{ID: 5, Program: "controller", Verb: "create", Resource: "nodes", Status: 201},
		{ID: 6, Program: "controller", Verb: "create", Resource: "events", Status: 201},
		{ID: 7, Program: "agent-node-0", Verb: "create", Group: "cloud", Resource: "disks", Status: 201},
		{ID: 8, Program: "agent-node-0", Verb: "patch", Resource: "nodes", Name: "node-0", Status: 200},
		{ID: 9, Program: "agent-node-0", Verb: "patch", Resource: "nodes", Name: "node-0", Status: 200},
	}}
	var got, long []string
	for _, plan := range plan.Possible(plan.World{Baseline: h, ReachesMachine: s.reachesMachine, Outside: []string{"cloud"}}) {
		if plan.Kind == "power cut after" {
			got = append(got, plan.String())
		}
		if plan.Kind == "long power cut before" {
			long = append(long, plan.String())
		}
	}
	require.ElementsMatch(t, []string{ // the middle one of each class
		"--fault verb=patch,resource=nodes,program=agent-node-0,nth=2,power-cut=before,off-for=1m0s",
		"--fault verb=create,resource=events,program=agent-node-0,nth=1,power-cut=before,off-for=1m0s",
		"--fault verb=update,resource=nodes,subresource=status,program=controller,nth=1,power-cut=before,off-for=1m0s",
	}, long)
	require.ElementsMatch(t, []string{
		"--fault verb=patch,resource=nodes,program=agent-node-0,nth=1,power-cut=after",
		"--fault verb=patch,resource=nodes,program=agent-node-0,nth=2,power-cut=after",
		"--fault verb=patch,resource=nodes,program=agent-node-0,nth=3,power-cut=after",
		"--fault verb=create,resource=events,program=agent-node-0,nth=1,power-cut=after",
		"--fault verb=update,resource=nodes,subresource=status,program=controller,nth=1,power-cut=after",
	}, got)
	for _, plan := range plan.Possible(plan.World{Baseline: h, Outside: []string{"cloud"}}) {
		require.NotContains(t, plan.String(), "power-cut")
	}
}

// A program that is killed with its machine has not died by itself, and is not started until its machine is on.
func TestAProgramOnAMachine(t *testing.T) {
	p := shell(t, func(int64) bool { return true }, waits)
	p.says("ready")
	p.switchOff()
	require.False(t, p.isRunning())
	require.NoError(t, p.start())
	require.False(t, p.isRunning())
	require.Nil(t, p.stop(0))
	p.switchOn()
	require.False(t, p.isRunning())
	require.NoError(t, p.start())
	require.True(t, p.isRunning())
	p.hasNotFailed()
	require.Zero(t, p.asked.Load())
}

// A fault at a request for no machine, or for one that is off or rebooting, does nothing.
func TestFailMachine(t *testing.T) {
	patch := history.Request{Verb: "patch", Resource: "nodes", Name: "node-0"}
	rebooting := map[string]string{machine.RebootingAnnotation: "{}"}
	for name, c := range map[string]struct {
		program     *program
		request     history.Request
		annotations map[string]string
		on          bool
		own, done   bool
		offFor      time.Duration
	}{
		"the machine of a Node":           {&program{}, patch, nil, true, false, true, 0},
		"for a minute":                    {&program{}, patch, nil, true, false, true, time.Minute},
		"the program's own":               {&program{instance: instance{node: "node-0"}}, history.Request{Resource: "pods"}, nil, true, true, true, 0},
		"no machine":                      {&program{}, history.Request{Resource: "pods"}, nil, true, false, false, 0},
		"one that is off":                 {&program{instance: instance{node: "node-0"}}, patch, nil, false, true, false, 0},
		"one that is rebooting":           {&program{}, patch, rebooting, true, false, false, 0},
		"one that has been removed since": {&program{}, history.Request{Resource: "nodes", Name: "node-1"}, nil, true, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(&Scenario{})
			r.machines = newMachines(t.Context(), r.processes)
			r.machines.set("node-0", machineState{on: c.on})
			r.machines.set("node-1", machineState{on: true})
			client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{machine.PowerLabel: "on"}, Annotations: c.annotations}})
			client.PrependReactor("*", "nodes", func(action clienttesting.Action) (bool, kruntime.Object, error) {
				if action.GetVerb() == "patch" || c.annotations != nil {
					r.machines.set("node-0", machineState{}) // it goes off
				}
				return false, nil, nil
			})
			r.controlPlane = &controlPlane{clients: &clients{Interface: client}}
			own, done := r.machines.fails(c.program)(t.Context(), history.PowerCut, c.offFor, c.request)
			require.Equal(t, c.own, own)
			require.Equal(t, c.done, done)
			require.Empty(t, r.failed)
			if done {
				node, err := client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
				require.NoError(t, err)
				reboot, err := machine.RebootOf(node)
				require.NoError(t, err)
				require.Equal(t, cmp.Or(c.offFor, faultBootTime), reboot.BootTime.Duration)
			}
		})
	}
}
