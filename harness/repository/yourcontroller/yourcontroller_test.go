// Package yourcontroller tests the page "Your controller". It is a package of its own because it takes long, and so that a
// change of another lesson or page does not run it again.
package yourcontroller

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/gobuild"
	"example.com/controllers/harness/guard"
	"example.com/controllers/harness/play"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/testinput"
	"example.com/controllers/harness/torture"
)

func TestMain(m *testing.M) {
	guard.Main()
	os.Exit(m.Run())
}

// The scenario of the page "Your controller" is one that torture accepts, beside the manifests that it names.
func TestYourScenario(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	path := filepath.Join(root, "docs", "your-controller.yaml")
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "your-controller.md"))
	require.NoError(t, err)
	testinput.Declare(path, filepath.Join(root, "docs", "your-controller.md"))
	shown := strings.Contains(string(page), "```yaml your-controller.yaml\n"+string(source)+"```\n")
	require.True(t, shown, "docs/your-controller.md must quote the whole of docs/your-controller.yaml")

	dir := t.TempDir()
	for _, manifest := range []string{"frontend.yaml", "manifests/rbac.yaml"} {
		file := filepath.Join(dir, manifest)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	file := filepath.Join(dir, "scenario.yaml")
	require.NoError(t, os.WriteFile(file, source, 0o600))
	scenario, err := torture.Read(file)
	require.NoError(t, err)
	require.Equal(t, "my-controller", scenario.Account)
	require.NotEmpty(t, scenario.Steps)
	require.NotRegexp(t, `(: |- |\[)[&*]\w|: >`, string(source), "a first scenario has no YAML anchors, and no folded lines")
}

// The commands of the page "Your controller" do what the page says, from workshop new to torture.
func TestYourController(t *testing.T) {
	suite.Long(t, "torture takes about a minute")
	t.Parallel()
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	file := filepath.Join(root, "docs", "your-controller.md")
	page, err := play.Read(file)
	require.NoError(t, err)
	skeletons, err := filepath.Glob(filepath.Join(root, "[0-9][0-9]-*", "_skeleton"))
	require.NoError(t, err)
	require.NotEmpty(t, skeletons)
	for _, skeleton := range skeletons { // workshop new copies from there
		testinput.Declare(filepath.Dir(skeleton))
	}
	c, err := cluster.Shared()
	require.NoError(t, err)
	workshop, err := gobuild.Build(t.Context(), gobuild.Workshop(filepath.Join(root, "harness")), os.Stderr)
	require.NoError(t, err)
	env, err := gobuild.Env(t.Context())
	require.NoError(t, err)

	// What "make up" and "make env" do, and where the reader stands.
	scratch := t.TempDir()
	env = append(env, c.Env(scratch)...)
	path := []string{filepath.Dir(workshop), os.Getenv("PATH")}
	if c.Kubectl != "" {
		path = append([]string{c.Kubectl}, path...)
	}
	env = append(env, "PATH="+strings.Join(path, string(os.PathListSeparator)), cluster.RootVariable+"="+root, "CGO_ENABLED=0")
	page.Parts = append([]play.Part{{Steps: []play.Step{{Command: "cd .."}}}}, page.Parts...)

	var screen bytes.Buffer
	player := play.Player{Out: &screen, Scratch: scratch, Limit: 10 * time.Minute, Env: env}
	_, err = player.Play(t.Context(), page)
	require.NoError(t, err, "%s", screen.String())
}
