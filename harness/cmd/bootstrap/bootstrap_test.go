package main

import (
	"bytes"
	"os"
	"path/filepath"
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

// It plays the README in this repository: its commands run through make and bootstrap.
func TestREADMECommandsWork(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	page, err := play.Read(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	for _, input := range []string{"README.md", "Makefile", "01-naive-loop"} {
		testinput.Declare(filepath.Join(root, input))
	}
	for _, program := range []gobuild.Program{gobuild.Workshop(filepath.Join(root, "harness")), cluster.Program(root)} {
		_, err = gobuild.Build(t.Context(), program, os.Stderr) // so that make need not, and to declare its sources
		require.NoError(t, err)
	}
	env, err := gobuild.Env(t.Context())
	require.NoError(t, err)
	var screen bytes.Buffer
	player := play.Player{Out: &screen, Scratch: t.TempDir(), Limit: 10 * time.Minute, Env: append(env, "CGO_ENABLED=0")}
	_, err = player.Play(t.Context(), page)
	require.NoError(t, err, "%s", screen.String())
}
