package torture

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"example.com/controllers/harness/cluster"
)

// Lab is where controllers are put to torture: one control plane that most runs share, and those for the plans that kill
// the control plane, which are started when they are needed. Its methods may be called by several goroutines.
type Lab struct {
	ctx     context.Context // ends the control planes; the context of a single Run may end before
	options cluster.Options
	shared  *controlPlane
	runs    atomic.Int64 // how many there have been; numbers their namespaces
	stalls  *stalls
	// warnings prints each warning of an API server once, however many runs get it.
	warnings rest.WarningHandler

	mu         sync.Mutex
	expendable []*controlPlane // all that plans may kill
	idle       []*controlPlane // those of them that no plan uses
}

// controlPlane is one that runs are on.
type controlPlane struct {
	cluster *cluster.Cluster
	options cluster.Options // that it was started with
	clients *clients
	crash   func() // kills the control plane and starts it again; nil for the shared one
	// restartErr says why the control plane could not be started again, or nil.
	restartErr func() error

	definitions once // the CustomResourceDefinitions of manifests, by their JSON
}

// Open starts a Lab with one control plane of so many nodes. The control plane ends with ctx, or with Close.
func Open(ctx context.Context, nodes int, progress io.Writer) (*Lab, error) {
	l := &Lab{ctx: ctx, options: cluster.Options{Nodes: nodes, GCPercent: 200, Progress: progress}} // one for many runs
	l.warnings = rest.NewWarningWriter(inTurn(progress), rest.WarningWriterOptions{Deduplicate: true})
	var err error
	if l.shared, err = l.newControlPlane(ctx, nodes); err != nil {
		return nil, err
	}
	l.stalls = watchForStalls(l.shared.probe, readProcessorUse)
	return l, nil
}

func (l *Lab) newControlPlane(ctx context.Context, nodes int) (*controlPlane, error) {
	options := l.options
	options.Nodes = nodes
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	p := &controlPlane{cluster: c, options: options}
	if p.clients, err = newClients(c, l.warnings); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return p, nil
}

// probe asks the API server whether it is alive, and returns when it has answered.
func (p *controlPlane) probe(ctx context.Context) {
	_ = p.clients.Discovery().RESTClient().Get().AbsPath("/livez/ping").Do(ctx).Error() // only the time counts
}

// Close stops the control planes.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalls.stop()
	err := l.shared.cluster.Stop()
	for _, p := range l.expendable {
		err = errors.Join(err, p.cluster.Stop())
	}
	return err
}

// withExpendable calls execute with a control plane that it may kill, and that nobody else uses meanwhile.
func (l *Lab) withExpendable(execute func(*controlPlane) error) error {
	p, err := l.takeExpendable()
	if err != nil {
		return err
	}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.idle = append(l.idle, p)
	}()
	return errors.Join(execute(p), p.restartErr())
}

// takeExpendable returns a control plane that no plan uses, a new one if there is none.
func (l *Lab) takeExpendable() (*controlPlane, error) {
	l.mu.Lock()
	if last := len(l.idle) - 1; last >= 0 {
		defer l.mu.Unlock()
		p := l.idle[last]
		l.idle = l.idle[:last]
		return p, nil
	}
	l.mu.Unlock()
	p, err := l.newControlPlane(l.ctx, l.options.Nodes)
	if err != nil {
		return nil, err
	}
	l.makeCrashable(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expendable = append(l.expendable, p)
	return p, nil
}

// makeCrashable lets a fault kill a control plane.
func (l *Lab) makeCrashable(p *controlPlane) {
	var mu sync.Mutex
	var failed error
	p.crash = func() {
		mu.Lock()
		defer mu.Unlock()
		if err := p.cluster.Crash(l.ctx, p.options); err != nil {
			failed = err
		}
	}
	p.restartErr = func() error {
		mu.Lock()
		defer mu.Unlock()
		return failed
	}
}

// stalls are the times at which the machine had no time for us: this process did not run, the API server, which all runs
// share, did not answer, or our processes mostly waited for a processor. They do not count as time in which a
// controller could have done something.
type stalls struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	all      []stall
	starved  []stall // apart from all
	slowed   []stall // apart from all, and including starved
	hasSpare bool    // there was processor time to spare when that was last looked at

	turn chan struct{} // has an element while it is the turn of a caller of awaitSpare
}

type stall struct{ from, to time.Time }

const (
	// stallLimit is how long a probe may take before the time counts as a stall.
	stallLimit = time.Second
	// starvedInterval is the time between two looks at how the processors are used.
	starvedInterval = time.Second
)

// watchForStalls calls probe every pollInterval and read every starvedInterval, until stop.
func watchForStalls(probe func(context.Context), read func(context.Context) processorUse) *stalls {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stalls{cancel: cancel, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	go func() {
		defer close(s.done)
		last, use := time.Now(), read(ctx)
		for ctx.Err() == nil {
			begin := time.Now()
			select {
			case <-time.After(pollInterval):
			case <-ctx.Done():
				return
			}
			probe(ctx)
			if end := time.Now(); end.Sub(begin) > stallLimit {
				s.mu.Lock()
				s.all = append(s.all, stall{begin, end})
				s.mu.Unlock()
			}
			if now := time.Now(); now.Sub(last) >= starvedInterval {
				next := read(ctx)
				s.add(&s.starved, last, now, starved(use, next, now.Sub(last)))
				s.add(&s.slowed, last, now, slowed(use, next, now.Sub(last)))
				s.mu.Lock()
				s.hasSpare = hasSpare(use, next, now.Sub(last), room)
				s.mu.Unlock()
				last, use = now, next
			}
		}
	}()
	return s
}

// add notes that for a part of this time our processes waited for a processor. A stall counts only once.
func (s *stalls) add(list *[]stall, from, to time.Time, part float64) {
	waited := time.Duration(part*float64(to.Sub(from))) - s.since(from)
	if waited > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		*list = append(*list, stall{to.Add(-waited), to})
	}
}

// awaitSpare returns when there is processor time for another run, or when over is closed. Its callers take turns, so that
// they do not all begin at once.
func (s *stalls) awaitSpare(over <-chan struct{}) {
	select {
	case <-over:
		return
	case s.turn <- struct{}{}:
	}
	defer func() { <-s.turn }()
	for hasSpare := false; !hasSpare; {
		s.mu.Lock()
		hasSpare = s.hasSpare
		s.mu.Unlock()
		select {
		case <-over:
			return
		case <-time.After(starvedInterval / 4):
		}
	}
}

func (s *stalls) stop() {
	s.cancel()
	<-s.done
}

// since returns how long this process or the API server has stalled since a time. Starvation is not included.
func (s *stalls) since(begin time.Time) time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sum(s.all, begin)
}

// starvedSince is like since, but includes the time for which our processes waited for a processor.
func (s *stalls) starvedSince(begin time.Time) time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sum(s.all, begin) + sum(s.starved, begin)
}

// slowedSince is like starvedSince, but includes such time on a machine that is merely busy.
func (s *stalls) slowedSince(begin time.Time) time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sum(s.all, begin) + sum(s.slowed, begin)
}

// sum returns how long the stalls took, from a time on.
func sum(all []stall, begin time.Time) (total time.Duration) {
	for _, one := range all {
		if one.to.After(begin) {
			from := one.from
			if from.Before(begin) {
				from = begin
			}
			total += one.to.Sub(from)
		}
	}
	return total
}
