package repository

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/guess"
	"example.com/controllers/harness/lesson"
	"example.com/controllers/harness/testinput"
)

// The table of all answers is that of the questions, and each of these names a lesson.
func TestWhatReallyHappens(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	table := filepath.Join(root, filepath.FromSlash(guess.TablePath))
	testinput.Declare(table, filepath.Join(root, guess.Dir))
	all, err := guess.All(root)
	require.NoError(t, err)
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, guess.Table(all, cluster.KubernetesVersion), string(text), "run workshop guess table --write")
	lessons, err := lesson.All(root)
	require.NoError(t, err)
	played := 0
	for _, q := range all {
		require.LessOrEqual(t, q.Lesson, len(lessons), q.Name)
		if q.Needs == "" {
			played++
		}
	}
	require.GreaterOrEqual(t, played, 40, "questions that play on the control plane")
}
