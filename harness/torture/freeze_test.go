package torture

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	psprocess "github.com/shirou/gopsutil/v4/process"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
)

// isFrozen reports whether the kernel has stopped a program.
func (p *script) isFrozen() bool {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return false
	}
	one, err := psprocess.NewProcess(int32(cmd.Process.Pid))
	if err != nil {
		return false // it has exited
	}
	states, _ := one.Status() // it may have exited
	return slices.Contains(states, psprocess.Stop)
}

// freezing freezes a program in the background. thawed waits until freeze has returned.
func (p *script) freezing(ctx context.Context, long time.Duration) (thawed func()) {
	p.t.Helper()
	var freezes sync.WaitGroup
	freezes.Go(func() { p.freeze(ctx, long) })
	require.Eventually(p.t, p.isFrozen, hangs, time.Millisecond)
	return freezes.Wait
}

// exitsOnTERM is a script without children: a shell that waits for a child's exec, which is stopped too, is not in the state
// that isFrozen looks for.
const exitsOnTERM = "trap 'exit 0' TERM; echo ready; while :; do :; done"

func TestAFrozenProgram(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *script, cancel func()){
		"is stopped": func(t *testing.T, p *script, _ func()) { require.Nil(t, p.stop(0)) },
		"is killed":  func(_ *testing.T, p *script, _ func()) { p.kill() },
		"is let go on with its run": func(t *testing.T, p *script, cancel func()) {
			cancel()
			require.Eventually(t, func() bool { return !p.isFrozen() }, hangs, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, nil, exitsOnTERM)
			p.says("ready")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begin := time.Now()
			require.False(t, p.frozenSince(begin))
			thawed := p.freezing(ctx, time.Hour)
			require.True(t, p.frozenSince(begin))
			end(t, p, cancel)
			thawed()
			p.hasNotFailed()
			require.NoError(t, p.start())
			require.Eventually(t, func() bool { return p.isRunning() && !p.isFrozen() }, hangs, time.Millisecond)
			require.Nil(t, p.stop(-1))
		})
	}
}

// Two requests in flight may both freeze the controller. The second does not freeze it for longer.
func TestAProgramIsFrozenOnceAtATime(t *testing.T) {
	p := shell(t, nil, exitsOnTERM)
	p.says("ready")
	ctx, cancel := context.WithCancel(t.Context())
	thawed := p.freezing(ctx, time.Hour)
	second, cancelSecond := context.WithCancel(t.Context())
	again := p.freezing(second, time.Hour)
	cancel()
	thawed()
	cancelSecond() // if it began only after the first had ended
	again()
	require.Eventually(t, func() bool { return !p.isFrozen() }, hangs, time.Millisecond)
	require.True(t, p.freeze(t.Context(), time.Millisecond))
	require.Eventually(t, func() bool { return !p.isFrozen() }, hangs, time.Millisecond)
	require.Nil(t, p.stop(0))
	require.False(t, p.freeze(t.Context(), time.Hour), "there is nothing to freeze")
}

// A leader is frozen until another one had time to lead. Without a processor, it had none.
func TestAProgramIsFrozenForLongerOnABusyMachine(t *testing.T) {
	p := shell(t, nil, exitsOnTERM)
	p.says("ready")
	var looks atomic.Int32
	p.unslowed = func(time.Time) time.Duration {
		if looks.Add(1) < 3 {
			return 0 // it was all lost
		}
		return time.Hour
	}
	require.True(t, p.freeze(t.Context(), time.Millisecond))
	require.EqualValues(t, 3, looks.Load())
	require.Nil(t, p.stop(0))
}

// A program that was told to stop is not kept from it.
func TestAProgramThatIsBeingStoppedIsNotFrozen(t *testing.T) {
	mayExit := filepath.Join(t.TempDir(), "may-exit")
	p := shell(t, nil, "trap 'until [ -e "+mayExit+" ]; do sleep 0.01; done; exit 0' TERM; "+waits)
	p.says("ready")
	var stops sync.WaitGroup
	stops.Go(func() { require.Nil(t, p.stop(0)) })
	p.awaitStopping()
	require.False(t, p.freeze(t.Context(), time.Hour))
	require.NoError(t, os.WriteFile(mayExit, nil, 0o600))
	stops.Wait()
}

