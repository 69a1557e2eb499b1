package guess

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Unknown is the guess of somebody who says that they don't know.
const Unknown = "?"

// Guess is what somebody has guessed.
type Guess struct {
	// Text is the letter of a choice, a number, or [Unknown].
	Text string
	// Sure is how sure they are, in percent; -1 if they did not say.
	Sure int
}

// ParseGuess reads a guess, and how sure somebody is of it: "b", "12", "b 80", "12 80%", "?". The error says what to type.
func (q Question) ParseGuess(text string) (Guess, error) {
	words := strings.Fields(strings.ToLower(text))
	g := Guess{Sure: -1}
	if len(words) == 0 || len(words) > 2 {
		return g, q.expected()
	}
	g.Text = strings.TrimSuffix(words[0], ")")
	if !q.accepts(g.Text) {
		return g, q.expected()
	}
	if len(words) == 2 {
		sure, err := strconv.Atoi(strings.TrimSuffix(words[1], "%"))
		if err != nil || sure < 0 || sure > 100 {
			return g, fmt.Errorf("%q does not say how sure you are; type a number from 0 to 100", words[1])
		}
		g.Sure = sure
	}
	return g, nil
}

// accepts reports whether a text is a guess of the question.
func (q Question) accepts(text string) bool {
	if text == Unknown {
		return true
	}
	if q.Number != nil {
		number, err := strconv.ParseFloat(text, 64)
		return err == nil && !math.IsNaN(number) && !math.IsInf(number, 0)
	}
	return len(text) == 1 && text >= "a" && text <= letter(len(q.Choices)-1)
}

// expected returns an error that says what a guess of the question is.
func (q Question) expected() error {
	if q.Number != nil {
		return fmt.Errorf("type a number, in %s, such as 10, or ? if you don't know", q.Number.Unit)
	}
	return fmt.Errorf("type a letter from a to %s, or ? if you don't know", letter(len(q.Choices)-1))
}

// IsRight reports whether a guess, as in [Guess.Text], is right.
func (q Question) IsRight(text string) bool {
	if q.Number == nil {
		return text == q.Answer
	}
	number, err := strconv.ParseFloat(text, 64)
	return err == nil && number >= q.Number.From && number <= q.Number.To
}

// RightAnswer returns the right answer, as it is shown to somebody who has guessed.
func (q Question) RightAnswer() string {
	if q.Number == nil {
		return fmt.Sprintf("%s) %s", q.Answer, q.Choices[q.right()])
	}
	return q.Result
}
