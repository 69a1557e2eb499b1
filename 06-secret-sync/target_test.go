package secretsync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// B21: a selector that selects none of the namespaces that want copies is a mistake, whatever it is meant to be. The copies stay,
// and are left as they are; an Event, the plan and the status say so.
func TestASelectorThatSelectsNothing(t *testing.T) {
	for name, test := range map[string]struct{ selector, hint string }{
		"names":           {"external-hosts, traefik, default", `it has to be "kubernetes.io/metadata.name in (default, external-hosts, traefik)"`},
		"one name":        {"ns-00", `it has to be "kubernetes.io/metadata.name in (ns-00)"`},
		"a typo":          {"taem=web", ""},
		"two equals":      {"team==wbe", ""},
		"a contradiction": {"team=web,team=db", ""},
		"its opposite":    {"kubernetes.io/metadata.name,!kubernetes.io/metadata.name", ""},
		"a wrong value":   {"kubernetes.io/metadata.name in (NS-00)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				names := w.addNamespaces(3)
				for _, name := range names {
					w.editNamespace(name, func(n *corev1.Namespace) { n.Labels["team"] = "web" })
				}
				p := w.startController(0)
				w.share("db")
				advance(time.Minute)
				w.written()
				w.told()
				for range 2 { // the second time is like the first
					w.edit("secret-sync", "db", annotated(NamespacesAnnotation, test.selector))
					advance(10 * time.Minute)
					require.Empty(t, w.written())
					w.requireCopies("db", names...)
					told := w.told()
					require.Len(t, told, 1, "one Event, and not one for each namespace")
					require.Contains(t, told[0], "which selects none of the namespaces that want copies")
					require.Contains(t, told[0], "existing copies are left as they are; to delete them all, remove the label")
					require.Contains(t, told[0], test.hint)
					if test.hint == "" {
						require.NotContains(t, told[0], "it has to be")
					}
					plan, sources, err := Plan(t.Context(), p, p.metadata, w.options.Scope)
					require.NoError(t, err)
					require.Len(t, plan, 3)
					for _, one := range plan {
						require.Equal(t, None, one.Action)
						require.Len(t, one.Refusals, 1)
					}
					status := Summarize(plan, sources)
					require.Len(t, status[0].Refused, 3)
					require.Equal(t, InvalidAnnotation, status[0].Refused[0].Reason)

					w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "kubernetes.io/metadata.name in (ns-00,ns-01,ns-02)"))
					advance(time.Minute)
					require.Empty(t, w.told())
				}
				// What was meant is done at once.
				w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "kubernetes.io/metadata.name=ns-01"))
				advance(time.Minute)
				w.requireCopies("db", "ns-01")
			})
		})
	}
}

// A namespace that comes, goes, or changes its labels makes the difference between a mistake and a selection.
func TestASelectorAndItsNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(2)
		w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "team=web"))
		advance(time.Minute)
		w.requireCopies("db", names...)
		require.Len(t, w.told(), 1)
		for range 2 {
			w.addNamespace("late", true)
			advance(time.Minute)
			w.requireCopies("db", names...)
			w.editNamespace("late", func(n *corev1.Namespace) { n.Labels["team"] = "web" })
			advance(time.Minute)
			w.requireCopies("db", "late") // it is what was meant
			w.written()
			advance(15 * time.Minute) // or client-go counts the Event as the one before
			w.editNamespace("late", func(n *corev1.Namespace) { delete(n.Labels, "team") })
			advance(time.Minute)
			require.Empty(t, w.written())
			w.requireCopies("db", "late")
			require.NotEmpty(t, w.told())
			w.editNamespace("late", func(n *corev1.Namespace) { delete(n.Labels, CopiesLabel) })
			advance(time.Minute)
			w.requireCopies("db") // it does not want copies any more, whatever they select
			w.terminate("late")
			w.removeNamespace("late")
			advance(time.Minute)
			w.edit("secret-sync", "db", func(s *corev1.Secret) { delete(s.Annotations, NamespacesAnnotation) })
			advance(time.Minute)
			w.requireCopies("db", names...)
			w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "team=web"))
			advance(time.Minute)
			w.requireCopies("db", names...)
		}
	})
}

// The deletion of the only namespace that a selector selects may be missed.
func TestTheOnlyNamespaceIsDeletedUnseen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "kubernetes.io/metadata.name=ns-00"))
		advance(time.Minute)
		w.requireCopies("db", "ns-00")
		w.told()
		w.missed(func() {
			w.terminate("ns-00")
			w.removeNamespace("ns-00")
		})
		advance(time.Minute)
		require.NotEmpty(t, w.told(), "the selector selects nothing now")
	})
}

// A source that has another mistake by now is not told of again when the namespaces that it once selected change.
func TestASelectorThatIsNoLongerTheMistake(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		w.editNamespace("ns-00", func(n *corev1.Namespace) { n.Labels["team"] = "web" })
		w.startController(0)
		w.share("db", annotated(NamespacesAnnotation, "team=web"))
		advance(time.Minute)
		w.requireCopies("db", "ns-00")
		w.edit("secret-sync", "db", annotated(KeysAnnotation, "none"))
		advance(time.Minute)
		require.Len(t, w.told(), 1)
		for range 2 {
			w.editNamespace("ns-00", func(n *corev1.Namespace) { delete(n.Labels, "team") })
			advance(15 * time.Minute) // or client-go counts the next Event as this one
			w.editNamespace("ns-01", func(n *corev1.Namespace) { n.Labels["team"] = "web" })
			advance(time.Minute)
			w.editNamespace("ns-01", func(n *corev1.Namespace) { delete(n.Labels, "team") })
			w.editNamespace("ns-00", func(n *corev1.Namespace) { n.Labels["team"] = "web" })
			advance(time.Minute)
		}
		require.Empty(t, w.told())
	})
}
