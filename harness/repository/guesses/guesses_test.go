// Package guesses plays the questions of "make guess". It is a package of its own because it takes long, and so that a change of
// a lesson does not run it again.
package guesses

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/guess"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// The answer to each question is still true.
func TestQuestions(t *testing.T) {
	suite.Long(t, "playing all questions takes some minutes")
	playAll(t, func(q guess.Question) bool { return q.Needs == "" })
}

// The same for questions that need more than the control plane: an environment variable, such as NEUTRON, says that it is there.
func TestQuestionsThatNeedMore(t *testing.T) {
	playAll(t, func(q guess.Question) bool { return q.Needs != "" })
}

// playAll plays the questions that are of a kind.
func playAll(t *testing.T, isOfKind func(guess.Question) bool) {
	ctx := t.Context()
	root, err := cluster.Root(ctx)
	require.NoError(t, err)
	dir := filepath.Join(root, guess.Dir)
	testinput.Declare(dir)
	all, err := guess.All(root)
	require.NoError(t, err)
	var questions []guess.Question
	for _, q := range all {
		switch variable := guess.NeedVariable(q.Needs); {
		case !isOfKind(q):
		case q.Needs != "" && os.Getenv(variable) == "":
			t.Run(q.Name, func(t *testing.T) { t.Skipf("it needs %s, and %s is not set", q.Needs, variable) })
		default:
			questions = append(questions, q)
		}
	}
	if len(questions) == 0 {
		return
	}
	// Some add Nodes and policies, so the cluster of other tests will not do.
	c, err := cluster.Start(ctx, cluster.Options{Nodes: 3, Progress: os.Stderr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	workshop, err := gobuild.Build(ctx, gobuild.Workshop(filepath.Join(root, "harness")), os.Stderr)
	require.NoError(t, err)
	// With an empty cache, compiling a program may take longer than a page waits.
	require.NoError(t, gobuild.Packages(ctx, dir, guess.Dir, "", os.Stderr))
	stage := guess.Stage{Cluster: c, Scratch: c.Dir(), Workshop: workshop}
	for _, q := range questions {
		t.Run(q.Name, func(t *testing.T) {
			t.Parallel()
			var screen bytes.Buffer
			player := play.Player{Out: &screen, Env: []string{"CGO_ENABLED=0"}} // the race detector needs cgo, the pages do not
			played, err := stage.Play(t.Context(), q, player)
			if err != nil {
				t.Fatalf("%v\n\nthe page as it was played:\n%s", err, screen.String())
			}
			require.NoError(t, played.Close(t.Context()))
		})
	}
}
