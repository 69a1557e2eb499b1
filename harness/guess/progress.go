package guess

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/statefile"
)

// Files in the directory of the questions, in which nothing is committed.
const (
	progressFile = "my/progress.yaml"
	roomFile     = "my/room.yaml"
)

// Progress is what somebody, or a room, has guessed so far.
type Progress struct {
	// Attempts are the guesses, the oldest first.
	Attempts []Attempt `json:"attempts"`

	path string
}

// Attempt is a guess, by one person, or by several who guessed the same.
type Attempt struct {
	Question string    `json:"question"`
	Guess    string    `json:"guess"` // see [Guess.Text]
	Right    bool      `json:"right"`
	Sure     *int      `json:"sure,omitempty"`  // in percent
	Hands    int       `json:"hands,omitempty"` // how many guessed so; 0 for one person alone
	At       time.Time `json:"at"`
}

// people returns how many people guessed so.
func (a Attempt) people() int { return max(1, a.Hands) }

// ProgressPath returns the path of the learner's progress, or of the room's, in the repository at root.
func ProgressPath(root string, room bool) string {
	if room {
		return filepath.Join(root, Dir, roomFile)
	}
	return filepath.Join(root, Dir, progressFile)
}

// ReadProgress reads a file that [Progress.Add] has written. If there is no file, nothing has been guessed yet.
func ReadProgress(path string) (*Progress, error) {
	p := &Progress{path: path}
	if err := statefile.Read(path, p, yaml.DisallowUnknownFields); err != nil {
		return nil, fmt.Errorf("read the guesses so far: %w", err)
	}
	return p, nil
}

// Add adds guesses, and saves them. What other processes have saved meanwhile is kept.
func (p *Progress) Add(attempts ...Attempt) error {
	var latest *Progress
	err := statefile.Update(p.path, `Kept by "make guess". Delete this file to start over.`, func() (_ any, err error) {
		if latest, err = ReadProgress(p.path); err == nil {
			latest.Attempts = append(latest.Attempts, attempts...)
		}
		return latest, err
	})
	if err != nil {
		return fmt.Errorf("save the guess: %w", err)
	}
	*p = *latest
	return nil
}

// again is after how many other guesses a question that was missed comes back.
const again = 4

// next returns the question to ask: one that was missed a while ago, or the next one that has not been asked, or one that was
// missed just now. done is true if all have been guessed right, or are among those that are skipped.
func (p *Progress) next(questions []Question, skipped map[string]bool) (_ Question, done bool) {
	last := map[string]int{} // index of the last attempt
	for i, a := range p.Attempts {
		last[a.Question] = i
	}
	var missed, fresh []Question
	for _, q := range questions {
		i, asked := last[q.Name]
		switch {
		case skipped[q.Name]:
		case !asked:
			fresh = append(fresh, q)
		case !p.Attempts[i].Right:
			missed = append(missed, q)
		}
	}
	slices.SortStableFunc(missed, func(a, b Question) int { return last[a.Name] - last[b.Name] })
	switch {
	case len(missed) > 0 && (len(fresh) == 0 || len(p.Attempts)-1-last[missed[0].Name] >= again):
		return missed[0], false
	case len(fresh) > 0:
		return fresh[0], false
	}
	return Question{}, true
}

// asked reports whether a question has been asked.
func (p *Progress) asked(name string) bool {
	return slices.ContainsFunc(p.Attempts, func(a Attempt) bool { return a.Question == name })
}
