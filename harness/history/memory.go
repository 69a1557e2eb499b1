package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Memory is a recording in memory that grows: a log. The zero value is an empty recording. All methods may be called
// concurrently. What a record points to must not change after it has been recorded.
type Memory struct {
	mu      sync.Mutex
	records []Record      // in the order in which they came
	changed chan struct{} // closed at the next record; nil if nobody waits for it
	sorted  sorted        // the first of the records, as many as sorted.of
}

// Record adds a record.
func (m *Memory) Record(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Len returns the number of records so far.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// Since returns the records that came after a cursor, in the order in which they came, and the cursor of those that
// come after them. A cursor is 0, for all records, or what Since has returned. A watch that has ended comes a second time.
func (m *Memory) Since(cursor int) (records []Record, next int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next = len(m.records)
	return m.records[cursor:next:next], next
}

// Changed returns a channel that is closed when the next record comes. To miss none, get the channel before you look at
// what there is.
func (m *Memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// History returns the history of the records so far, as [Of] does. It costs nothing if there are no new ones, and little
// for new ones that belong at the end. Others, such as the end of a watch, take a copy of the requests, or of whatever they are.
func (m *Memory) History() *History {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sorted.history == nil || m.sorted.of < len(m.records) {
		m.sorted.add(m.records[m.sorted.of:])
	}
	return m.sorted.history
}

// sorted is a history that grows. Its slices have room at their ends, into which it appends: the histories that it has
// returned share their arrays, and none of them sees what is beyond its own length.
type sorted struct {
	whole   History
	history *History            // whole as of now, without the room at the ends; nil at first
	of      int                 // how many records it is of
	starts  map[int64]time.Time // of the requests, by ID
}

// add adds records, and makes a new history.
func (s *sorted) add(records []Record) {
	if s.starts == nil {
		s.starts = map[int64]time.Time{}
	}
	added := Of(records...)
	s.addRequests(added.Requests)
	s.whole.Events = merge(s.whole.Events, added.Events, byTimeOf(Event.at))
	s.whole.Seen = merge(s.whole.Seen, added.Seen, byTimeOf(Event.at))
	s.whole.Steps = merge(s.whole.Steps, added.Steps, byTimeOf(Step.at))
	s.whole.Processes = merge(s.whole.Processes, added.Processes, byTimeOf(Process.at))
	s.whole.Samples = merge(s.whole.Samples, added.Samples, byTimeOf(Sample.at))
	s.of += len(records)
	s.history = &History{
		Requests: slices.Clip(s.whole.Requests),
		Events:   slices.Clip(s.whole.Events),
		Besides: Besides{
			Seen:      slices.Clip(s.whole.Seen),
			Steps:     slices.Clip(s.whole.Steps),
			Processes: slices.Clip(s.whole.Processes),
			Samples:   slices.Clip(s.whole.Samples),
		},
	}
}

// addRequests adds requests, which are sorted, and have each ID once. They replace those that have the same IDs.
func (s *sorted) addRequests(added []Request) {
	var replaced []int // where in whole.Requests
	for _, r := range added {
		if start, ok := s.starts[r.ID]; ok {
			i, _ := slices.BinarySearchFunc(s.whole.Requests, Request{ID: r.ID, Start: start}, byStart)
			replaced = append(replaced, i)
		}
		s.starts[r.ID] = r.Start
	}
	kept := s.whole.Requests
	if len(replaced) > 0 {
		slices.Sort(replaced)
		kept = make([]Request, 0, withRoom(len(kept)+len(added)))
		from := 0
		for _, i := range replaced {
			kept = append(kept, s.whole.Requests[from:i]...)
			from = i + 1
		}
		kept = append(kept, s.whole.Requests[from:]...)
	}
	s.whole.Requests = merge(kept, added, byStart)
}

// merge returns both slices, which are sorted, as one. Of equal elements, those of the first slice come first. The result may
// have the first slice's array, of which no element is changed.
func merge[T any](first, second []T, compare func(a, b T) int) []T {
	if len(first) == 0 || len(second) == 0 || compare(first[len(first)-1], second[0]) <= 0 {
		return append(first, second...)
	}
	all := make([]T, 0, withRoom(len(first)+len(second)))
	for _, one := range second {
		n, _ := slices.BinarySearchFunc(first, one, func(a, b T) int { return cmp.Or(compare(a, b), -1) }) // those that come before one
		all = append(append(all, first[:n]...), one)
		first = first[n:]
	}
	return append(all, first...)
}

// withRoom is a capacity for that many elements and more, so that appending copies each of them only a few times in all.
func withRoom(length int) int { return length + length/4 + 16 }
