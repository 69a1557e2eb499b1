package guess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/play"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

const inNamespace = `---
topic: Namespaces
lesson: 6
choices: [kube-system, one of its own]
answer: b
result: one of its own
shows: guess-
source: our own
---
# In which namespace does a question play?

## What happens

'''console
$ kubectl create configmap here --from-literal=namespace=$NAMESPACE
configmap/here created
$ kubectl get configmaps here --output jsonpath='{.metadata.namespace} {.data.namespace}'
guess-... guess-...
$ kubectl run pod --image=pod --output name
pod/pod
'''

## Why

Nobody else must be in the way.
`

// session is a session whose learner types these lines. screen returns what they see.
func session(t *testing.T, typed ...string) (s *Session, screen *bytes.Buffer) {
	t.Helper()
	progress, err := ReadProgress(filepath.Join(t.TempDir(), "my", "progress.yaml"))
	require.NoError(t, err)
	screen = &bytes.Buffer{}
	c, err := cluster.Shared()
	require.NoError(t, err)
	stage := &Stage{Cluster: c, Scratch: t.TempDir()}
	return &Session{
		Questions: []Question{mustRead(t, "namespace", inNamespace), mustRead(t, "sum", letters), mustRead(t, "lines", numbers)},
		Progress:  progress, Out: screen, Columns: 80, Version: c.Version,
		Stage: func(context.Context) (*Stage, error) { return stage, nil },
		Ask: func(_ context.Context, prompt string) (string, error) {
			screen.WriteString(prompt + "\n")
			if len(typed) == 0 {
				return "", io.EOF
			}
			line := typed[0]
			typed = typed[1:]
			return line, nil
		},
	}, screen
}

// inOrder requires that a text has these parts, one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		require.True(t, ok, "there is no %q in the rest of:\n%s", part, text)
		rest = after
	}
}

func TestSession(t *testing.T) {
	s, screen := session(t,
		"c", "a 90", "x", "", // wrong, after a letter that is none; and then a key that is none
		"b", "", "n", // right, and then not now
		"b", "") // the first one again, and right
	require.NoError(t, s.Run(t.Context()))
	inOrder(t, screen.String(),
		"Namespaces · lesson 6 · 0 of 3 questions asked so far\n", "In which namespace does a question play?", "  a)  kube-system\n  b)  one of its own\n",
		"Your guess (a letter; b 80: 80 % sure of it; ?: I don't know · n: another question · q: stop)\n", "type a letter from a to b", "Your guess",
		"$ kubectl create configmap here", "Wrong. The answer: b) one of its own\n", "Nobody else must be in the way.",
		"Kubernetes v1.37.1: our own. Lesson 6 builds on it (make lesson 6).\n", "Enter: next question · q: stop\n", "\"x\" is none of these keys.\n", "Enter: next question",
		"Arithmetic · lesson 2 · 1 of 3 questions asked so far\n", "$ echo $((2 + 2))\n4\n", "Right. The answer: b) four\n",
		"Counting · lesson 1 · 2 of 3", "Your guess, in lines (a number;",
		"Namespaces · lesson 6 · once more, because you missed it\n", "Right.",
		"That was the last question.\n\nRight at the first guess:\n  Arithmetic  1 of 1\n  Namespaces  0 of 1\n  all         1 of 2\nOf the guesses that you were at least 80 % sure of, 0 of 1 were right.\n")
	require.NotContains(t, screen.String(), "a shell")
	var guesses []string
	for _, a := range s.Progress.Attempts {
		guesses = append(guesses, a.Question+" "+a.Guess)
	}
	require.Equal(t, []string{"namespace a", "sum b", "namespace b"}, guesses)
	saved, err := ReadProgress(s.Progress.path)
	require.NoError(t, err)
	require.Equal(t, s.Progress.Attempts, saved.Attempts)
}

// The namespace of a question goes also if the session was interrupted.
func TestCloseAfterAnInterrupt(t *testing.T) {
	s, _ := session(t)
	stage, err := s.Stage(t.Context())
	require.NoError(t, err)
	played, err := stage.Play(t.Context(), s.Questions[0], play.Player{Out: io.Discard})
	require.NoError(t, err)
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.NoError(t, played.Close(interrupted))
	client, err := stage.Cluster.Client()
	require.NoError(t, err)
	namespace, err := client.CoreV1().Namespaces().Get(t.Context(), played.Namespace, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil, "%v", err)
	require.NoError(t, played.Close(t.Context()), "it is gone, or going")
}

// Before somebody has guessed, nothing on the screen gives the answer away.
func TestAnswersAreHidden(t *testing.T) {
	s, screen := session(t, "n", "n", "n")
	require.NoError(t, s.Run(t.Context()))
	for _, secret := range []string{"$ ", "Nobody else", "The answer", "our own", "Because", "It begins", "expr.c"} {
		require.NotContains(t, screen.String(), secret)
	}
	require.Empty(t, s.Progress.Attempts)
	require.NotContains(t, screen.String(), "Right at", "nothing was guessed")
}

func TestSessionEnds(t *testing.T) {
	s, _ := session(t)
	require.EqualError(t, s.Run(t.Context()), "make guess waits for your guess, but standard input has ended")
	for name, typed := range map[string][]string{
		"after a guess, when there is no more input": {"?"},
		"after a guess":      {"?", "q"},
		"instead of a guess": {"?", "", "q"},
	} {
		t.Run(name, func(t *testing.T) {
			s, screen := session(t, typed...)
			require.NoError(t, s.Run(t.Context()))
			require.Contains(t, screen.String(), "  all         0 of 1\n")
			require.Equal(t, Unknown, s.Progress.Attempts[0].Guess, "what was guessed is kept")
		})
	}
}

