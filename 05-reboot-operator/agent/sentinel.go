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
	// Command asks for a reboot when it exits with the status AsksWith, and does not when it exits with the opposite: 1 if that
	// is 0, and 0 otherwise.
	Command  Command
	AsksWith int
	// Interval is how often the sentinel is checked. A file is also watched, so that the interval rarely matters to it.
	Interval time.Duration
}

// Check reports whether the machine asks for a reboot, and why.
func (s *Sentinel) Check(ctx context.Context) (why string, asked bool, err error) {
	if s.Command.Line != "" {
		return s.checkCommand(ctx)
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

func (s *Sentinel) checkCommand(ctx context.Context) (why string, asked bool, err error) {
	output, err := s.Command.run(ctx)
	status, exit := 0, (*exec.ExitError)(nil)
	if errors.As(err, &exit) && exit.Exited() {
		status, err = exit.ExitCode(), nil
	}
	asksNot := 0
	if s.AsksWith == 0 {
		asksNot = 1
	}
	switch {
	case err != nil:
		return "", false, fmt.Errorf("run the sentinel command %q: %w%s", s.Command.Line, err, output)
	case status == s.AsksWith:
		return fmt.Sprintf("the sentinel command %q exited with status %d", s.Command.Line, status), true, nil
	case status == asksNot:
		return "", false, nil
	}
	return "", false, fmt.Errorf("the sentinel command %q exited with status %d, neither %d, which asks for a reboot, nor %d, which does not%s",
		s.Command.Line, status, s.AsksWith, asksNot, output)
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
