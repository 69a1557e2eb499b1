package oracle

import "time"

// FailingSince returns since when the watch of a resource has been failing; the zero time if it does not.
func (s *States) FailingSince(resource string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing[resource]
}

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
