package repository

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// workflow is what we check of a workflow of GitHub's.
type workflow struct {
	Env  map[string]string `json:"env"`
	Jobs map[string]struct {
		Strategy struct {
			Matrix map[string][]string `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string         `json:"uses"`
			With map[string]any `json:"with"`
			Run  string         `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// GitHub runs the two commands of the README, and nothing that this repository does not have.
func TestWorkflow(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	path := filepath.Join(root, ".github", "workflows", "ci.yml")
	testinput.Declare(path, filepath.Join(root, "Makefile"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var w workflow
	require.NoError(t, yaml.Unmarshal(text, &w))
	require.NotEmpty(t, w.Jobs)
	targets := makeTargets(t, root)
	var commands []string
	for name, job := range w.Jobs {
		matrix := regexp.MustCompile(`\$\{\{ matrix\.(\w+) \}\}`)
		for _, match := range matrix.FindAllStringSubmatch(string(text), -1) {
			require.NotEmpty(t, job.Strategy.Matrix[match[1]], "%s: the matrix has no %s", name, match[1])
		}
		for _, step := range job.Steps {
			require.NotEqual(t, step.Run == "", step.Uses == "", "%s: a step either runs a command or uses an action", name)
			if action, version, _ := strings.Cut(step.Uses, "@"); step.Uses != "" {
				require.True(t, strings.HasPrefix(action, "actions/"), "%s: %s is not GitHub's own", name, step.Uses)
				require.Regexp(t, `^v\d+$`, version, step.Uses)
			}
			if step.Run == "" {
				continue
			}
			if match := matrix.FindStringSubmatch(step.Run); match != nil {
				for _, value := range job.Strategy.Matrix[match[1]] {
					commands = append(commands, strings.ReplaceAll(step.Run, match[0], value))
				}
				continue
			}
			commands = append(commands, step.Run)
		}
	}
	for _, command := range commands {
		target, isMake := strings.CutPrefix(strings.TrimSpace(command), "make ")
		require.True(t, isMake, "%q is not a command of the Makefile's", command)
		require.Contains(t, targets, target)
	}
	require.ElementsMatch(t, []string{"make test", "make test-all"}, commands)
	for _, step := range w.Jobs["test"].Steps {
		if cached, ok := step.With["path"].(string); ok {
			inside := slices.ContainsFunc([]string{"GOCACHE", "GOMODCACHE", "WORKSHOP_CACHE"}, func(name string) bool {
				return strings.HasPrefix(w.Env[name], cached)
			})
			require.True(t, inside, "nothing is written to %s", cached)
		}
	}
}

func TestDevcontainer(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	path := filepath.Join(root, ".devcontainer", "devcontainer.json")
	testinput.Declare(path, filepath.Join(root, "Makefile"), filepath.Join(root, "go.work"))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var container struct{ Image, PostCreateCommand string }
	require.NoError(t, json.Unmarshal(text, &container))
	target, isMake := strings.CutPrefix(container.PostCreateCommand, "make ")
	require.True(t, isMake)
	require.Contains(t, makeTargets(t, root), target)
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(work))
	require.NotNil(t, version)
	require.True(t, strings.HasPrefix(container.Image, "golang:"+version[1]+"-"), "%s is not the version of go.work, %s", container.Image, version[1])
}

// makeTargets returns the targets of the Makefile that have help.
func makeTargets(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, match[1])
	}
	require.NotEmpty(t, targets)
	return targets
}
