package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/testinput"
)

func TestLeaveOut(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		module   string
		vetxOnly bool
		want     bool
	}{
		"a dependency":              {"k8s.io/client-go", true, true},
		"one with printf functions": {"k8s.io/klog/v2", true, false},
		"of the standard library":   {"", true, false},
		"one of ours":               {"example.com/controllers/harness", true, false},
		"what is to be checked":     {"example.com/controllers/harness", false, false},
		"of another module":         {"k8s.io/client-go", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			facts := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			text, err := json.Marshal(map[string]any{"ModulePath": c.module, "VetxOnly": c.vetxOnly, "VetxOutput": facts})
			require.NoError(t, err)
			file := facts + ".cfg"
			require.NoError(t, os.WriteFile(file, text, 0o600))
			done, err := leaveOut(file)
			require.NoError(t, err)
			require.Equal(t, c.want, done)
			if done {
				require.FileExists(t, facts, "the go command expects it")
			} else {
				require.NoFileExists(t, facts)
			}
		})
	}
	file := filepath.Join(dir, "broken.cfg")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err := leaveOut(file)
	require.ErrorContains(t, err, "broken.cfg: unexpected end of JSON input")
	_, err = leaveOut(filepath.Join(dir, "missing.cfg"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A call of a function like fmt.Printf is checked, whether it is the standard library's, another module's or our own.
func TestVetFindsWhatItDoesElsewhere(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "vet")
	out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	module := filepath.Join(dir, "module")
	for name, text := range map[string]string{
		"go.mod": string(bytes.Replace(read(t, "../../go.mod"), []byte("module example.com/controllers/harness"), []byte("module example.com/controllers/checked"), 1)),
		"go.sum": string(read(t, "../../go.sum")),
		"ours/ours.go": `package ours

import "fmt"

// Sayf is like fmt.Printf.
func Sayf(format string, args ...any) { fmt.Printf(format, args...) }
`,
		"checked.go": `// Package checked has mistakes.
package checked

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"example.com/controllers/checked/ours"
)

func mistakes(cmd *cobra.Command) {
	fmt.Printf("%d\n", "fmt")
	ours.Sayf("%d\n", "ours")
	klog.Infof("%d", "klog")
	cmd.Printf("%d\n", "cobra")
}
`,
	} {
		path := filepath.Join(module, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	vet := func(args ...string) []string {
		cmd := exec.Command("go", append(append([]string{"vet", "-mod=mod"}, args...), "./...")...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		return regexp.MustCompile(`checked\.go:\d+.*`).FindAllString(string(out), -1)
	}
	found := vet("-vettool=" + tool)
	require.Len(t, found, 4, "%s", strings.Join(found, "\n"))
	require.Equal(t, vet(), found)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	testinput.Declare(path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return text
}