// A guess whose answer was not seen does not count.
func TestQuitInTheMiddleOfAPage(t *testing.T) {
	s, screen := session(t, "b")
	s.Pause = func(context.Context) error { return play.ErrQuit }
	s.Questions = s.Questions[1:]
	require.NoError(t, s.Run(t.Context()))
	require.Empty(t, s.Progress.Attempts)
	require.NotContains(t, screen.String(), "The answer")

	s, _ = session(t, "b")
	s.Stage = func(context.Context) (*Stage, error) { return nil, errors.New("no cluster") }
	require.EqualError(t, s.Run(t.Context()), "no cluster")
	require.Empty(t, s.Progress.Attempts)
}

// An error of the API server that is an io.EOF, as when it cuts a connection, is no end of the input.
func TestACutConnectionIsAnError(t *testing.T) {
	for _, typed := range [][]string{{"b"}, {"b", "", "b"}} {
		s, _ := session(t, typed...)
		calls := 0
		stage := s.Stage
		s.Stage = func(ctx context.Context) (*Stage, error) {
			if calls++; calls == len(typed)/2+1 {
				return nil, fmt.Errorf("Post https://127.0.0.1: %w", io.EOF)
			}
			return stage(ctx)
		}
		require.EqualError(t, s.Run(t.Context()), "Post https://127.0.0.1: EOF")
	}
}

// Questions that somebody names are asked, once each, whatever was guessed before; in a room, too.
func TestOnce(t *testing.T) {
	for _, room := range []bool{false, true} {
		guesses := map[bool][]string{false: {"b", "", "c", ""}, true: {"1 0", "", "0 0 1", ""}}[room]
		s, _ := session(t)
		path := s.Progress.path
		for round := 1; round <= 2; round++ {
			s, screen := session(t, guesses...)
			progress, err := ReadProgress(path)
			require.NoError(t, err)
			s.Progress, s.Room, s.Once, s.Questions = progress, room, true, s.Questions[:2]
			require.NoError(t, s.Run(t.Context()))
			require.Contains(t, screen.String(), "That was the last question.")
			require.Len(t, s.Progress.Attempts, 2*round)
		}
	}
}

func TestEverythingHasBeenAsked(t *testing.T) {
	for _, room := range []bool{false, true} {
		s, screen := session(t)
		s.Room = room
		for _, q := range s.Questions {
			s.Progress.Attempts = append(s.Progress.Attempts, Attempt{Question: q.Name, Right: true})
		}
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, "Nothing is left to ask. To start over, delete "+s.Progress.path+"; a question that you name is asked again.\n", screen.String())
	}
}

func TestShell(t *testing.T) {
	s, screen := session(t, "b", "s", "")
	var env []string
	s.Shell = func(_ context.Context, e []string) error { env = e; return nil }
	require.NoError(t, s.Run(t.Context()))
	inOrder(t, screen.String(), "Enter: next question · s: a shell on this cluster · q: stop\n", "Enter: next question · s: a shell", "Arithmetic")
	namespace := env[slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, NamespaceVariable+"=") })]
	require.Contains(t, namespace, "=guess-")
}

func TestRoom(t *testing.T) {
	s, screen := session(t, "3", "-1 2", "0 0", "3 12", "", "0 x 1", "1 0 2", "", "q")
	s.Room = true
	require.NoError(t, s.Run(t.Context()))
	inOrder(t, screen.String(), "Hands up: how many for a, b (such as 7 0 · n: another question · q: stop)\n",
		"type 2 numbers, one for each choice", `"-1" is not a number of hands`, "nobody has guessed", "12 of 15 were right. The answer: b) one of its own",
		`"x" is not a number of hands`, "0 of 3 were right. The answer: b) four", "What was called out, in lines (such as 5 10 10 30 ·")
	require.Equal(t, []int{3, 12, 1, 2}, []int{s.Progress.Attempts[0].Hands, s.Progress.Attempts[1].Hands, s.Progress.Attempts[2].Hands, s.Progress.Attempts[3].Hands})

	attempts, err := s.Questions[2].hands("3 2 3 5", s.Progress.Attempts[0].At)
	require.NoError(t, err)
	require.Equal(t, Count{Right: 2, Of: 4}, countOf(attempts))
	_, err = s.Questions[2].hands("3 some", s.Progress.Attempts[0].At)
	require.ErrorContains(t, err, `"some" is not a number; type the numbers that were called out, in lines`)
}

// A page that is no longer true is an error, and its namespace does not stay.
func TestWhatIsNotTrue(t *testing.T) {
	s, screen := session(t, "b", "")
	var namespace string
	s.Questions = []Question{mustRead(t, "sum", strings.Replace(letters, "$((2 + 2))\n4", "$((2 + 2)) $NAMESPACE\n4 here", 1))}
	err := s.Run(t.Context())
	require.ErrorContains(t, err, "this is not what the question says; try it again, and if it stays so, the question has to be rewritten: ")
	mismatch := (*play.MismatchError)(nil)
	require.True(t, errors.As(err, &mismatch))
	require.NotContains(t, screen.String(), "Right.")
	namespace = regexp.MustCompile(`guess-\w+`).FindString(mismatch.Diff)
	require.NotEmpty(t, namespace)
	stage, err := s.Stage(t.Context())
	require.NoError(t, err)
	client, err := stage.Cluster.Client()
	require.NoError(t, err)
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil, "namespace %s stays: %v", namespace, err)
}
