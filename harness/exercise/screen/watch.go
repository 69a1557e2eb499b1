package screen

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long Watch waits after an event for more: an editor may save in several steps.
const settle = 50 * time.Millisecond

// poll is how often Watch calls changed without an event. Some file systems report none.
const poll = 2 * time.Second

// Watch calls changed when a file below dir may have changed, until ctx is cancelled. It may call it when nothing has.
// Editors write to a file, or replace it by a new one, or even the directory, so Watch does not tell what has happened.
func Watch(ctx context.Context, dir string, changed func()) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var events <-chan fsnotify.Event
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events = watcher.Events
		go func() {
			for range watcher.Errors { // an overflow is no loss: the next tick makes up for it
			}
		}()
	}
	watch := func() {
		if watcher == nil {
			return
		}
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				_ = watcher.Add(path) // adding it again is harmless; without the watch, there is the tick
			}
			return nil
		})
	}
	watch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case event := <-events:
			if event.Op == fsnotify.Chmod {
				continue
			}
			quiet := time.NewTimer(settle)
		more:
			for {
				select {
				case <-events:
					quiet.Reset(settle)
				case <-quiet.C:
					break more
				case <-ctx.Done():
					return
				}
			}
		}
		watch()
		changed()
	}
}
