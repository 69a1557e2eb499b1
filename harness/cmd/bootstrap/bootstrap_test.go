package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/testinput"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// The README's own commands, through make, in the repository as it is.
func TestREADME(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	page, err := play.Read(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	for _, input := range []string{"README.md", "Makefile", "01-naive-loop"} {
		testinput.Declare(filepath.Join(root, input))
	}
	_, err = gobuild.Build(t.Context(), gobuild.Workshop(filepath.Join(root, "harness")), os.Stderr) // make's, and an input
	require.NoError(t, err)
	env, err := gobuild.Env(t.Context())
	require.NoError(t, err)
	var screen bytes.Buffer
	player := play.Player{Out: &screen, Scratch: t.TempDir(), Limit: 10 * time.Minute, Env: append(env, "CGO_ENABLED=0")}
	_, err = player.Play(t.Context(), page)
	require.NoError(t, err, "%s", screen.String())
}

// A package that the workshop's command is built from must be among its sources.
func TestSourcesAreAllOfThem(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../workshop").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range strings.Fields(string(out)) {
		if local, ok := strings.CutPrefix(name, "example.com/controllers/harness/"); ok {
			require.True(t, slices.Contains(gobuild.Workshop("").Sources, local), "%s is not among the sources", local)
		}
	}
}
