package oracle

import "time"

// FailsSinceLong makes believe that the watch of a resource has failed for longer than anybody has patience. It
// returns false where it does not fail.
func (s *States) FailsSinceLong(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since[resource].IsZero() {
		return false
	}
	s.since[resource] = time.Now().Add(-2 * patience)
	return true
}
