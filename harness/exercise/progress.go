package exercise

import (
	"fmt"
	"path/filepath"
	"time"

	"example.com/controllers/harness/statefile"
)

// Progress is what the participant has done so far. It is kept in a small file next to the participant's copies.
type Progress struct {
	// Passed says when each exercise has passed for the first time, by name.
	Passed map[string]time.Time `json:"passed,omitempty"`
	// Hints says how many hints of each exercise have been shown, by name.
	Hints map[string]int `json:"hints,omitempty"`
	// Helped says how many hints had been shown when each exercise has passed for the first time, by name.
	Helped map[string]int `json:"helped,omitempty"`
	// Current is the exercise that the participant has chosen and that has not passed since, "" for the first that has not
	// passed.
	Current string `json:"current,omitempty"`

	path string
}

// ReadProgress reads the participant's progress. Without a file, there is none yet.
func (c *Catalogue) ReadProgress() (*Progress, error) {
	p, err := readProgress(filepath.Join(c.Dir, mineDir, progressFile))
	if err != nil {
		return nil, fmt.Errorf("read your progress: %w", err)
	}
	return p, nil
}

func readProgress(path string) (*Progress, error) {
	p := &Progress{path: path}
	if err := statefile.Read(path, p); err != nil {
		return nil, err
	}
	if p.Passed == nil {
		p.Passed = map[string]time.Time{}
	}
	if p.Hints == nil {
		p.Hints = map[string]int{}
	}
	if p.Helped == nil {
		p.Helped = map[string]int{}
	}
	return p, nil
}

// Update changes the progress and saves it. What other processes have saved since it was read is kept. With an error, the
// change is not saved.
func (p *Progress) Update(change func(*Progress)) error {
	if err := p.update(change); err != nil {
		change(p)
		return fmt.Errorf("save your progress: %w", err)
	}
	return nil
}

func (p *Progress) update(change func(*Progress)) error {
	const head = "Kept by \"make exercise\". Delete this file to start over; your code stays."
	var latest *Progress
	err := statefile.Update(p.path, head, func() (_ any, err error) {
		if latest, err = readProgress(p.path); err == nil {
			change(latest)
		}
		return latest, err
	})
	if err == nil {
		*p = *latest
	}
	return err
}

// CurrentOf returns the exercise to work on: the chosen one, or the first that has not passed. done is true if all have
// passed and none is chosen; the exercise is then the last one.
func (p *Progress) CurrentOf(c *Catalogue) (e Exercise, done bool) {
	if p.Current != "" {
		if e, err := c.Find(p.Current); err == nil {
			return e, false
		}
	}
	for _, e := range c.Exercises {
		if p.Passed[e.Name].IsZero() {
			return e, false
		}
	}
	return c.Exercises[len(c.Exercises)-1], true
}

// Count returns how many of the exercises have passed.
func (p *Progress) Count(c *Catalogue) int {
	count := 0
	for _, e := range c.Exercises {
		if !p.Passed[e.Name].IsZero() {
			count++
		}
	}
	return count
}

// Pass notes that an exercise has passed, if it has not passed before. It is then no longer the chosen one.
func (p *Progress) Pass(e Exercise, now time.Time) {
	if p.Current == e.Name {
		p.Current = ""
	}
	if p.Passed[e.Name].IsZero() {
		p.Passed[e.Name] = now.UTC().Truncate(time.Second)
		p.Helped[e.Name] = p.Hints[e.Name]
	}
}

// Again notes that the participant starts an exercise again. One that has been solved stays solved.
func (p *Progress) Again(e Exercise) { delete(p.Hints, e.Name) }

// Marks says what a list shows about an exercise, beside its title: whether it has been solved, and what it is like.
func (p *Progress) Marks(e Exercise) (solved bool, about []string) {
	solved = !p.Passed[e.Name].IsZero()
	if e.Write {
		about = append(about, "write")
	}
	if e.Cluster {
		about = append(about, "needs the control plane")
	}
	if helped := p.Helped[e.Name]; solved && helped == 1 {
		about = append(about, "with a hint")
	} else if solved && helped > 1 {
		about = append(about, fmt.Sprintf("with %d hints", helped))
	}
	return solved, about
}
