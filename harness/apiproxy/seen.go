package apiproxy

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// seen is what has been seen of resourceVersions. It is always up to date with what clients have been
// told: it learns of an answer or an event before the client does.
type seen struct {
	mu sync.Mutex
	// objects and older are the last resourceVersion by object. When objects is full, older is forgotten
	// and objects becomes it, so what is not looked at for long goes, and memory is bounded.
	objects, older map[object]string
	// latest is the highest resourceVersion by resource. Any write to the resource that comes after it
	// was seen, and changes anything, results in a higher one.
	latest map[resource]string
}

// generation is the number of objects at which the older ones are forgotten.
const generation = 1 << 15

type resource struct{ group, name string }

type object struct {
	resource
	namespace, name string
}

func newSeen() *seen {
	return &seen{objects: map[object]string{}, older: map[object]string{}, latest: map[resource]string{}}
}

// object saw an object at a resourceVersion.
func (s *seen) object(o object, version string) {
	if version == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isAtMost(version, s.find(o)) { // an answer from a cache may be older
		s.put(o, version)
	}
	s.raise(o.resource, version)
}

// version saw a resourceVersion of a resource.
func (s *seen) version(r resource, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raise(r, version)
}

// gone saw that an object is no more.
func (s *seen) gone(o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, o)
	delete(s.older, o)
}

// before returns what is known now: the last resourceVersion of an object, and the highest of its
// resource.
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
	if len(s.objects) >= generation {
		s.older, s.objects = s.objects, map[object]string{}
	}
	s.objects[o] = version
}

func (s *seen) raise(r resource, version string) {
	isOne := isAtMost(version, version) // not "", nor something of an API server of another kind
	if isOne && !isAtMost(version, s.latest[r]) {
		s.latest[r] = version
	}
}

// isAtMost says whether a is not after b. It is false for what is no resourceVersion of Kubernetes' own.
func isAtMost(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order <= 0
}
