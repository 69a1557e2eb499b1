package history

import "sync"

// Memory is a recording in memory, for tests. The zero value is an empty recording. All methods may be called
// concurrently.
type Memory struct {
	mu      sync.Mutex
	records []Record
	made    *History // of the first records, as many as madeOf; nil if none was made yet
	madeOf  int
}

// Record adds a record.
func (m *Memory) Record(r Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
}

// Len returns the number of records so far.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

// History returns the history of the records so far. It costs nothing if there are no new ones.
func (m *Memory) History() *History {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || m.madeOf < len(m.records) {
		m.made, m.madeOf = Of(m.records...), len(m.records)
	}
	return m.made
}
