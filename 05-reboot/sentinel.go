package reboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"
)

// Sentinel is how the machine itself asks for a reboot: with a file that exists, or with a command that succeeds. Only one
// of the two is set.
type Sentinel struct {
	// File asks for a reboot while it exists, as /var/run/reboot-required does on Debian. A file of the same name with
	// ".pkgs" at the end may list the packages that asked for it.
	File string
	// Command asks for a reboot when it exits with status 0, and does not with status 1.
	Command []string
	// Interval is how often Command is run, and how often File is looked at if it cannot be watched.
	Interval time.Duration
}

// Check reports whether the machine asks for a reboot, and why.
func (s *Sentinel) Check(ctx context.Context) (why string, asked bool, err error) {
	if len(s.Command) > 0 {
		output, err := run(ctx, s.Command)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
			return "", false, nil
		}
		if err != nil {
			return "", false, fmt.Errorf("run the sentinel command %q: %w%s", strings.Join(s.Command, " "), err, output)
		}
		return fmt.Sprintf("%q says so", strings.Join(s.Command, " ")), true, nil
	}
	switch _, err := os.Stat(s.File); {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("look for the sentinel file: %w", err)
	}
	why = s.File + " exists"
	if packages, err := os.ReadFile(s.File + ".pkgs"); err == nil && len(strings.Fields(string(packages))) > 0 {
		const most = 500 // characters; the annotation is no place for more
		list := strings.Join(strings.Fields(string(packages)), ", ")
		if len(list) > most {
			list = list[:most] + "..."
		}
		why += ", for " + list
	}
	return why, true, nil
}

// Watch calls changed whenever the sentinel file may have come or gone, until ctx is cancelled. Without a file, or if its
// directory cannot be watched, it returns: the sentinel is then checked at every Interval only.
func (s *Sentinel) Watch(ctx context.Context, changed func()) {
	if s.File == "" {
		return
	}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		err = watcher.Add(filepath.Dir(s.File)) // the file itself need not exist
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch the sentinel file, checking it at intervals", "file", s.File, "interval", s.Interval)
		return
	}
	changed() // whatever came before the watch
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if event.Name == s.File {
				changed()
			}
		case err, ok := <-watcher.Errors:
			if !ok {
				return
			}
			klog.FromContext(ctx).Error(err, "Lost events of the sentinel file", "file", s.File)
			changed()
		}
	}
}
