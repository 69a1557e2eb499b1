package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// The packages that are compiled for the control plane in a way of their own are not those of a lesson. They would be compiled
// twice, and so would everything that imports them. (The harness imports a few small ones.)
func TestLeanPackagesAreNotTheLessons(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	program := cluster.Program(root)
	path := filepath.Join(program.Dir, program.Lean)
	testinput.Declare(path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var patterns []string
	for _, pattern := range strings.Fields(string(text)) {
		prefix, ok := strings.CutSuffix(pattern, "/...")
		require.True(t, ok, "%s is not a pattern", pattern)
		patterns = append(patterns, regexp.QuoteMeta(prefix))
	}
	lean := regexp.MustCompile(`^(` + strings.Join(patterns, "|") + `)(/|$)`)
	require.True(t, lean.MatchString("k8s.io/kubernetes/pkg/apis/core"))
	for _, dir := range moduleDirs(t, root) {
		if !lessonDir.MatchString(dir) {
			continue
		}
		testinput.Declare(filepath.Join(root, dir))
		for name := range strings.Lines(runGo(t, root, nil, "list", "-deps", "-test", "./"+dir+"/...")) {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			require.False(t, lean.MatchString(name), "%s needs %s, which %s matches", dir, name, path)
		}
	}
}