// held is a run in which a fault begins to hold up the controller.
func held(kind history.InjectionKind, opened map[watching]bool) (r *run, over func()) {
	r = recorded(&Scenario{})
	r.opened = opened
	return r, r.holdUps.begin("", kind)
}

func TestHoldUpsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r, over := held(history.ControllerFrozen, nil)
		time.Sleep(10 * time.Second)
		require.Zero(t, r.elapsed(begin), "it is still frozen")
		within := time.Now()
		other := r.holdUps.begin("", history.NoAnswer)
		time.Sleep(5 * time.Second)
		over()
		time.Sleep(5 * time.Second)
		other()
		time.Sleep(time.Second)
		require.Equal(t, time.Second, r.elapsed(begin), "what overlaps counts once")
		require.Equal(t, time.Second, r.elapsed(within))
		r.holdUps.begin("", history.EventsLate)
		time.Sleep(time.Hour)
		require.Equal(t, time.Hour+21*time.Second-maxHeldUp, r.elapsed(begin), "there is an end")
	})
}

// After an outage, a client may have to wait out its backoff before it watches again and repeats its write.
func TestAnOutageEndsWithTheRecovery(t *testing.T) {
	for name, c := range map[string]struct {
		watches, repeats bool
		want             time.Duration // until it counts as over
	}{
		"it has recovered":        {true, true, 10 * time.Second},
		"it does not watch":       {false, true, 90*time.Second + firstBackoff},
		"it does not write again": {true, false, 90*time.Second + firstBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, over := held(history.Disconnected, map[watching]bool{{resource: "pods"}: true})
				begin := time.Now()
				id := int64(0)
				record := func(q history.Request) {
					id++
					q.ID, q.Start = id, time.Now()
					r.recording.Record(history.Record{Request: &q})
				}
				record(history.Request{Verb: "delete", Resource: "pods", Name: "a", Error: "broken off"})
				time.Sleep(45 * time.Second)
				over()
				time.Sleep(10 * time.Second)
				require.Zero(t, r.elapsed(begin), "it has not recovered")
				if c.watches {
					record(history.Request{Verb: "watch", Resource: "pods", Status: 200, Open: true})
				}
				if c.repeats {
					record(history.Request{Verb: "delete", Resource: "pods", Name: "a", Status: 200})
				}
				require.Zero(t, r.elapsed(begin))
				time.Sleep(100 * time.Second)
				require.Equal(t, 110*time.Second-c.want, r.elapsed(begin))
			})
		})
	}
}

// The first wait of client-go's informers is up to 1.6 seconds, and the second up to twice that, however short the outage is.
func TestAShortOutageEndsWithTheRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, over := held(history.Disconnected, map[watching]bool{{resource: "pods"}: true})
		begin := time.Now()
		time.Sleep(time.Second)
		over()
		time.Sleep(3500 * time.Millisecond)
		require.Zero(t, r.elapsed(begin), "it waits")
		r.recording.Record(history.Record{Request: &history.Request{ID: 1, Verb: "watch", Resource: "pods", Status: 200, Open: true, Start: time.Now()}})
		require.Zero(t, r.elapsed(begin))
		time.Sleep(time.Second)
		require.Equal(t, time.Second, r.elapsed(begin))
	})
}

// A resource without objects has no events. Its watch must be open again all the same, or else it is opened in the quiet time.
func TestAnOutageGoesOnUntilWatchesWithoutEventsAreOpen(t *testing.T) {
	r := replicas()
	id := int64(0)
	open := func(p *program, resource string) {
		id++
		q := history.Request{ID: int64(p.number)<<proxyBits + id, Program: p.label, Verb: "watch", Resource: resource, Status: 200, Open: true, Start: time.Now()}
		r.recording.Record(history.Record{Request: &q})
	}
	for _, p := range r.programs[:2] {
		open(p, "pods")
		open(p, "secrets")
	}
	r.opened = r.openedIn(r.recording.History())
	r.recording = history.Memory{}
	outage := time.Now()
	open(r.programs[0], "pods")
	require.False(t, r.recovered("controller-1", outage), "it has not opened the watch of secrets")
	open(r.programs[0], "secrets")
	require.True(t, r.recovered("controller-1", outage))
	require.False(t, r.recovered("", outage))
}

