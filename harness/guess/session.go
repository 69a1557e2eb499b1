package guess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"example.com/controllers/harness/play"
)

// Session asks one question after another, plays each, and keeps what was guessed.
type Session struct {
	Questions []Question
	Progress  *Progress
	Out       io.Writer
	// Columns is the width of the screen.
	Columns int
	// Ask shows a prompt and returns the line that is typed then. It returns io.EOF when there will be no more.
	Ask func(ctx context.Context, prompt string) (string, error)
	// Stage returns where the questions are played. It is called for each of them.
	Stage func(context.Context) (*Stage, error)
	// Shell, if set, opens a shell with an environment, and returns when it has ended.
	Shell func(ctx context.Context, env []string) error
	// Pause and Keys are those of [play.Player].
	Pause func(context.Context) error
	Keys  string
	// Room says that several people guess at a time: hands are counted, and each question is asked once.
	Room bool
	// Once says that each question is asked once, whatever was guessed before.
	Once bool
	// Version is that of Kubernetes.
	Version string

	begun   int             // how many attempts there were before
	skipped map[string]bool // the questions that are not to be asked in this session
}

// What ends a session.
var (
	errStop    = errors.New("stop") // somebody does not want to go on
	errNoInput = errors.New("make guess waits for your guess, but standard input has ended")
)

// Run asks until all questions have been guessed right, or somebody has had enough. It returns an error if nothing could be asked.
func (s *Session) Run(ctx context.Context) error {
	s.begun, s.skipped = len(s.Progress.Attempts), map[string]bool{}
	if _, done := s.next(); done {
		fmt.Fprintf(s.Out, "Nothing is left to ask. To start over, delete %s; a question that you name is asked again.\n", s.Progress.path)
		return nil
	}
	for {
		q, done := s.next()
		if done {
			fmt.Fprintln(s.Out, "\nThat was the last question.")
			return s.end()
		}
		err := s.one(ctx, q)
		switch {
		case errors.Is(err, errStop), errors.Is(err, play.ErrQuit):
			return s.end()
		case errors.Is(err, errNoInput) && len(s.Progress.Attempts) > s.begun:
			return s.end()
		case err != nil:
			return err
		}
	}
}

func (s *Session) next() (Question, bool) {
	if !s.Room && !s.Once {
		return s.Progress.next(s.Questions, s.skipped)
	}
	for _, q := range s.Questions {
		if !s.skipped[q.Name] && (s.Once || !s.Progress.asked(q.Name)) {
			return q, false
		}
	}
	return Question{}, true
}

// end writes what became of the session.
func (s *Session) end() error {
	if len(s.Progress.Attempts) == s.begun {
		return nil
	}
	fmt.Fprintln(s.Out, "\nRight at the first guess:")
	return WriteScore(s.Out, s.Questions, s.Progress.Attempts)
}

// one asks a question, and plays it.
func (s *Session) one(ctx context.Context, q Question) error {
	player := play.Player{Out: s.Out, Pause: s.Pause, Keys: s.Keys}
	asked := fmt.Sprintf("%d of %d questions asked so far", s.askedSoFar(), len(s.Questions))
	if s.Progress.asked(q.Name) {
		asked = "once more, because you missed it"
	}
	fmt.Fprintf(s.Out, "\n%s · lesson %d · %s\n", q.Topic, q.Lesson, asked)
	if err := player.Introduce(ctx, &play.Page{Path: q.path, Parts: []play.Part{{Prose: "# " + q.Title + "\n\n" + q.Setup}}}); err != nil {
		return err
	}
	for i, choice := range q.Choices {
		s.hang(fmt.Sprintf("  %s)  ", letter(i)), choice)
	}
	fmt.Fprintln(s.Out)
	guessed, err := s.guesses(ctx, q)
	if err != nil || guessed == nil {
		return err
	}
	stage, err := s.Stage(ctx)
	if err != nil {
		return err
	}
	played, err := stage.Play(ctx, q, player)
	if mismatch := (*play.MismatchError)(nil); errors.As(err, &mismatch) {
		return fmt.Errorf("this is not what the question says; try it again, and if it stays so, the question has to be rewritten: %w", err)
	}
	if err != nil {
		return err
	}
	// A guess counts once its answer has been seen.
	if err = s.Progress.Add(guessed...); err == nil {
		s.skipped[q.Name] = s.Once
		err = s.explain(ctx, q, guessed, player, played)
	}
	closeErr := played.Close(ctx)
	if err == nil || errors.Is(err, errStop) && closeErr != nil {
		return closeErr
	}
	return err
}

// ask is Ask with an error of our own when there is no more input: other errors may be an io.EOF, too.
func (s *Session) ask(ctx context.Context, prompt string) (string, error) {
	answer, err := s.Ask(ctx, prompt)
	if errors.Is(err, io.EOF) {
		err = errNoInput
	}
	return answer, err
}

