package protocol

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// notes is a recorder that keeps the notes.
type notes struct {
	events.EventRecorder
	all []string
}

func (n *notes) Eventf(_, _ runtime.Object, _, _, _, note string, args ...any) {
	n.all = append(n.all, args[0].(string))
}

// The API server refuses an Event whose note is longer than 1,024 bytes.
func TestLongNotes(t *testing.T) {
	var n notes
	r := shortNotes{&n}
	for _, text := range []string{"short: 100 %", strings.Repeat("x", 1024), strings.Repeat("x", 1025), strings.Repeat("é", 600), "x" + strings.Repeat("é", 600)} {
		r.Eventf(nil, nil, "Warning", "DrainWaiting", "Drain", "%s", text)
	}
	require.Equal(t, "short: 100 %", n.all[0])
	require.Len(t, n.all[1], 1024)
	for _, note := range n.all[2:] {
		require.LessOrEqual(t, len(note), 1024)
		require.Greater(t, len(note), 1020)
		require.True(t, utf8.ValidString(note))
		require.True(t, strings.HasSuffix(note, "…"))
	}
}
