package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestSentinelCommand(t *testing.T) {
	tests := map[string]struct {
		script   string
		asksWith int
		asked    bool
		err      string // the error; "" for none
	}{
		"status 0":                   {"exit 0;", 0, true, ""},
		"status 0, and output":       {"echo yes;", 0, true, ""},
		"status 1":                   {"echo no; exit 1", 0, false, ""},
		"status 2":                   {"echo broken; exit 2", 0, false, "the sentinel command \"echo broken; exit 2\" exited with status 2, neither 0, which asks for a reboot, nor 1, which does not\nbroken"},
		"as needs-restarting, asks":  {"exit 1;", 1, true, ""},
		"as needs-restarting, quiet": {"exit 0;", 1, false, ""},
		"as zypper, asks":            {"exit 102;", 102, true, ""},
		"as zypper, fails":           {"exit 1;", 102, false, `the sentinel command "exit 1;" exited with status 1, neither 102, which asks for a reboot, nor 0, which does not`},
		"quotes":                     {`sh -c 'test "a b" = "a b"'`, 0, true, ""},
		"a pipe":                     {"echo a b | grep -q b", 0, true, ""},
		"a pipe that finds nothing":  {"echo a b | grep -q c", 0, false, ""},
		"a variable":                 {"A=1 sh -c 'exit $A'", 1, true, ""},
		"an open quote":              {"echo 'a", 0, false, "neither 0, which asks"},
		"a signal":                   {"kill -9 $$", 0, false, `run the sentinel command "kill -9 $$": signal: killed`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			why, asked, err := (&Sentinel{Command: Command{Line: test.script}, AsksWith: test.asksWith}).Check(t.Context())
			require.Equal(t, test.asked, asked)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			if asked {
				require.Equal(t, fmt.Sprintf("the sentinel command %q exited with status %d", test.script, test.asksWith), why)
			}
		})
	}
	_, asked, err := (&Sentinel{Command: Command{Line: "no-such-command"}}).Check(t.Context())
	require.False(t, asked)
	require.EqualError(t, err, `run the sentinel command "no-such-command": exec: "no-such-command": executable file not found in $PATH`)
}

func TestSentinelFile(t *testing.T) {
	long := strings.Repeat("linux-image-ü ", 100)
	tests := map[string]struct {
		packages string // of the list; "none" for no list
		want     string
	}{
		"no list":         {"none", ""},
		"an empty list":   {"", ""},
		"only blank":      {"\n \n", ""},
		"a package":       {"linux-base\n", ", for linux-base"},
		"two packages":    {"linux-base\nlibc6\n", ", for linux-base, libc6"},
		"no last newline": {"linux-base\nlibc6", ", for linux-base, libc6"},
		"not UTF-8":       {"linux\xff-base\n", ", for linux-base"},
		"a long list":     {long, ", for " + strings.Join(strings.Fields(long), ", ")[:500] + "..."},
		"just not long":   {strings.Repeat("x", 500), ", for " + strings.Repeat("x", 500)},
		"cut in an ü":     {"x" + strings.Repeat("ü", 400), ", for x" + strings.Repeat("ü", 249) + "..."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "reboot-required")
			if test.packages != "none" {
				require.NoError(t, os.WriteFile(file+".pkgs", []byte(test.packages), 0o600))
			}
			s := &Sentinel{File: file}
			_, asked, err := s.Check(t.Context())
			require.NoError(t, err)
			require.False(t, asked, "the list alone does not ask for a reboot")

			require.NoError(t, os.WriteFile(file, nil, 0o600))
			why, asked, err := s.Check(t.Context())
			require.NoError(t, err)
			require.True(t, asked)
			require.Equal(t, file+" exists"+test.want, why)

			require.NoError(t, os.Remove(file))
			_, asked, err = s.Check(t.Context())
			require.NoError(t, err)
			require.False(t, asked)
		})
	}
}

func TestSentinelFileThatCannotBeChecked(t *testing.T) {
	notADirectory := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notADirectory, nil, 0o600))
	_, asked, err := (&Sentinel{File: filepath.Join(notADirectory, "reboot-required")}).Check(t.Context())
	require.ErrorContains(t, err, "check the sentinel file: ")
	require.False(t, asked)

	_, asked, err = (&Sentinel{File: filepath.Join(t.TempDir(), "none", "reboot-required")}).Check(t.Context())
	require.NoError(t, err, "in a directory that does not exist, there is no file")
	require.False(t, asked)
}

// watchSentinel watches a file until the test ends. The channel has a value after each change.
func watchSentinel(t *testing.T, file string) <-chan struct{} {
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		(&Sentinel{File: file, Interval: time.Hour}).Watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-changed // it watches
	return changed
}

// requireSentinel waits for changes until the sentinel asks for a reboot, or does not.
func requireSentinel(t *testing.T, file string, want bool, changed <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-changed:
		case <-time.After(time.Minute):
			require.FailNow(t, "no change was reported")
		}
		if _, asked, err := (&Sentinel{File: file}).Check(t.Context()); err == nil && asked == want {
			return
		}
	}
}

func TestWatchReportsChanges(t *testing.T) {
	for name, path := range map[string]string{"a clean path": "/reboot-required", "another path of it": "//./reboot-required"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := dir + path
			changed := watchSentinel(t, file)

			require.NoError(t, os.WriteFile(file, nil, 0o600))
			requireSentinel(t, file, true, changed)

			require.NoError(t, os.Remove(file))
			requireSentinel(t, file, false, changed)

			other := filepath.Join(dir, "other")
			require.NoError(t, os.WriteFile(other, nil, 0o600))
			require.NoError(t, os.Rename(other, file))
			requireSentinel(t, file, true, changed)

			require.NoError(t, os.Rename(file, other))
			requireSentinel(t, file, false, changed)
		})
	}
}

func TestWatchFollowsALinkToTheDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "run") // as /var/run is one
	require.NoError(t, os.Symlink(dir, link))
	changed := watchSentinel(t, filepath.Join(link, "reboot-required"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "reboot-required"), nil, 0o600))
	requireSentinel(t, filepath.Join(link, "reboot-required"), true, changed)
}

func TestWatchReturnsIfThereIsNothingToWatch(t *testing.T) {
	fail := func() { require.Fail(t, "it watches") }
	(&Sentinel{Command: Command{Line: "true"}, Interval: time.Minute}).Watch(t.Context(), fail)

	var log ktesting.BufferTL
	logger := ktesting.NewLogger(&log, ktesting.NewConfig())
	file := filepath.Join(t.TempDir(), "none", "reboot-required")
	(&Sentinel{File: file, Interval: time.Minute}).Watch(klog.NewContext(t.Context(), logger), fail)
	require.Contains(t, log.String(), "Cannot watch the sentinel file")
	require.Contains(t, log.String(), "1m0s")
}
