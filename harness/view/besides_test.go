package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
)

func at(ms float64) time.Time {
	return recorded.Start.Add(time.Duration(ms * float64(time.Millisecond)))
}

func TestProcesses(t *testing.T) {
	r := &recorded.Recorder{}
	lease := func(rv string) func(*history.Request) {
		return func(q *history.Request) {
			q.Group, q.Version, q.Resource, q.Namespace, q.RVAfter = "coordination.k8s.io", "v1", "leases", "shop", rv
		}
	}
	state := func(ms float64, program string, state history.ProcessState) {
		r.Records = append(r.Records, history.Record{Process: &history.Process{Time: at(ms), Program: program, State: state}})
	}
	state(0, "one", history.Running)
	state(1, "two", history.Running)
	r.Request(10, 11, "one", "create", "leader", lease("5"))
	r.Request(20, 21, "one", "update", "leader", lease("6"))
	r.Request(22, 23, "two", "get", "leader", lease("6"))
	state(30, "one", history.Frozen)
	r.Request(60, 61, "two", "update", "leader", lease("7"))
	state(70, "one", history.Running)
	r.Request(70, 71, "one", "update", "leader", func(q *history.Request) {
		lease("7")(q)
		q.Status = 409
	})
	state(90, "one", history.Killed)
	r.Records = append(r.Records, history.Record{Step: &history.Step{Time: at(40), Name: "scale up"}})
	r.Request(100, 100, "other", "get", "a", nil) // not a process of which anything is known
	m := model(r)
	require.Equal(t, []string{"one", "other", "two"}, m.Programs)
	lane := -1
	for i, l := range m.Lanes {
		if l.Name == "shop/leader" {
			lane = i
		}
	}
	require.Equal(t, []view.Process{
		{Program: 0, States: []view.State{{0, 30, "running"}, {30, 70, "frozen"}, {70, 90, "running"}, {90, 100, "killed"}}, Leads: []view.Lead{{From: 11, To: 61, Lane: lane}}},
		{Program: 2, States: []view.State{{1, 100, "running"}}, Leads: []view.Lead{{From: 61, To: 100, Lane: lane}}},
	}, m.Processes)
	require.Equal(t, []view.Step{{40, "scale up"}}, m.Steps)
}

// Replicas have the same name, and a connection each.
func TestReplicasThatLead(t *testing.T) {
	r := &recorded.Recorder{}
	lease := func(connection int64, rv string) func(*history.Request) {
		return recorded.On(connection, func(q *history.Request) {
			q.Group, q.Version, q.Resource, q.Namespace, q.RVAfter = "coordination.k8s.io", "v1", "leases", "shop", rv
		})
	}
	r.Request(0, 50, "op", "watch", "", recorded.On(1, nil))
	r.Request(1, 50, "op", "watch", "", recorded.On(2, nil))
	r.Request(10, 11, "op", "update", "leader", lease(2, "5"))
	r.Request(20, 21, "op", "update", "leader", lease(1, "6"))
	r.Request(30, 31, "op", "update", "leader", lease(2, "7"))
	m := model(r)
	require.Len(t, m.Processes, 2)
	require.Equal(t, []int{1, 2}, []int{m.Processes[0].Number, m.Processes[1].Number})
	require.Len(t, m.Processes[0].Leads, 1)
	require.Len(t, m.Processes[1].Leads, 2)
	require.Equal(t, 50.0, m.Processes[1].Leads[1].To, "its last request ends then")
}

// Of a program with many processes, those that led are in one row.
func TestManyProcessesOfWhichSomeLead(t *testing.T) {
	r := &recorded.Recorder{}
	for i := range 20 {
		r.Request(0, 500, "op", "watch", "", recorded.On(int64(i+1), nil))
	}
	for i, connection := range []int64{3, 3, 7, 3} {
		at := float64(100 * (i + 1))
		r.Request(at, at+1, "op", "update", "leader", recorded.On(connection, func(q *history.Request) {
			q.Group, q.Version, q.Resource, q.Namespace, q.RVAfter = "coordination.k8s.io", "v1", "leases", "shop", fmt.Sprint(i+5)
		}))
	}
	m := model(r)
	require.Len(t, m.Processes, 1)
	require.Equal(t, []view.Lead{{From: 101, To: 301, Number: 1}, {From: 301, To: 401, Number: 2}, {From: 401, To: 500, Number: 1}}, m.Processes[0].Leads)
}

// A Node's Lease says that it lives, not that it leads.
func TestNodesDoNotLead(t *testing.T) {
	r := &recorded.Recorder{}
	r.Request(10, 11, "kubelet", "update", "node-1", func(q *history.Request) {
		q.Group, q.Version, q.Resource, q.Namespace, q.RVAfter = "coordination.k8s.io", "v1", "leases", "kube-node-lease", "5"
	})
	require.Empty(t, model(r).Processes)
}

// Where only one program is recorded, its process has no name.
func TestProcessWithoutName(t *testing.T) {
	r := &recorded.Recorder{}
	r.Records = append(r.Records, history.Record{Process: &history.Process{Time: at(0), State: history.Running}})
	require.Equal(t, []string{"controller"}, model(r).Programs)
	r.Request(1, 2, "loop", "get", "a", nil)
	m := model(r)
	require.Equal(t, []string{"loop"}, m.Programs)
	require.Len(t, m.Processes, 1)
}

func TestSeries(t *testing.T) {
	r := &recorded.Recorder{}
	for i, value := range []float64{0, 0, 3, 3, 1} {
		r.Records = append(r.Records, history.Record{Sample: &history.Sample{Time: at(float64(i)), Program: "loop", Metric: "workqueue_depth", Of: "pods", Value: value}})
	}
	require.Equal(t, []view.Series{{Program: 0, Metric: "workqueue_depth", Of: "pods", Points: [][2]float64{{0, 0}, {2, 3}, {4, 1}}, Most: 3}}, model(r).Series)
}

// What the recorder itself saw tells no program anything, but says when a version came to be.
func TestOurOwnWatch(t *testing.T) {
	r := &recorded.Recorder{}
	w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
	r.Event(w, 2, "ADDED", "a", "10")
	r.Records = append(r.Records, history.Record{Seen: &history.Event{Time: at(50), Type: "MODIFIED", Resource: "nodes", Name: "a", ResourceVersion: "20"}})
	r.Event(w, 80, "MODIFIED", "a", "20")
	r.Request(100, 100, "kubectl", "get", "b", nil)
	require.Equal(t, "\n"+lane(model(r), "a"), `
2-50 v10 late
50-100 v20
loop 2-50 knew 0 had 0 lag 0
loop 50-80 knew 0 had 1 lag 30
loop 80-100 knew 1 had 1 lag 0
`)
}
