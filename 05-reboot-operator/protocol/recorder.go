package protocol

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// maxNote is how many bytes the note of an Event has at most. The API server refuses a longer one, and client-go drops it then.
const maxNote = 1024

// NewRecorder returns a recorder that shortens the notes of Events that are too long.
func NewRecorder(broadcaster events.EventBroadcaster, component string) events.EventRecorder {
	return shortNotes{broadcaster.NewRecorder(scheme.Scheme, component)}
}

type shortNotes struct{ events.EventRecorder }

// Eventf records an Event.
func (r shortNotes) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	const ellipsis = "…"
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote-len(ellipsis)], "") + ellipsis // it may have cut a character in two
	}
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", text)
}
