package apiproxy

import "fmt"

// SetFaults replaces what goes wrong on purpose, from the next request on; the numbers of From and To are
// counted anew. Without faults, nothing goes wrong any more. A fault that makes no sense is an error, and
// then nothing changes. Any number of goroutines may call it while requests pass.
func (p *Proxy) SetFaults(faults ...Fault) error {
	var fresh []*counted
	for _, fault := range faults {
		if err := fault.check(); err != nil {
			return fmt.Errorf("fault %q: %w", fault, err)
		}
		fresh = append(fresh, &counted{Fault: fault})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = fresh // never changed in place: a request may be looking at the old ones
	return nil
}

func (p *Proxy) currentFaults() []*counted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults
}
