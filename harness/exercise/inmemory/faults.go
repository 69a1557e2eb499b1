package inmemory

import (
	"fmt"
	"slices"
	"time"

	"example.com/controllers/harness/apiproxy"
)

// fault is a fault in force, and how many requests it has matched.
type fault struct {
	apiproxy.Fault
	matched int
	first   time.Time // when it applied for the first time
}

// Inject adds faults to the requests of all clients but privileged ones, until remove or Heal is called. It refuses those that it
// cannot play: of a proxy in front of a server, of processes, and of machines.
func (s *Server) Inject(faults ...apiproxy.Fault) (remove func(), err error) {
	for _, f := range faults {
		if key := unsupported(f); key != "" {
			return nil, fmt.Errorf("the API server in memory cannot play %s: it has no %s", f, key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []*fault
	for _, f := range faults {
		added = append(added, &fault{Fault: f})
	}
	s.faults = append(s.faults, added...)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(f *fault) bool { return slices.Contains(added, f) })
	}, nil
}

// unsupported returns the key of an effect that only apiproxy can play; "" if the fault has none.
func unsupported(f apiproxy.Fault) string {
	for key, used := range map[string]bool{
		"down": f.Down > 0, "crash": f.Crash != "", "stop": f.Stop != "", "freeze": f.Freeze != "", "reboot": f.Reboot != "", "power-cut": f.PowerCut != "",
		"lost=late": f.Lost == apiproxy.LostLate, "watch=unobserved": f.Watch == apiproxy.WatchUnobserved, "watch=no-bookmarks": f.Watch == apiproxy.WatchNoBookmarks,
	} {
		if used {
			return key
		}
	}
	return ""
}

// Heal ends all faults. Watches whose events were held back deliver them.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	for w := range s.watches {
		w.release()
	}
}