func TestMayHaveLostLease(t *testing.T) {
	renewal := history.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Status: 200}
	refused := injected(renewal, refusal)
	refused.Status = 500
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when virtual time begins
	at := func(s int, q history.Request) history.Request {
		q.Start = now.Add(time.Duration(s) * time.Second)
		return q
	}
	for name, c := range map[string]struct {
		requests []history.Request
		frozen   bool
		stalled  bool // the machine, from ten seconds ago until five
		want     bool
	}{
		"nothing went wrong":                          {[]history.Request{at(-30, renewal), at(-28, renewal)}, false, false, false},
		"it has no Lease":                             {nil, true, true, false},
		"it had the Lease before":                     {[]history.Request{at(-70, renewal)}, true, false, false},
		"it was frozen":                               {[]history.Request{at(-30, renewal), at(-1, renewal)}, true, false, true},
		"one renewal failed":                          {[]history.Request{at(-5, renewal), at(-3, renewal), at(-1, refused)}, false, false, false},
		"renewals failed for a long time":             {[]history.Request{at(-30, renewal), at(-28, renewal), at(-26, refused), at(-2, refused)}, false, false, true},
		"renewals failed on a busy machine":           {[]history.Request{at(-15, renewal), at(-14, renewal), at(-11, renewal), at(-8, renewal), at(-5, renewal), at(-3, refused)}, false, false, true},
		"the machine stalled":                         {[]history.Request{at(-14, renewal), at(-12, renewal)}, false, true, true},
		"it has renewed since the stall":              {[]history.Request{at(-14, renewal), at(-12, renewal), at(-4, renewal), at(-3, renewal), at(-2, renewal)}, false, true, false},
		"it renewed too late, and released the Lease": {[]history.Request{at(-30, renewal), at(-28, renewal), at(-26, refused), at(-3, renewal), at(-1, renewal)}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := recorded(&Scenario{}, c.requests...)
				if c.frozen {
					r.programs[0].freezes = []time.Time{now.Add(-20 * time.Second)}
				}
				started := now.Add(-time.Minute)
				if c.stalled {
					stalled := []stall{{at(-10, renewal).Start, at(-5, renewal).Start}}
					r.stalls = &stalls{starved: stalled} // the program got no processor
					require.Equal(t, c.want, r.mayHaveLostLease(r.programs[0], started))
					r.stalls = &stalls{all: stalled}
				}
				require.Equal(t, c.want, r.mayHaveLostLease(r.programs[0], started))
				if c.want {
					require.True(t, r.mayExit(r.programs[0])(1, started))
				}
			})
		})
	}
}

// replicas is a run of two replicas, of which nothing is recorded yet, and of another program.
func replicas() *run {
	r := recorded(&Scenario{Programs: map[string]Controller{"controller": {Replicas: 2}, "agent": {}}})
	r.programs = nil
	for number, label := range []string{"controller-1", "controller-2", "agent"} {
		r.programs = append(r.programs, &program{number: number + 1, label: label, process: &process{}})
	}
	return r
}

// The scenario goes on while a replica is frozen or cannot connect, as another one is expected to stand in.
func TestReplicasStandIn(t *testing.T) {
	for name, c := range map[string]struct {
		kinds map[history.InjectionKind]string // the program that each holds up
		want  bool
	}{
		"nothing":                           {nil, false},
		"one is frozen":                     {map[history.InjectionKind]string{history.ControllerFrozen: "controller-1"}, false},
		"one cannot connect":                {map[history.InjectionKind]string{history.Disconnected: "controller-1"}, false},
		"one gets no answer":                {map[history.InjectionKind]string{history.NoAnswer: "controller-1"}, true},
		"neither can act":                   {map[history.InjectionKind]string{history.ControllerFrozen: "controller-1", history.Disconnected: "controller-2"}, true},
		"all are frozen":                    {map[history.InjectionKind]string{history.ControllerFrozen: ""}, true},
		"a program is frozen that is alone": {map[history.InjectionKind]string{history.ControllerFrozen: "agent"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := replicas()
			var all []func()
			for kind, label := range c.kinds {
				all = append(all, r.holder(label)(kind))
			}
			require.Equal(t, c.want, r.isHeldUp())
			require.Len(t, r.holdUps.current(r.recovered), len(c.kinds))
			for _, over := range all {
				over()
			}
		})
	}
}

