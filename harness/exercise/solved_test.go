package exercise_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSolved(t *testing.T) {
	e := newCatalogue(t, "01-add").Exercises[0]
	_, err := e.Copy()
	require.NoError(t, err)
	why, err := e.Why()
	require.NoError(t, err)
	require.Equal(t, "A sum is no difference.", why)

	diff, err := e.Difference()
	require.NoError(t, err)
	require.Equal(t, "--- yours/controller.go\n+++ solution/controller.go\n@@ -1,4 +1,4 @@\n package small\n \n // Add adds.\n"+
		"-func Add(a, b int) int { return a - b }\n+func Add(a, b int) int { return a + b }", diff)
	write(t, filepath.Join(e.Mine, "controller.go"), solved)
	diff, err = e.Difference()
	require.NoError(t, err)
	require.Empty(t, diff)
	write(t, filepath.Join(e.Mine, "more.go"), "package small\n")
	diff, err = e.Difference()
	require.NoError(t, err)
	require.Equal(t, "--- yours/more.go\n+++ solution/more.go\n@@ -1 +0,0 @@\n-package small", diff)

	scene, before := e.Before()
	require.Empty(t, scene)
	require.Empty(t, before)
	write(t, filepath.Join(e.Dir, "failure.golden"), "01-add: failed\n\n1 and 2 made -1.\n\nWhat happened (it adds):\n\n     0.0s  controller  adds\n        …  2 more\n")
	scene, before = e.Before()
	require.Equal(t, "it adds", scene)
	require.Equal(t, []string{"   0.0s  controller  adds", "      …  2 more"}, before)
}
