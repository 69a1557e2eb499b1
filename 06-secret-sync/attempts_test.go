package secretsync

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// B22: two instances with one source namespace and different selectors want the opposite of each other. They get slower, and say
// so, and when one of them ends, the other one has its way.
func TestTwoInstancesWithDifferentSelectors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(3)
		w.editNamespace("ns-00", func(n *corev1.Namespace) { n.Labels["team"] = "web" })
		w.share("db")
		w.startController(0)
		advance(time.Minute)
		w.requireCopies("db", names...)
		w.written()
		team, err := labels.Parse("team=web")
		require.NoError(t, err)
		everybody := w.options.Namespaces
		w.options.Namespaces = team
		second := w.startController(0)
		advance(10 * time.Minute)
		writes := w.written()
		require.NotEmpty(t, writes)
		require.Less(t, len(writes), 100, "in 10 minutes, for two copies: %v", writes)
		told := w.told()
		require.NotEmpty(t, told)
		require.Less(t, len(told), 20)
		for _, event := range told {
			require.Contains(t, event, "Contested")
		}
		require.Contains(t, strings.Join(told, "\n"), "somebody undoes each create of the copy")
		second.stop()
		advance(5 * time.Minute)
		w.requireCopies("db", names...)
		w.written()
		advance(time.Hour)
		require.Empty(t, w.written())

		// What is done again for another reason is not held back.
		w.options.Namespaces = everybody
		for range 10 {
			w.remove("ns-01", "db")
			advance(2 * time.Minute)
			require.Equal(t, []string{"create ns-01/db"}, w.written())
		}
	})
}

// Somebody who edits a copy again and again, such as another controller, slows the repairs down.
func TestAnEditorThatDoesNotGiveUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.share("db")
		w.startController(0)
		advance(time.Minute)
		for range 2 { // it gives up, and begins again
			w.written()
			for range 600 {
				w.edit("ns-00", "db", with("password", "edited"))
				advance(time.Second)
			}
			require.Less(t, len(w.written()), 40, "in 10 minutes")
			require.NotEmpty(t, w.told())
			advance(15 * time.Minute)
			w.requireCopies("db", "ns-00")
		}
	})
}

// What was undone long ago does not count: a copy that somebody edits now and then is repaired at once, each time, and nothing is
// called contested.
func TestAnEditNowAndThen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.share("db")
		w.startController(0)
		advance(time.Minute)
		w.written()
		for i := range 12 {
			for range 2 { // somebody tries again at once
				w.edit("ns-00", "db", with("password", "edited"))
				advance(time.Second)
				require.Len(t, w.written(), 1, "edit %d", i)
				w.requireCopies("db", "ns-00")
			}
			advance(time.Hour)
		}
		require.Empty(t, w.told())
	})
}
