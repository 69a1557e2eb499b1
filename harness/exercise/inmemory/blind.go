package inmemory

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"example.com/controllers/harness/history"
)

// OnBlindWrite sets what is called for each write of a client that is not privileged, and that may undo a change of somebody else
// which the client has not seen: an update without a resourceVersion, and a merge patch of a whole list without one.
func (s *Server) OnBlindWrite(do func(history.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onBlindWrite = do
}

// isBlind reports whether a write does not say which version of the object it is for, although it replaces more than its own.
func isBlind(t target, r *http.Request, body []byte) bool {
	if t.verb != "update" && (t.verb != "patch" || r.Header.Get("Content-Type") != string(types.MergePatchType)) {
		return false
	}
	object, err := decode(body)
	if err != nil || metadata(object, "resourceVersion") != "" {
		return false
	}
	if t.verb == "update" {
		return true
	}
	for _, list := range [][2]string{{"metadata", "finalizers"}, {"metadata", "ownerReferences"}, {"status", "conditions"}} {
		if _, ok := part(object, list[0])[list[1]].([]any); ok {
			return true
		}
	}
	return false
}

// before is something that happens before the next request that matches.
type before struct {
	matches func(history.Request) bool
	do      func()
}

// Before makes something happen once: right before the server carries out the next request of a client that is not privileged and
// for which matches returns true.
func (s *Server) Before(matches func(history.Request) bool, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.befores = append(s.befores, before{matches, do})
}

// takeBefore returns what is to happen before a request, and forgets it; nil if nothing is.
func (s *Server) takeBefore(c *Client, request history.Request) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.befores {
		if !c.privileged && b.matches(request) {
			s.befores = append(s.befores[:i:i], s.befores[i+1:]...)
			return b.do
		}
	}
	return nil
}
