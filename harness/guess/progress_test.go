package guess

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func named(names ...string) (questions []Question) {
	for _, name := range names {
		questions = append(questions, Question{Name: name, About: About{Topic: "Topic of " + name, Lesson: 1}})
	}
	return questions
}

// What is missed comes back after four other guesses, and at the end at once.
func TestNext(t *testing.T) {
	questions := named("a", "b", "c", "d", "e", "f", "g")
	p := &Progress{}
	var asked string
	for range 50 {
		q, done := p.next(questions, map[string]bool{"g": true})
		if done {
			break
		}
		asked += q.Name
		isMissed := q.Name == "a" && len(asked) < 9 || q.Name == "b" && len(asked) < 3 || q.Name == "f" && len(asked) < 12
		p.Attempts = append(p.Attempts, Attempt{Question: q.Name, Right: !isMissed})
	}
	require.Equal(t, "abcdeabfafff", asked)
}

func TestProgressIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my", "progress.yaml")
	p, err := ReadProgress(path)
	require.NoError(t, err)
	require.Empty(t, p.Attempts)
	var all sync.WaitGroup
	for range 10 { // as many terminals
		all.Go(func() {
			mine, err := ReadProgress(path)
			if err == nil {
				err = mine.Add(Attempt{Question: "a", Guess: "b", At: time.Unix(0, 0).UTC()})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	p, err = ReadProgress(path)
	require.NoError(t, err)
	require.Len(t, p.Attempts, 10, "none is lost")

	for text, want := range map[string]string{"attempts: 7": path + ": ", "attemps: []": `unknown field "attemps"; repair it, or delete it to start over`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = ReadProgress(path)
		require.ErrorContains(t, err, want)
		require.Error(t, p.Add(Attempt{Question: "b"}))
		kept, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(kept), "nobody's file is overwritten")
	}
	blocked := &Progress{path: filepath.Join(path, "below a file", "progress.yaml")}
	require.ErrorContains(t, blocked.Add(Attempt{}), "save the guess: ")
}

func TestWriteScore(t *testing.T) {
	sure := func(percent int) *int { return &percent }
	questions := named("a", "b", "c")
	questions[1].Topic = questions[0].Topic
	var out bytes.Buffer
	require.NoError(t, WriteScore(&out, questions, []Attempt{
		{Question: "a", Guess: "x", Sure: sure(90)}, {Question: "b", Right: true, Sure: sure(79)}, {Question: "c", Right: true, Sure: sure(80)},
		{Question: "a", Right: true, Sure: sure(100)}, // once the answer was known
		{Question: "no longer there", Right: true, Sure: sure(100)},
	}))
	require.Equal(t, "  Topic of a  1 of 2\n  Topic of c  1 of 1\n  all         2 of 3\nOf the guesses that you were at least 80 % sure of, 1 of 2 were right.\n", out.String())
	out.Reset()
	require.NoError(t, WriteScore(&out, questions, []Attempt{{Question: "a"}}))
	require.Equal(t, "  Topic of a  0 of 1\n  all         0 of 1\n", out.String())
}

func TestWriteTally(t *testing.T) {
	at := time.Unix(0, 0)
	questions := named("a", "b", "c")
	room := []Attempt{
		{Question: "a", Guess: "a", Hands: 3, At: at}, {Question: "a", Guess: "b", Hands: 12, Right: true, At: at}, {Question: "a", Guess: "c", Hands: 4, At: at},
		{Question: "a", Guess: "b", Hands: 19, Right: true, At: at.Add(time.Minute)}, // asked again
		{Question: "c", Guess: "10", Hands: 1, At: at}, {Question: "c", Guess: "10", Hands: 1, At: at}, {Question: "c", Guess: "7", Hands: 1, At: at},
	}
	alone := []Attempt{{Question: "a", Guess: "a"}, {Question: "a", Guess: "b", Right: true}}
	var out bytes.Buffer
	require.NoError(t, WriteTally(&out, questions, room, alone))
	require.Equal(t, "RIGHT     MOST OF THE OTHERS  QUESTION\n12 of 20  a (4)               a\n0 of 3    10 (2)              c\n", out.String())
}

func TestWriteList(t *testing.T) {
	questions := named("a", "b", "c")
	questions[2].Needs = "neutron"
	var out bytes.Buffer
	require.NoError(t, WriteList(&out, questions, &Progress{Attempts: []Attempt{{Question: "a"}, {Question: "b"}, {Question: "b", Right: true}}}))
	require.Equal(t, "LESSON  TOPIC       NAME               LAST GUESS\n1       Topic of a  a                  missed\n1       Topic of b  b                  right\n"+
		"1       Topic of c  c (needs neutron)  -\n", out.String())
}

func TestTable(t *testing.T) {
	q := Question{Name: "sum", Title: "What is a|b?", About: About{Topic: "Bits", Lesson: 3, Result: "either | both", Source: "go src/math/bits.go", Since: "1.9"}}
	other := Question{Name: "net", Title: "And this?", About: About{Topic: "Nets", Lesson: 4, Result: "yes", Source: "neutron", Needs: "neutron"}}
	table := Table([]Question{q, other}, "v1.2.3")
	require.Contains(t, table, "play them on Kubernetes v1.2.3, so")
	require.Contains(t, table, "\n## Bits\n\n| question |")
	require.Contains(t, table, "\n| [What is a\\|b?](../guesses/sum.md) | either \\| both | go `src/math/bits.go` | 1.9 | 3 |\n")
	require.Contains(t, table, "\n## Nets\n\n")
	require.Contains(t, table, "\n| [And this?](../guesses/net.md) | yes (played where neutron is installed) | neutron |  | 4 |\n")
}
