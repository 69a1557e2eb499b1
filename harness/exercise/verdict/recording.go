package verdict

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"example.com/controllers/harness/history"
)

// RecordingsVariable is the name of an environment variable with the path of a directory, to which a check writes a recording of each
// scene. Without it, a check records nothing.
const RecordingsVariable = "WORKSHOP_CHECK_RECORDINGS"

// RecordingOf returns the path of the recording of a scene. There is none of a scene that has not begun.
func RecordingOf(dir, scene string) string { return filepath.Join(dir, url.PathEscape(scene)+".jsonl") }

// Record adds a record to the recording of the scene, as it happens, so that there is one of a program that panics, hangs or exits.
// Requests get the name of their program. Since a recording holds no content, what has changed in an object is left out.
func (w *Writer) Record(r history.Record) {
	if r.Request != nil && r.Request.Program == "" {
		named := *r.Request
		named.Program = programOf(named)
		r.Request = &named
	}
	if r.Event != nil {
		bare := *r.Event
		bare.Changed = ""
		r.Event = &bare
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.recording != nil && history.Write(w.recording, r) != nil {
		w.stopRecording() // at a line that may be incomplete
	}
}

// record begins a new recording, if there is to be one.
func (w *Writer) record(scene string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopRecording()
	if dir := os.Getenv(RecordingsVariable); dir != "" {
		if file, err := os.OpenFile(RecordingOf(dir, scene), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
			w.recording = file // without one, the verdict is still right
		}
	}
}

func (w *Writer) stopRecording() {
	if w.recording != nil {
		_ = w.recording.Close() // nothing is buffered
		w.recording = nil
	}
}

// programOf returns the name of the program that sent a request. What the recorder did not know is the controller.
func programOf(r history.Request) string {
	if r.Who == "" || strings.Contains(r.Who, ":") {
		return "controller"
	}
	return r.Who
}
