package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/exercise"
)

const smallGrader = `//go:build exercise

package small

import (
	"fmt"
	"os"
	"testing"
)

func TestExercise(t *testing.T) {
	verdict := "{\"passed\":true}"
	if Add(1, 2) != 3 {
		verdict = "{\"scene\":\"it adds\"}\n{\"line\":{\"at\":0,\"who\":\"controller\",\"what\":\"adds\"}}\n{\"failure\":\"1 and 2 made something else.\"}"
	}
	if err := os.WriteFile(os.Getenv("WORKSHOP_VERDICT"), []byte(verdict+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("WORKSHOP_CHECK_RECORDINGS"); dir != "" {
		request := fmt.Sprintf("{\"request\":{\"id\":1,\"start\":\"2000-01-01T00:00:00Z\",\"verb\":\"get\",\"resource\":\"sums\",\"name\":\"sum-%d\",\"uri\":\"/\"}}\n", Add(1, 2))
		if err := os.WriteFile(dir+"/it%20adds.jsonl", []byte(request), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
`

// newExercises makes a repository with two small exercises, which need no cluster. It makes the test a parallel one.
func newExercises(t *testing.T) *repository {
	t.Helper()
	t.Parallel()
	r := &repository{t: t, dir: t.TempDir(), temp: t.TempDir()}
	r.write("harness/controlplane/go.mod", "module sign\n")
	r.write("exercises/go.mod", "module example.com/small\n\ngo 1.26.0\n\nignore ./my\n")
	for _, name := range []string{"01-add", "02-more"} {
		r.write("exercises/"+name+"/controller.go", "package small\n\nfunc Add(a, b int) int { return a - b }\n")
		r.write("exercises/"+name+"/.solution/controller.go", "package small\n\nfunc Add(a, b int) int { return a + b }\n")
		r.write("exercises/"+name+"/check_test.go", smallGrader)
		r.write("exercises/"+name+"/README.md", "# It subtracts\n")
		r.write("exercises/"+name+"/hints.md", "## 1\n\nFirst.\n\n## 2\n\nSecond.\n\n## 3\n\nThird.\n")
		r.write("exercises/"+name+"/why.md", "A sum is no\n`difference`.\n\nThat is all.\n")
		r.write("exercises/"+name+"/exercise.yaml", "title: It subtracts\nlesson: 1\nfails: it subtracts\n")
	}
	return r
}

// exercises runs a command for exercises, which must exit with this status, and returns its output.
func (r *repository) exercises(status int, args ...string) string {
	r.t.Helper()
	out, got := r.workshop("", append([]string{"exercises"}, args...)...)
	require.Equal(r.t, status, got, "%s", out)
	return out
}

func TestExercises(t *testing.T) {
	r := newExercises(t)
	out := r.exercises(1)
	require.Contains(t, out, "# It subtracts\n\nYour copy: exercises/my/01-add\n\n01-add: failed\n\n1 and 2 made something else.\n\nWhat happened (it adds):\n\n     0.0s  controller  adds\n")
	require.Contains(t, r.exercises(0, "list"), "Lesson 1\n>    1  It subtracts\n     2  It subtracts\n")

	require.Equal(t, "Hint 1 of 3\n\nFirst.\n\n", r.exercises(0, "hint"))
	require.Contains(t, r.exercises(0, "hint", "1"), "First.\n\nHint 2 of 3\n\nSecond.")

	require.Equal(t, "exercises/my/01-add/solution\n", r.exercises(0, "solution", "1"))
	require.Contains(t, r.exercises(1, "check", "1"), "01-add: failed")
	require.NoError(t, os.Rename(filepath.Join(r.dir, "exercises/my/01-add/solution/controller.go"), filepath.Join(r.dir, "exercises/my/01-add/controller.go")))
	require.Equal(t, "01-add: passed\n\nA sum is no `difference`.\n\nThat is all.\n", r.exercises(0, "check", "01-add"))
	require.Equal(t, "The solution is the same as your code.\n", r.exercises(0, "solution", "1", "--diff"))
	require.Contains(t, r.exercises(0, "solution", "2", "--diff"), "\n-func Add(a, b int) int { return a - b }\n+func Add(a, b int) int { return a + b }\n")
	require.Contains(t, r.exercises(0, "list"), "  ✓  1  It subtracts                              with 2 hints\n>    2  It subtracts\n")
	require.Contains(t, r.exercises(1), "Your copy: exercises/my/02-more")

	out = r.exercises(1, "run")
	require.Contains(t, out, "01-add                        passed")
	require.Contains(t, out, "02-more                       failed            1 and 2 made something else.")
	var verdicts []exercise.Result
	require.NoError(t, json.Unmarshal([]byte(r.exercises(1, "run", "--json")), &verdicts))
	require.Len(t, verdicts, 2)
	require.True(t, verdicts[0].Passed())
	require.Equal(t, exercise.Failed, verdicts[1].Verdict)
	var verdict exercise.Result
	require.NoError(t, json.Unmarshal([]byte(r.exercises(1, "check", "2", "--json")), &verdict))
	require.Equal(t, "1 and 2 made something else.", verdict.Message)
	var list []standing
	require.NoError(t, json.Unmarshal([]byte(r.exercises(0, "list", "--json")), &list))
	require.Equal(t, "01-add", list[0].Name)
	require.NotNil(t, list[0].Passed)
	require.Equal(t, 2, list[0].Hints)
	require.Nil(t, list[1].Passed)

	require.Equal(t, "01-add is as shipped again: exercises/my/01-add\n", r.exercises(0, "reset", "1"))
	require.Contains(t, r.exercises(1, "check", "1"), "01-add: failed")
	require.Contains(t, r.exercises(0, "list"), "  ✓  1  It subtracts ", "what was solved stays solved")
	require.Contains(t, r.exercises(0, "list"), "1 of 2 solved")
	r.requireNothingLeft()
}

