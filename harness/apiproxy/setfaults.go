package apiproxy

import "fmt"

// SetFaults replaces the faults, from the next request on, and counts requests for From and To anew. Without arguments
// it ends fault injection. Watches that have begun keep what was injected into them, such as lateness, but events that
// are held are released. If a fault is invalid, SetFaults returns an error and changes nothing.
func (p *Proxy) SetFaults(faults ...Fault) error {
	var fresh []*Armed
	for _, fault := range faults {
		fresh = append(fresh, Arm(fault))
	}
	return p.arm(fresh)
}

// arm replaces the faults by those that are armed already.
func (p *Proxy) arm(fresh []*Armed) error {
	for _, one := range fresh {
		fault := one.Fault
		if err := fault.check(); err != nil {
			return fmt.Errorf("fault %q: %w", fault, err)
		}
		if fault.Program != "" {
			return fmt.Errorf("fault %q: there are no programs to choose from here; use it with \"workshop torture\"", fault)
		}
		if fault.Kill != "" && p.kill == nil || fault.Crash != "" && p.crash == nil || fault.Stop != "" && p.stop == nil ||
			fault.Freeze != "" && p.freeze == nil || (fault.Reboot != "" || fault.PowerCut != "") && p.failMachine == nil {
			return fmt.Errorf("fault %q: the proxy has no controller, control plane or machine to do this to; use it with \"workshop torture\"", fault)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = fresh // replaced, never modified: requests in flight may be reading the old slice
	p.releaseLocked()
	return nil
}

// Release forwards the events that [WatchHeld] holds back. It does not affect watches that have not reached their held
// event yet.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked()
}

func (p *Proxy) releaseLocked() {
	close(p.release)
	p.release = make(chan struct{})
}

// released returns a channel that is closed by the next Release.
func (p *Proxy) released() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release
}

func (p *Proxy) currentFaults() []*Armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}
