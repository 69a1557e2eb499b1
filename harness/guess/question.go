// Package guess asks what Kubernetes and its libraries really do, and then lets them do it.
//
// A question is a Markdown file of the repository's directory guesses. It begins with [About] between two lines "---";
// then come a title, what the learner needs to know, and two sections:
//
//   - "What happens" is a page that package play plays in front of the learner, once the answer has been given.
//   - "Why" explains it.
//
// What a page plays is compared with what the page says, so a question whose answer is no longer true fails its test.
package guess

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/play"
	"example.com/controllers/harness/testinput"
)

// Question is a question, its answer, and the proof.
type Question struct {
	// Name is that of its file, without ".md".
	Name string
	// Title is the question in one sentence.
	Title string
	About
	// Setup is what the learner needs to know, as Markdown; it may be empty.
	Setup string
	// Page is what is played. Its commands run in the directory of the questions.
	Page *play.Page
	// Why explains the answer, as Markdown.
	Why string

	path string
}

// About is what a question's file says at its top.
type About struct {
	Topic string `json:"topic"`
	// Lesson is the number of the lesson that builds on the answer.
	Lesson int `json:"lesson"`
	// Choices are what the learner can choose from; nil if the answer is a number.
	Choices []string `json:"choices,omitempty"`
	// Answer is the letter of the right choice, from "a".
	Answer string `json:"answer,omitempty"`
	// Number is the right number, if there are no choices.
	Number *Number `json:"number,omitempty"`
	// Result is the answer in a few words, for the table of all answers.
	Result string `json:"result"`
	// Shows is what decides, in the output that the page expects.
	Shows string `json:"shows"`
	// Source is the file that decides, such as "kubernetes pkg/registry/core/pod/storage/eviction.go".
	Source string `json:"source"`
	// Since says since when it has been so, such as "1.37"; "" if that is not known.
	Since string `json:"since,omitempty"`
	// Needs names what is needed besides the control plane, such as "neutron"; "" for nothing.
	Needs string `json:"needs,omitempty"`
}

// Number is a number that is right if it is between From and To.
type Number struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Unit string  `json:"unit"`
}

// Dir is the directory of the questions, in that of the repository.
const Dir = "guesses"

// The headings of a question's sections.
const (
	playedHeading = "## What happens"
	whyHeading    = "## Why"
)

// All returns the questions of the repository at root: those of lesson 1 first, and one topic after another.
func All(root string) ([]Question, error) {
	paths, err := filepath.Glob(filepath.Join(root, Dir, "*.md"))
	if err != nil {
		return nil, err
	}
	var all []Question
	for _, path := range paths {
		if filepath.Base(path) == "README.md" {
			continue
		}
		q, err := Read(path)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no questions in %s", filepath.Join(root, Dir))
	}
	slices.SortStableFunc(all, func(a, b Question) int {
		if a.Lesson != b.Lesson {
			return a.Lesson - b.Lesson
		}
		return strings.Compare(a.Topic, b.Topic)
	})
	return all, nil
}

// Read reads a question, and says what is wrong with it.
func Read(path string) (Question, error) {
	testinput.Declare(path)
	path, err := filepath.Abs(path)
	if err != nil {
		return Question{}, err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return Question{}, err
	}
	q, err := parse(path, source)
	if err != nil {
		return Question{}, fmt.Errorf("%s: %w", path, err)
	}
	return q, nil
}

func parse(path string, source []byte) (Question, error) {
	q := Question{Name: strings.TrimSuffix(filepath.Base(path), ".md"), path: path}
	about, rest, ok := bytes.Cut(bytes.TrimPrefix(source, []byte("---\n")), []byte("\n---\n"))
	if !ok || !bytes.HasPrefix(source, []byte("---\n")) {
		return q, errors.New(`the file must begin with what the question is about, between two lines "---"`)
	}
	if err := yaml.UnmarshalStrict(about, &q.About); err != nil {
		return q, err
	}
	setup, rest, ok := bytes.Cut(rest, []byte("\n"+playedHeading+"\n"))
	if !ok {
		return q, fmt.Errorf("there is no section %q", playedHeading)
	}
	played, why, ok := bytes.Cut(rest, []byte("\n"+whyHeading+"\n"))
	if !ok {
		return q, fmt.Errorf("there is no section %q after %q", whyHeading, playedHeading)
	}
	title, text, _ := strings.Cut(strings.TrimSpace(string(setup)), "\n")
	if q.Title, ok = strings.CutPrefix(title, "# "); !ok || !strings.HasSuffix(q.Title, "?") {
		return q, errors.New(`the title must be the question: a line that begins with "# " and ends with "?"`)
	}
	q.Setup, q.Why = strings.TrimSpace(text), strings.TrimSpace(string(why))
	// So many lines come before the section that messages give the lines of the file.
	above := bytes.Count(source[:len(source)-len(why)-len("\n"+whyHeading+"\n")-len(played)], []byte("\n"))
	var err error
	if q.Page, err = play.Parse(path, append(bytes.Repeat([]byte("\n"), above), played...)); err != nil {
		return q, err
	}
	return q, q.check()
}

// check returns what is wrong with a question.
func (q Question) check() error {
	missing := func(name, value string) error {
		if value == "" {
			return fmt.Errorf("%s is missing", name)
		}
		return nil
	}
	err := errors.Join(missing("topic", q.Topic), missing("result", q.Result), missing("shows", q.Shows), missing("source", q.Source), missing("the text of "+whyHeading, q.Why))
	if q.Lesson < 1 {
		err = errors.Join(err, errors.New("lesson must be the number of a lesson"))
	}
	switch {
	case q.Number != nil && (q.Choices != nil || q.Answer != ""):
		err = errors.Join(err, errors.New("a question has choices and an answer, or a number"))
	case q.Number != nil:
		if q.Number.From > q.Number.To || q.Number.Unit == "" {
			err = errors.Join(err, errors.New("number must have a unit, and from must not be more than to"))
		}
	case len(q.Choices) < 2 || len(q.Choices) > 5:
		err = errors.Join(err, fmt.Errorf("there are %d choices; there must be 2 to 5", len(q.Choices)))
	case q.right() < 0:
		err = errors.Join(err, fmt.Errorf("answer is %q; it must be the letter of a choice, from a to %s", q.Answer, letter(len(q.Choices)-1)))
	}
	if q.Shows != "" && !q.isShown() {
		err = errors.Join(err, fmt.Errorf("no output on the page has %q, which shows names as what decides", q.Shows))
	}
	return err
}

// isShown reports whether a line of output that the page expects has what decides.
func (q Question) isShown() bool {
	for _, part := range q.Page.Parts {
		for _, step := range part.Steps {
			for _, line := range step.Expect {
				if strings.Contains(line, q.Shows) {
					return true
				}
			}
		}
	}
	return false
}

// right returns the index of the right choice; -1 if the answer is not the letter of one.
func (q Question) right() int {
	return slices.IndexFunc(q.Choices, func(choice string) bool { return q.Answer == letter(slices.Index(q.Choices, choice)) })
}

// letter returns the letter of the choice with an index, from 0.
func letter(index int) string { return string(rune('a' + index)) }

// NeedVariable returns the name of an environment variable that says, if it is not empty, that what a question needs is there, such
// as NEUTRON.
func NeedVariable(need string) string { return strings.ToUpper(need) }