func TestExercisesForAuthors(t *testing.T) {
	r := newExercises(t)
	require.Contains(t, r.exercises(1, "check", "1", "--golden"), "failed")
	golden, err := os.ReadFile(filepath.Join(r.dir, "exercises/01-add/failure.golden"))
	require.NoError(t, err)
	require.Contains(t, string(golden), "1 and 2 made something else.")
	require.Contains(t, r.exercises(0, "check", "1", "--solution"), "01-add: passed\n")
	require.Contains(t, r.exercises(1, "check", "1", "--shipped"), "failed")
	require.Contains(t, r.exercises(0, "list"), "0 of 2 solved")
}

func TestExercisesWrongInput(t *testing.T) {
	r := newExercises(t)
	for want, args := range map[string][]string{
		`there is no exercise "multiply"`:   {"check", "multiply"},
		`"0" may be any of 01-add, 02-more`: {"hint", "0"},
		"accepts 1 arg(s), received 0":      {"reset"},
		`there is no exercise "chekc"`:      {"chekc"},
		"unknown flag: --yaml":              {"list", "--yaml"},
	} {
		require.Contains(t, r.exercises(1, args...), want)
	}
	r.write("exercises/my/progress.yaml", "passed: 7\n")
	require.Contains(t, r.exercises(1, "list"), "repair it, or delete it to start over")
	require.NoError(t, os.RemoveAll(filepath.Join(r.dir, "exercises")))
	require.True(t, strings.HasPrefix(r.exercises(1, "list"), "workshop: read the exercises: "))
}

// The screen stays open for hours, in which "make down" may end the cluster that it uses.
func TestWarmClusterIsReplacedWhenItIsDown(t *testing.T) {
	shared, err := cluster.Shared()
	require.NoError(t, err)
	t.Setenv(cluster.ProgramVariable, filepath.Join(shared.Kubectl, "controlplane"))
	t.Setenv("TMPDIR", t.TempDir())
	w := &warmCluster{root: t.TempDir()}
	dir := upDir(w.root)
	_, err = cluster.Up(t.Context(), cluster.Options{Nodes: 1}, dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Reset(context.Background(), dir)) })
	for range 2 {
		kubeconfig, err := w.kubeconfig(t.Context())
		require.NoError(t, err)
		require.Equal(t, dir, filepath.Dir(kubeconfig))
	}
	require.NoError(t, cluster.Down(t.Context(), dir))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel() // the participant has saved again
	_, err = w.kubeconfig(interrupted)
	require.Error(t, err)
	kubeconfig, err := w.kubeconfig(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.stop()) })
	require.NotEqual(t, dir, filepath.Dir(kubeconfig))
	again, err := w.kubeconfig(t.Context())
	require.NoError(t, err)
	require.Equal(t, kubeconfig, again)
}
