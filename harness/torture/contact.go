package torture

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// SilentError is the error of a program that has been started and has sent no request at all to the API server that it was
// given. There is nothing to judge then: most likely it reads another kubeconfig.
type SilentError struct {
	After time.Duration // since its start
	name  string        // of the program
	tail  string        // of its log
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s after its start, the program %s has sent no request through the proxy. It must use the kubeconfig that it is "+
		"given: put {kubeconfig} in its arguments, or have it read KUBECONFIG; %s", e.After.Round(time.Second), e.name, e.tail)
}

// silenceLimit is how long after its start a controller must have sent its first request. It is far more than a busy
// machine needs to start a program.
const silenceLimit = 20 * time.Second

// contact is the latest start of a program.
type contact struct {
	mu      sync.Mutex
	at      time.Time
	arrived int64 // requests that had arrived by then
}

// noteStart notes that a program is being started.
func (ps *processes) noteStart(p *program) {
	arrived := ps.arrived(p)
	p.contact.mu.Lock()
	defer p.contact.mu.Unlock()
	p.contact.at, p.contact.arrived = time.Now(), arrived
}

// arrived returns how many requests of a program have arrived at its proxy. Those to programs outside of the cluster count
// for every program.
func (ps *processes) arrived(p *program) int64 {
	count := p.proxy.Arrived()
	for _, o := range ps.outside {
		count += o.proxy.Arrived()
	}
	return count
}

// isSilent reports whether a program runs, has sent no request since it was started, and for how long.
func (ps *processes) isSilent(p *program) (silent bool, since time.Duration) {
	if p.proxy == nil || !p.isRunning() {
		return false, 0
	}
	arrived := ps.arrived(p)
	p.contact.mu.Lock()
	defer p.contact.mu.Unlock()
	return arrived == p.contact.arrived, ps.elapsed(p.contact.at)
}

// checkContact returns an error if a program was started longer ago than limit, still runs, and has not sent a request since:
// a *[SilentError] if it has never sent one in this run. If it has, before it was ended, it is a *[Failure]: something keeps it
// from starting again. limit is then at least silenceLimit.
func (ps *processes) checkContact(limit time.Duration) error {
	for _, p := range ps.programs {
		silent, since := ps.isSilent(p)
		switch {
		case !silent || since <= limit:
		case ps.arrived(p) == 0:
			return &SilentError{After: since, name: p.name, tail: tail(p.Log())}
		case since > silenceLimit:
			return &Failure{Lost, p.name + " is silent after it was started again",
				fmt.Sprintf("%s after it was started again, the program %s has not sent any request; %s", since.Round(time.Second), p.name, tail(p.Log()))}
		}
	}
	return nil
}

// awaitRestarts waits until every program that was ended by a fault, or with its machine, runs again and has sent a
// request. There is a limit, as some programs have nothing to ask for.
func (r *run) awaitRestarts(ctx context.Context) error {
	r.stops.Wait()
	const limit = 10 * time.Second
	for begin := time.Now(); r.elapsed(begin) < limit; {
		isSilent := func(p *program) bool { silent, _ := r.isSilent(p); return silent }
		if !r.machines.areRebooting() && !slices.ContainsFunc(r.programs, isSilent) {
			return nil
		}
		if err := r.sleep(ctx, nil, pollInterval); err != nil {
			return err
		}
	}
	return nil
}
