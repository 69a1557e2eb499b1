package apiproxy

import "fmt"

// SetFaults replaces what goes wrong on purpose, from the next request on; the numbers of From and To are
// counted anew. Without faults, nothing goes wrong any more, but with watches that had begun: what is late
// stays late. What is held is released. A fault that makes no sense is an error, and then nothing changes.
// Any number of goroutines may call it while requests pass.
func (p *Proxy) SetFaults(faults ...Fault) error {
	var fresh []*armed
	for _, fault := range faults {
		if err := fault.check(); err != nil {
			return fmt.Errorf("fault %q: %w", fault, err)
		}
		if fault.Kill != "" && p.kill == nil || fault.Crash != "" && p.crash == nil || fault.Stop != "" && p.stop == nil {
			return fmt.Errorf("fault %q: there is nothing here that it could end; that is for \"workshop torture\"", fault)
		}
		fresh = append(fresh, &armed{Fault: fault})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = fresh // never changed in place: a request may be looking at the old ones
	p.releaseLocked()
	return nil
}

// Release lets the events go that are held. Watches in which none has been held yet are not concerned.
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

func (p *Proxy) currentFaults() []*armed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}