// Each program recovers from an outage by itself.
func TestAnOutageOfOneProgram(t *testing.T) {
	r := replicas()
	r.opened = map[watching]bool{{"controller", "pods"}: true, {"agent", "nodes"}: true}
	begin := time.Now()
	watch := func(id int64, program, resource string) {
		r.recording.Record(history.Record{Request: &history.Request{ID: id, Program: program, Verb: "watch", Resource: resource, Status: 200, Open: true, Start: time.Now()}})
	}
	watch(1, "controller-1", "pods")
	require.True(t, r.recovered("controller-1", begin))
	require.False(t, r.recovered("controller-2", begin), "another one's watch is not its own")
	require.False(t, r.recovered("", begin))
	watch(2, "controller-2", "pods")
	watch(3, "agent", "nodes")
	require.True(t, r.recovered("", begin))
	r.recording.Record(history.Record{Request: &history.Request{ID: 4, Program: "agent", Verb: "delete", Resource: "pods", Status: 500, Start: time.Now()}})
	require.True(t, r.recovered("controller-2", begin))
	require.False(t, r.recovered("agent", begin), "it owes a write")
	require.False(t, r.holdUps.outageSince("agent", begin))
	over := r.holder("agent")(history.Disconnected)
	require.True(t, r.holdUps.outageSince("agent", begin))
	require.False(t, r.holdUps.outageSince("controller-1", begin))
	over()
}

// While the control plane is down, a leader cannot renew its Lease, however long its restart takes.
func TestALeaseMayBeLostWhileTheControlPlaneIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		r := recorded(&Scenario{})
		r.controlPlane = &controlPlane{crash: func() { time.Sleep(10 * time.Second) }}
		for range 3 {
			time.Sleep(2 * time.Second)
			q := history.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Status: 200, Start: time.Now()}
			r.recording.Record(history.Record{Request: &q})
		}
		require.False(t, r.mayHaveLostLease(r.programs[0], started))
		r.crash()()
		require.True(t, r.mayHaveLostLease(r.programs[0], started))
		require.False(t, r.mayHaveLostLease(r.programs[0], time.Now()), "a process that started later")

		r.controlPlane.crash = nil
		require.Nil(t, r.crash())
	})
}

// On a busy machine, a program that is thawed may get no processor for a while.
func TestAQuietTimeInWhichAFrozenProgramGoesOn(t *testing.T) {
	begin := time.Now()
	thawed, from := begin.Add(10*time.Second), begin.Add(12*time.Second)
	request := func(program, verb, resource string, after time.Duration) history.Request {
		return history.Request{Program: program, Verb: verb, Resource: resource, Start: begin.Add(after)}
	}
	write := request("ledger-1", "update", "configmaps", 13*time.Second)
	for name, c := range map[string]struct {
		kind     history.InjectionKind
		to       time.Time
		requests []history.Request
		want     bool
	}{
		"it writes at last":              {history.ControllerFrozen, thawed, []history.Request{write}, true},
		"it has only renewed its Lease":  {history.ControllerFrozen, thawed, []history.Request{request("ledger-1", "update", "leases", 11*time.Second), write}, true},
		"it worked before it was frozen": {history.ControllerFrozen, thawed, []history.Request{request("ledger-1", "update", "configmaps", 9*time.Second), write}, true},
		"it has only watched again":      {history.ControllerFrozen, thawed, []history.Request{request("ledger-1", "watch", "configmaps", 11*time.Second), write}, true},
		"it has written already":         {history.ControllerFrozen, thawed, []history.Request{request("ledger-1", "update", "configmaps", 11*time.Second), write}, false},
		"another one writes":             {history.ControllerFrozen, thawed, []history.Request{request("ledger-2", "update", "configmaps", 13*time.Second)}, false},
		"nothing comes":                  {history.ControllerFrozen, thawed, nil, false},
		"it is still frozen":             {history.ControllerFrozen, time.Time{}, []history.Request{write}, false},
		"it was not frozen":              {history.NoAnswer, thawed, []history.Request{write}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &holdUps{all: []*holdUp{{label: "ledger-1", kind: c.kind, from: begin, to: c.to}}}
			require.Equal(t, c.want, h.thawedIn(c.requests, from))
		})
	}
}