// explain says whether a guess was right, and why, and waits until the learner has had a look.
func (s *Session) explain(ctx context.Context, q Question, guessed []Attempt, player play.Player, played *Played) error {
	fmt.Fprintln(s.Out)
	verdict := "Wrong."
	switch count := countOf(guessed); {
	case s.Room:
		verdict = fmt.Sprintf("%s were right.", count)
	case guessed[0].Right:
		verdict = "Right."
	case guessed[0].Guess == Unknown:
		verdict = "Now you know."
	}
	s.hang("", fmt.Sprintf("%s The answer: %s", verdict, q.RightAnswer()))
	if err := player.Introduce(ctx, &play.Page{Path: q.path, Parts: []play.Part{{Prose: q.Why}}}); err != nil {
		return err
	}
	s.hang("", fmt.Sprintf("Kubernetes %s: %s. Lesson %d builds on it (make lesson %d).\n", s.Version, q.Source, q.Lesson, q.Lesson))
	for {
		prompt := "Enter: next question · q: stop"
		if s.Shell != nil {
			prompt = "Enter: next question · s: a shell on this cluster · q: stop"
		}
		answer, err := s.ask(ctx, prompt)
		switch answer = strings.ToLower(answer); {
		case err != nil:
			return err
		case answer == "":
			return nil
		case answer == "q":
			return errStop
		case answer == "s" && s.Shell != nil:
			if err := s.Shell(ctx, played.Env); err != nil {
				return err
			}
		default:
			fmt.Fprintf(s.Out, "%q is none of these keys.\n", answer)
		}
	}
}

// guesses asks for a guess until there is one, and returns nil if the question is to be asked another time.
func (s *Session) guesses(ctx context.Context, q Question) ([]Attempt, error) {
	prompt := "Your guess (a letter"
	switch {
	case s.Room && q.Number != nil:
		prompt = "What was called out, in " + q.Number.Unit + " (such as 5 10 10 30"
	case s.Room:
		prompt = fmt.Sprintf("Hands up: how many for %s (such as %s", choiceLetters(len(q.Choices)), q.exampleOfHands())
	case q.Number != nil:
		prompt = "Your guess, in " + q.Number.Unit + " (a number"
	}
	if !s.Room {
		example := map[bool]string{true: "12 80", false: "b 80"}[q.Number != nil]
		prompt += "; " + example + ": 80 % sure of it; ?: I don't know"
	}
	prompt += " · n: another question · q: stop)"
	for {
		answer, err := s.ask(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(answer) {
		case "q":
			return nil, errStop
		case "n":
			s.skipped[q.Name] = true
			return nil, nil
		}
		var attempts []Attempt
		if s.Room {
			attempts, err = q.hands(answer, time.Now())
		} else {
			attempts, err = q.alone(answer, time.Now())
		}
		if err == nil {
			return attempts, nil
		}
		fmt.Fprintln(s.Out, err)
	}
}

// alone reads the guess of one person.
func (q Question) alone(text string, now time.Time) ([]Attempt, error) {
	g, err := q.ParseGuess(text)
	if err != nil {
		return nil, err
	}
	a := Attempt{Question: q.Name, Guess: g.Text, Right: q.IsRight(g.Text), At: now.UTC().Truncate(time.Second)}
	if g.Sure >= 0 {
		a.Sure = &g.Sure
	}
	return []Attempt{a}, nil
}

// hands reads the guesses of a room: how many hands were up for each choice, or the numbers that were called out.
func (q Question) hands(text string, now time.Time) (attempts []Attempt, err error) {
	at := now.UTC().Truncate(time.Second)
	words := strings.Fields(text)
	add := func(guess string, hands int) {
		if hands > 0 {
			attempts = append(attempts, Attempt{Question: q.Name, Guess: guess, Right: q.IsRight(guess), Hands: hands, At: at})
		}
	}
	if q.Number != nil {
		for _, word := range words {
			if !q.accepts(word) {
				return nil, fmt.Errorf("%q is not a number; type the numbers that were called out, in %s, such as 5 10 10 30", word, q.Number.Unit)
			}
			add(word, 1)
		}
	} else {
		if len(words) != len(q.Choices) {
			return nil, fmt.Errorf("type %d numbers, one for each choice, such as %s", len(q.Choices), q.exampleOfHands())
		}
		for i, word := range words {
			hands, err := strconv.Atoi(word)
			if err != nil || hands < 0 {
				return nil, fmt.Errorf("%q is not a number of hands; type %d numbers, one for each choice", word, len(q.Choices))
			}
			add(letter(i), hands)
		}
	}
	if len(attempts) == 0 {
		return nil, errors.New("nobody has guessed; type n for another question")
	}
	return attempts, nil
}

// choiceLetters returns the letters of so many choices: "a, b, c".
func choiceLetters(count int) string {
	all := make([]string, count)
	for i := range all {
		all[i] = letter(i)
	}
	return strings.Join(all, ", ")
}

// exampleOfHands returns what could be typed for the hands of a room.
func (q Question) exampleOfHands() string {
	return strings.Join([]string{"7", "0", "12", "3", "1"}[:len(q.Choices)], " ")
}

func countOf(attempts []Attempt) (count Count) {
	for _, a := range attempts {
		count.add(a)
	}
	return count
}

// askedSoFar returns how many of the session's questions have been asked.
func (s *Session) askedSoFar() int {
	count := 0
	for _, q := range s.Questions {
		if s.Progress.asked(q.Name) {
			count++
		}
	}
	return count
}

// hang writes a paragraph whose lines after the first are indented as far as its text.
func (s *Session) hang(begin, text string) {
	indent := strings.Repeat(" ", ansi.StringWidth(begin))
	wrapped := ansi.Wordwrap(text, max(20, min(s.Columns, 100)-len(indent)), "")
	fmt.Fprintln(s.Out, begin+strings.ReplaceAll(wrapped, "\n", "\n"+indent))
}
