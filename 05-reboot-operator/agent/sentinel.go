package agent

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

// Sentinel is how the machine itself asks for a reboot: by a file that exists, or by a command that succeeds. Either File or
// Command is set.
type Sentinel struct {
	// File asks for a reboot while it exists, as /var/run/reboot-required does on Debian. A file of the same name with
	// ".pkgs" at the end may list the packages that asked for it.
	File string
	// Command asks for a reboot when it exits with status 0, and does not with status 1.
	Command []string
	// Interval is how often the sentinel is checked. A file is also watched, so that the interval rarely matters to it.
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
		return fmt.Sprintf("the sentinel command %q succeeded", strings.Join(s.Command, " ")), true, nil
	}
	switch _, err := os.Stat(s.File); {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, nil
	case err != nil:
		return "", false, fmt.Errorf("check the sentinel file: %w", err)
	}
	why = s.File + " exists"
	if packages, err := os.ReadFile(s.File + ".pkgs"); err == nil && len(strings.Fields(string(packages))) > 0 {
		const most = 500 // bytes in the annotation
		list := strings.Join(strings.Fields(strings.ToValidUTF8(string(packages), "")), ", ")
		if len(list) > most {
			list = strings.ToValidUTF8(list[:most], "") + "..."
		}
		why += ", for " + list
	}
	return why, true, nil
}

// Watch calls changed once it watches the sentinel file, and whenever the file may have been created or removed, until ctx is
// cancelled. Without a file, or if its directory cannot be watched, it returns at once, and only Interval remains.
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
	changed() // the file may have been created or removed before
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if filepath.Base(event.Name) == filepath.Base(s.File) {
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
