package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The shell is used only if the line needs one: an image may have none.
func TestNeedsShell(t *testing.T) {
	for line, want := range map[string]bool{
		"":                           false,
		"needs-restarting -r":        false,
		"  shutdown  -r now ":        false,
		"test -e /run/a,b:c-d_e%f+@": false,
		"dd if=/dev/null":            false, // what looks like an assignment is one only at the beginning
		"A=1 env":                    true,
		`sh -c "exit 1"`:             true,
		"sh -c 'exit 1'":             true,
		"a | b":                      true, "a & b": true, "a; b": true, "a > b": true, "a < b": true, "(a)": true, "a $b": true, "a `b`": true,
		"ls *": true, "ls ?": true, "ls [a]": true, "ls ~": true, "! a": true, "a {b,c}": true, `a \ b`: true, "a # b": true, "a\nb": true,
	} {
		require.Equal(t, want, needsShell(line), "%q", line)
	}
}

// hostRoot returns a directory that is the root directory of a host: with a shell, and with the programs of this test.
func hostRoot(t *testing.T, programs map[string]string) string {
	root := t.TempDir()
	for _, dir := range []string{"bin", "usr/bin"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	source := filepath.Join(t.TempDir(), "sh.go")
	require.NoError(t, os.WriteFile(source, []byte(fakeShell), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(root, "bin", "sh"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	for name, status := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(root, "usr", "bin", name), []byte(status), 0o755))
	}
	return root
}

// fakeShell is a program without libraries that takes "-c LINE". It looks the line's first word up in PATH, and what it finds
// there is the status to exit with.
const fakeShell = `package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if text, err := os.ReadFile(filepath.Join(dir, strings.Fields(os.Args[2])[0])); err == nil {
			status, _ := strconv.Atoi(string(text))
			fmt.Println("ran", os.Args[2])
			os.Exit(status)
		}
	}
	os.Exit(127)
}
`

// A22: the host's programs are found and run in the host's root directory, as on RHEL-like and on SUSE machines.
func TestTheHostsPrograms(t *testing.T) {
	root := hostRoot(t, map[string]string{"needs-restarting": "1", "zypper": "102", "quiet": "0"})
	_, _, err := (&Sentinel{Command: Command{Line: "quiet", Root: root}, AsksWith: 1}).Check(t.Context())
	if err != nil { // only who has the capability may change the root directory, as the agent does
		require.ErrorContains(t, err, "needs the capability SYS_CHROOT")
		return
	}
	for name, test := range map[string]struct {
		line     string
		asksWith int
		asked    bool
		err      string
	}{
		"RHEL, asks":      {"needs-restarting -r", 1, true, ""},
		"RHEL, quiet":     {"quiet", 1, false, ""},
		"SUSE, asks":      {"zypper needs-rebooting", 102, true, ""},
		"the wrong flag":  {"zypper needs-rebooting", 1, false, "exited with status 102, neither 1, which asks for a reboot, nor 0, which does not\nran zypper needs-rebooting"},
		"no such program": {"no-such-program", 1, false, "exited with status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			why, asked, err := (&Sentinel{Command: Command{Line: test.line, Root: root}, AsksWith: test.asksWith}).Check(t.Context())
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.asked, asked, why)
		})
	}
	err = Command{Line: "systemctl reboot", Root: t.TempDir()}.Reboot(t.Context())
	require.ErrorContains(t, err, "is the host's root directory mounted at --host-root")
}
