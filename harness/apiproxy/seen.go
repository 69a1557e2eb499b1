package apiproxy

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// seen has the resourceVersions that the proxy has seen. It is never behind what a client knows: a response or an event
// is entered before the client gets it.
type seen struct {
	mu sync.Mutex
	// objects and older have the last resourceVersion of each object. objects has at most maxObjects entries: when it
	// is full it becomes older, and the entries of older that have not been used since are dropped. So memory is bounded.
	objects, older map[object]string
	// latest has the highest resourceVersion of each resource. A write to the resource that is sent after this was
	// seen, and changes anything, results in a higher one.
	latest map[resource]string
}

// maxObjects is the greatest number of entries in seen.objects.
const maxObjects = 1 << 15

type resource struct{ group, name string }

type object struct {
	resource
	namespace, name string
}

func newSeen() *seen {
	return &seen{objects: map[object]string{}, older: map[object]string{}, latest: map[resource]string{}}
}

// object enters the resourceVersion of an object.
func (s *seen) object(o object, version string) {
	if version == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isAtMost(version, s.find(o)) { // a response from a cache may be older
		s.put(o, version)
	}
	s.raise(o.resource, version)
}

// version enters a resourceVersion of a resource, such as that of a list.
func (s *seen) version(r resource, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raise(r, version)
}

// gone removes an object that no longer exists.
func (s *seen) gone(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, o)
	delete(s.older, o)
}

// before returns the last resourceVersion of an object, and the highest of its resource.
func (s *seen) before(o object) (version, latest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(o), s.latest[o.resource]
}

func (s *seen) find(o object) string {
	if version, ok := s.objects[o]; ok {
		return version
	}
	version, ok := s.older[o]
	if ok {
		s.put(o, version)
	}
	return version
}

func (s *seen) put(o object, version string) {
	if len(s.objects) >= maxObjects {
		s.older, s.objects = s.objects, map[object]string{}
	}
	s.objects[o] = version
}

func (s *seen) raise(r resource, version string) {
	isValid := isAtMost(version, version) // false for "", and for versions that cannot be compared
	if isValid && !isAtMost(version, s.latest[r]) {
		s.latest[r] = version
	}
}

// isAtMost says whether resourceVersion a is not after b. It is false if they cannot be compared.
func isAtMost(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}
