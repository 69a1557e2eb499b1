package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/controllers/harness/history"
)

// processes are the programs of a run, in its world, and what they have been seen to do.
type processes struct {
	*world
	clock
	programs  []*program
	recording history.Memory // of all proxies
	active    atomic.Int64   // records, without those that only keep a Lease
	// opened are the resources whose watches programs must open again after an outage; nil for none. It includes those without
	// objects, of which no events are sent.
	opened map[watching]bool

	failed chan *Failure  // receives what a program did wrong by itself, and why the run cannot go on
	stops  sync.WaitGroup // stops that a fault has asked for and that are not over

	mu        sync.Mutex
	stopFault *Failure // how a program did not stop when a fault asked it to
}

func newProcesses(w *world) *processes {
	ps := &processes{world: w, failed: make(chan *Failure, 1)}
	ps.clock.recovered = ps.hasRecovered
	if w.lab != nil {
		ps.clock.stalls = w.lab.stalls
	}
	return ps
}

// fail says what a program did wrong, unless something is known already: one failure is enough.
func (ps *processes) fail(failure *Failure) {
	select {
	case ps.failed <- failure:
	default:
	}
}

// sleep waits for a time, until changed is closed, or until the controller ends by itself, which is a *Failure.
func (ps *processes) sleep(ctx context.Context, changed <-chan struct{}, duration time.Duration) error {
	select {
	case <-changed:
		return ps.checkContact(silenceLimit)
	case <-time.After(duration):
		return ps.checkContact(silenceLimit)
	case failure := <-ps.failed:
		return failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cannotGoOn ends the run with an error that is not the controller's fault.
func (ps *processes) cannotGoOn(err error) {
	ps.fail(&Failure{NotRun, "machines", err.Error()})
}

// named returns the instances that a name in a step stands for; all of them for "".
func (ps *processes) named(name string) []*program {
	return slices.DeleteFunc(slices.Clone(ps.programs), func(p *program) bool { return name != "" && name != p.name && name != p.program })
}

// names returns the names of the instances.
func (ps *processes) names() (names []string) {
	for _, p := range ps.programs {
		names = append(names, p.name)
	}
	return names
}

// log returns what the programs have printed.
func (ps *processes) log() string {
	var text strings.Builder
	for _, p := range ps.programs {
		if len(ps.programs) > 1 {
			fmt.Fprintf(&text, "==> %s <==\n", p.name)
		}
		text.WriteString(p.Log())
	}
	return text.String()
}

// on returns the programs on a machine.
func (ps *processes) on(node string) []*program {
	return slices.DeleteFunc(slices.Clone(ps.programs), func(p *program) bool { return p.node != node })
}

// isSwitchedOff reports whether the machine of a program is off, which is named as in [Scenario.target].
func (ps *processes) isSwitchedOff(target string) bool {
	return slices.ContainsFunc(ps.programs, func(p *program) bool { return p.label == target && p.isSwitchedOff() })
}

// setDown notes that a step ends or starts programs. Those that a step has ended start neither with their machines nor after
// a fault.
func (ps *processes) setDown(programs []*program, down bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range programs {
		p.isDown = down
	}
}

// each does something to all programs at once. It reports whether it was done to any.
func (ps *processes) each(do func(*program) bool) bool {
	var all sync.WaitGroup
	var done atomic.Bool
	for _, p := range ps.programs {
		all.Go(func() {
			if do(p) {
				done.Store(true)
			}
		})
	}
	all.Wait()
	return done.Load()
}

// killAndRestart is what a fault calls to kill a program. One that was to end anyway, or that a step ends, is not started
// again.
func (ps *processes) killAndRestart(p *program) {
	ending := p.isStopping()
	p.kill()
	if !ending {
		ps.restart(p)
	}
}

// stopAndRestart is what a fault calls to stop a program. It returns as soon as the program has been told. One that has been
// told already, or that a step is about to end, is left alone, because many programs take a second signal for an order to
// exit at once; done is false then.
func (ps *processes) stopAndRestart(p *program) (done bool) {
	ps.mu.Lock() // a step that calls setDown now waits for this stop in ps.stops
	defer ps.mu.Unlock()
	if p.isDown || p.isStopping() {
		return false
	}
	ps.stops.Go(func() {
		if failure := p.end(ps.scenario.StopsWith); failure != nil {
			ps.mu.Lock()
			ps.stopFault = failure
			ps.mu.Unlock()
		}
		ps.restart(p)
	})
	p.awaitStopping()
	return true
}

// restart starts a program after a fault has ended it, as a Deployment would, unless a step has ended it meanwhile.
func (ps *processes) restart(p *program) {
	if err := ps.startUnlessDown(p); err != nil {
		ps.fail(exit{notStarted: err}.byItself().of(p.label))
	}
}

// startUnlessDown starts a program, unless a step has ended it. After setDown, no call of it starts the program.
func (ps *processes) startUnlessDown(p *program) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p.isDown {
		return nil
	}
	return p.start()
}

// stopPrograms stops the programs at the end of the run, all at once.
func (ps *processes) stopPrograms() *Failure {
	ps.stops.Wait()
	failures := make([]*Failure, len(ps.programs))
	var stopping sync.WaitGroup
	for i, p := range ps.programs {
		stopping.Go(func() { failures[i] = p.end(ps.scenario.StopsWith) })
	}
	stopping.Wait()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, failure := range append([]*Failure{ps.stopFault}, failures...) {
		if failure != nil {
			return failure
		}
	}
	return nil
}

// mayExit returns a function that reports whether a program may have ended by itself with this status, and is to be
// started again: with the status that the scenario allows, after a request that failed, and before it has written anything
// since its start.
func (ps *processes) mayExit(p *program) func(status int, started time.Time) bool {
	return func(status int, started time.Time) bool {
		if ps.mayHaveLostLease(p, started) {
			return true
		}
		if ps.scenario.MayExit == 0 || status != ps.scenario.MayExit {
			return false
		}
		disturbed, wrote := ps.wasDisturbed(p, started)
		if wrote {
			return false
		}
		ps.mu.Lock()
		defer ps.mu.Unlock()
		if ps.holdUps.outageSince(p.label, started) {
			return disturbed // it comes back
		}
		p.exits++
		const limit = 50 // what is down for so long does not come back
		return disturbed && p.exits <= limit
	}
}

// wasDisturbed reports whether a request of a program has failed, and whether it has written anything since it was started.
func (ps *processes) wasDisturbed(p *program, started time.Time) (disturbed, wrote bool) {
	for _, q := range ps.recording.History().Requests {
		if q.Program != p.label {
			continue
		}
		wrote = wrote || !q.Start.Before(started) && q.IsWrite() && !q.Failed() && !ps.isIncidental(q.Resource)
		disturbed = disturbed || q.IsDisturbed() || q.Error != ""
	}
	return disturbed, wrote
}

// died judges a program that has ended by itself.
func (ps *processes) died(p *program, how exit) *Failure {
	failure := how.byItself()
	code := 0
	if how.state != nil {
		code = how.state.ExitCode()
	}
	if disturbed, wrote := ps.wasDisturbed(p, how.started); failure.Verdict == Died && ps.scenario.MayExit == 0 && code > 0 && disturbed && !wrote && !strings.Contains(how.output, "panic: ") {
		failure.Message += fmt.Sprintf("; if it may exit when a request fails and it has not written anything, put \"mayExit: %d\" into the scenario", code)
	}
	return failure.of(p.label)
}

// crash returns a function that kills the control plane and starts it again. Until it is back, no program can connect. It
// returns nil if the control plane must not be killed.
func (ps *processes) crash() func() {
	if ps.controlPlane.crash == nil {
		return nil
	}
	return func() {
		defer ps.holdUps.begin("", history.Disconnected)()
		ps.controlPlane.crash()
	}
}

// recorder returns what a proxy calls to record: it notes the program, and makes the numbers of requests unique in the run.
func (ps *processes) recorder(program string, number int) func(history.Record) {
	offset := int64(number) << proxyBits
	return func(one history.Record) {
		if resource := resourceOf(one); resource != "leases" || !ps.isIncidental(resource) {
			ps.active.Add(1)
		}
		if one.Request != nil {
			q := *one.Request
			q.ID, q.Program = q.ID+offset, program
			one.Request = &q
		}
		if one.Event != nil {
			e := *one.Event
			e.Request += offset
			one.Event = &e
		}
		ps.recording.Record(one)
	}
}

// resourceOf returns the resource of a record.
func resourceOf(one history.Record) string {
	switch {
	case one.Request != nil:
		return one.Request.Resource
	case one.Event != nil:
		return one.Event.Resource
	}
	return ""
}

func (ps *processes) recordStep(at time.Time, name string) {
	ps.recording.Record(history.Record{Step: &history.Step{Time: at, Name: name}})
}
