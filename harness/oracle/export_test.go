package oracle

import "time"

// ExpirePatience pretends that the watch of a resource has been failing for longer than it is retried. It returns false if
// the watch does not fail.
func (s *States) ExpirePatience(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing[resource].IsZero() {
		return false
	}
	s.failing[resource] = time.Now().Add(-2 * patience)
	return true
}
