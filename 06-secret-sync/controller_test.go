package secretsync

import (
	"context"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coreinformers "k8s.io/client-go/informers/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
)

func TestCopiesFollowTheirSource(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(3)
		w.addNamespace("other", false)
		w.create("secret-sync", "private")
		w.startController(0)
		w.share("db", annotated("kubectl.kubernetes.io/last-applied-configuration", secretValue), annotated("a", "b"), func(secret *corev1.Secret) {
			secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}}
			secret.Labels = map[string]string{"app": "db"}
		})
		advance(time.Minute)
		w.requireCopies("db", names...)
		require.Equal(t, []string{"create ns-00/db", "create ns-01/db", "create ns-02/db"}, w.written())
		one := w.get("ns-00", "db")
		require.Equal(t, map[string]string{CopyLabel: "secret-sync"}, one.Labels)
		require.Len(t, one.Annotations, 5, "only our own")
		require.Empty(t, one.OwnerReferences, "an owner in another namespace would get the copy collected")

		w.edit("secret-sync", "db", with("more", "more"))
		advance(time.Minute)
		w.requireCopies("db", names...)
		require.Equal(t, []string{"update ns-00/db", "update ns-01/db", "update ns-02/db"}, w.written())

		w.addNamespace("late", true)
		advance(time.Second)
		w.requireCopies("db", append(names, "late")...)
		require.Equal(t, []string{"create late/db"}, w.written())

		advance(time.Hour)
		require.Empty(t, w.written(), "at rest") // B12
		w.edit("secret-sync", "db", annotated("c", "d"))
		advance(time.Minute)
		require.Empty(t, w.written(), "what is not copied has changed")
		for _, app := range []string{"web", "shop"} {
			w.edit("secret-sync", "db", labelled("app", app), annotated(LabelsAnnotation, "app"))
			advance(time.Second)
			require.Equal(t, []string{"update late/db", "update ns-00/db", "update ns-01/db", "update ns-02/db"}, w.written(), "the label %s", app)
			require.Equal(t, app, w.get("ns-00", "db").Labels["app"])
		}

		w.editNamespace("late", func(namespace *corev1.Namespace) { delete(namespace.Labels, CopiesLabel) }) // B10
		advance(time.Second)
		require.Equal(t, []string{"delete late/db"}, w.written())
		w.edit("secret-sync", "db", func(secret *corev1.Secret) { delete(secret.Labels, SharedLabel) })
		advance(time.Second)
		w.requireCopies("db")
		require.Equal(t, []string{"delete ns-00/db", "delete ns-01/db", "delete ns-02/db"}, w.written())
		require.Zero(t, w.reads)
		require.Empty(t, w.told())
	})
}

// B1, B20: a Secret of a user is not touched, whatever marks the user has pasted into it, and the copy is made once it is gone.
func TestNamesakes(t *testing.T) {
	for name, paste := range map[string]secretOption{
		"plain":           func(*corev1.Secret) {},
		"our label":       func(secret *corev1.Secret) { secret.Labels = map[string]string{CopyLabel: "secret-sync"} },
		"another's label": func(secret *corev1.Secret) { secret.Labels = map[string]string{CopyLabel: "other"} },
		"our annotations": annotated(SourceAnnotation, "db"),
		"our address":     annotated(CopiedToAnnotation, "ns-00/db"),
		"the source's":    asSource,
		"pasted elsewhere": func(secret *corev1.Secret) {
			secret.Labels = map[string]string{CopyLabel: "secret-sync"}
			secret.Annotations = map[string]string{CopiedToAnnotation: "other/db", SourceAnnotation: "db"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(2)
				w.create("ns-00", "db", paste)
				p := w.startController(0)
				w.share("db")
				for range 2 { // the second one is made after the copy
					before := w.get("ns-00", "db")
					advance(15 * time.Minute) // or client-go counts the next Event as this one
					require.Equal(t, before, w.get("ns-00", "db"))
					require.Equal(t, []string{"db Warning NamesakeNotOurs Not copied to ns-00/db: Secret ns-00/db exists and was not created by this controller; delete or rename it"}, w.told())
					require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
					require.LessOrEqual(t, len(w.written()), 2, "one create for each namespace")
					w.remove("ns-00", "db")
					advance(time.Second)
					w.requireCopies("db", "ns-00", "ns-01")
					require.Equal(t, []string{"create ns-00/db"}, w.written())
					require.Empty(t, p.c.namesakes.watches, "the watch has ended")

					w.remove("ns-00", "db")
					w.create("ns-00", "db", paste)
				}
				before := w.get("ns-00", "db")
				advance(time.Minute)
				w.remove("secret-sync", "db")
				advance(time.Minute)
				require.Equal(t, before, w.get("ns-00", "db"))
				require.Empty(t, p.c.namesakes.watches, "no source has the name")
			})
		})
	}
}

// B2: whatever happens to a copy, one write repairs it.
func TestRepairsCopies(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(w *world)
		writes []string
	}{
		{"deleted", func(w *world) { w.remove("ns-00", "db") }, []string{"create ns-00/db"}},
		{"edited", func(w *world) { w.edit("ns-00", "db", with("password", "other")) }, []string{"update ns-00/db"}},
		{"added", func(w *world) { w.edit("ns-00", "db", with("more", "other")) }, []string{"update ns-00/db"}},
		{"removed", func(w *world) {
			w.edit("ns-00", "db", func(s *corev1.Secret) { s.Data = map[string][]byte{"user": s.Data["user"]} })
		}, []string{"update ns-00/db"}},
		{"label removed", func(w *world) { w.edit("ns-00", "db", func(s *corev1.Secret) { s.Labels = nil }) }, []string{"create ns-00/db 409", "update ns-00/db"}},
		{"address removed", func(w *world) {
			w.edit("ns-00", "db", func(s *corev1.Secret) { delete(s.Annotations, CopiedToAnnotation) })
		}, []string{"update ns-00/db"}},
		{"hash edited", func(w *world) { w.edit("ns-00", "db", annotated(HashAnnotation, "0")) }, []string{"update ns-00/db"}},
		{"made immutable", func(w *world) { w.edit("ns-00", "db", immutable) }, []string{"create ns-00/db", "delete ns-00/db"}},
		{"edited, and nobody knows by whom", func(w *world) {
			w.edit("ns-00", "db", with("password", "other"), func(s *corev1.Secret) { s.ManagedFields = []metav1.ManagedFieldsEntry{{}} })
		}, []string{"update ns-00/db"}},
		{"labels and annotations of others", func(w *world) {
			w.edit("ns-00", "db", annotated("a", "b"), func(s *corev1.Secret) { s.Labels["c"] = "d" })
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, down := range []bool{false, true} {
				inWorld(t, func(t *testing.T, w *world) {
					names := w.addNamespaces(2)
					p := w.startController(0)
					w.share("db", with("user", "me"))
					advance(time.Minute)
					w.written()
					for range 2 {
						if down {
							p.stop()
						}
						test.change(w)
						if down {
							advance(time.Minute)
							p = w.startController(0)
						}
						advance(10 * time.Second)
						require.Equal(t, test.writes, w.written())
						w.requireCopies("db", names...)
						advance(time.Hour)
						require.Empty(t, w.written(), "at rest")
					}
				})
			}
		})
	}
}

// What others have put on a copy survives its updates, also if the copy has to be created again. Only its finalizers do not.
func TestUpdatesKeepTheMetadataOfOthers(t *testing.T) {
	for name, options := range map[string][]secretOption{"updated": nil, "recreated": {immutable}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				p := w.startController(0)
				w.share("db", options...)
				advance(time.Minute)
				old := w.get("ns-00", "db").UID
				w.edit("ns-00", "db", annotated("a", "b"), func(s *corev1.Secret) {
					s.Labels["c"] = "d"
					s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}}
					if options == nil {
						s.Finalizers = []string{"example.com/x"}
					}
				})
				p.stop() // or it could see that the source is gone, and delete the copy
				w.remove("secret-sync", "db")
				w.share("db", append(options, with("more", ""))...)
				w.startController(0)
				advance(time.Minute)
				w.requireCopies("db", "ns-00")
				one := w.get("ns-00", "db")
				require.Equal(t, options == nil, one.UID == old)
				require.Equal(t, "b", one.Annotations["a"])
				require.Equal(t, "d", one.Labels["c"])
				require.Len(t, one.OwnerReferences, 1)
				require.Equal(t, options == nil, len(one.Finalizers) == 1)
				require.Empty(t, w.told())
				w.written()
				advance(time.Hour)
				require.Empty(t, w.written(), "at rest")
			})
		})
	}
}

// B3, B9, B10: what has changed while the controller was down.
func TestStartsWithOrphans(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(3)
		p := w.startController(0)
		w.share("db")
		w.share("web")
		advance(time.Minute)
		p.stop()
		w.remove("secret-sync", "db")
		w.editNamespace("ns-01", func(namespace *corev1.Namespace) { delete(namespace.Labels, CopiesLabel) })
		w.terminate("ns-02")
		w.removeNamespace("ns-02")
		w.addNamespace("ns-02", true)
		w.written()
		w.startController(0)
		advance(time.Minute)
		w.requireCopies("db")
		w.requireCopies("web", "ns-00", "ns-02")
		require.Equal(t, []string{"create ns-02/web", "delete ns-00/db", "delete ns-01/db", "delete ns-01/web"}, w.written())
	})
}

// B4: nothing is deleted before the caches have synced.
func TestDoesNotActOnAColdCache(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(3)
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		p.stop()
		w.written()
		w.setDown(true)
		p = w.startController(0)
		advance(10 * time.Minute)
		require.Empty(t, w.written())
		answer := httptest.NewRecorder()
		p.c.Readyz(answer, nil)
		require.Equal(t, 503, answer.Code)
		w.setDown(false)
		advance(10 * time.Minute)
		require.Empty(t, w.written())
		w.requireCopies("db", names...)
		answer = httptest.NewRecorder()
		p.c.Readyz(answer, nil)
		require.Equal(t, 200, answer.Code)
		require.Regexp(t, `^ok; last event .* ago\n$`, answer.Body)
	})
}

// B5, B6, B7: sources that are recreated. The world checks that no copy is ever empty.
func TestRecreatedSources(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after []secretOption
		writes        []string
	}{
		{"same", nil, nil, []string{"update ns-00/db"}},
		{"other data", nil, []secretOption{with("password", "2")}, []string{"update ns-00/db"}},
		{"other type", nil, []secretOption{typed("example.com/x")}, []string{"create ns-00/db", "delete ns-00/db"}},
		{"immutable, other data", []secretOption{immutable}, []secretOption{immutable, with("password", "2")}, []string{"create ns-00/db", "delete ns-00/db"}},
		{"no longer immutable", []secretOption{immutable}, nil, []string{"create ns-00/db", "delete ns-00/db"}},
		{"now immutable", nil, []secretOption{immutable}, []string{"update ns-00/db"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, lag := range []time.Duration{0, time.Second} {
				inWorld(t, func(t *testing.T, w *world) {
					w.addNamespaces(1)
					p := w.startController(0)
					w.share("db", test.before...)
					advance(time.Minute)
					p.stop()
					w.written()
					w.remove("secret-sync", "db")
					w.share("db", test.after...)
					w.startController(lag)
					advance(time.Minute)
					w.requireCopies("db", "ns-00")
					require.Equal(t, test.writes, w.written())
					for range 2 { // while it runs, but sees no deletion
						for _, options := range [][]secretOption{test.before, test.after} {
							w.written()
							w.missed(func() {
								w.remove("secret-sync", "db")
								w.share("db", options...)
							})
							advance(time.Minute)
							w.requireCopies("db", "ns-00")
						}
						require.Equal(t, test.writes, w.written())
					}
					advance(time.Hour)
					require.Empty(t, w.written(), "at rest")
				})
			}
		})
	}
}

// B6, B7: nothing shows that a copy is immutable, or of another type, until the API server refuses to update it.
func TestCopiesThatCannotBeUpdated(t *testing.T) {
	for _, test := range []struct {
		name   string
		mutate func(*corev1.Secret)
		down   func(w *world) // while the controller is down
	}{
		{"a webhook makes each copy immutable", immutable, func(w *world) {}},
		{"somebody made it immutable, and nobody knows who", nil, func(w *world) {
			w.edit("ns-00", "db", immutable, func(s *corev1.Secret) { s.ManagedFields = []metav1.ManagedFieldsEntry{{}} })
		}},
		{"its type is unknown", nil, func(w *world) {
			w.edit("ns-00", "db", func(s *corev1.Secret) { delete(s.Annotations, TypeAnnotation) })
			w.remove("secret-sync", "db")
			w.share("db", typed("example.com/x"))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.mutate = test.mutate
				w.addNamespaces(1)
				p := w.startController(0)
				w.share("db")
				advance(time.Minute)
				p.stop()
				w.written()
				test.down(w)
				w.edit("secret-sync", "db", with("password", "2"))
				w.startController(0)
				advance(10 * time.Second)
				w.requireCopies("db", "ns-00")
				require.Equal(t, []string{"create ns-00/db", "delete ns-00/db", "update ns-00/db 422"}, w.written())
				advance(time.Hour)
				require.Empty(t, w.written(), "at rest")
				require.Empty(t, w.told())
			})
		})
	}
}

// A copy that would be refused as well is not deleted for it.
func TestAnInvalidUpdateDeletesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.answer = func(string) error {
			return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "db", field.ErrorList{
				field.Invalid(field.NewPath("type"), "x", "field is immutable"),
				field.TooLong(field.NewPath("data"), "", corev1.MaxSecretSize),
			})
		}
		w.edit("secret-sync", "db", with("password", "2"))
		advance(time.Minute)
		require.NotContains(t, strings.Join(w.written(), "\n"), "delete")
		require.Equal(t, []string{"db Warning Rejected Not copied to ns-00/db: the API server answered 422 Unprocessable Entity: invalid: type (FieldValueInvalid), data (FieldValueTooLong)"}, w.told())
	})
}

// requireNoAttempts requires that nothing is remembered of copies that are gone.
func requireNoAttempts(t *testing.T, p *process) {
	t.Helper()
	p.c.attempts.Range(func(key, _ any) bool {
		require.Fail(t, "an attempt is remembered", "%v", key)
		return false
	})
}

// B7, B12: a mutating webhook undoes what the controller writes. The controller says so, and tries again now and then.
func TestAWebhookThatChangesEachWrite(t *testing.T) {
	const event = "db Warning Mutated Not copied to ns-00/db: the API server accepts each write of the copy, but stores something else; a mutating webhook or policy changes it"
	writes := 0
	for name, mutate := range map[string]secretOption{
		"no managedFields": func(s *corev1.Secret) { s.ManagedFields = nil },
		"our annotation":   annotated(HashAnnotation, "0"),
		"our type":         annotated(TypeAnnotation, "0"), // each write is a delete and a create
		"no managedFields, and another version each time": func(s *corev1.Secret) {
			writes++
			s.ManagedFields = nil
			annotated("write", strconv.Itoa(writes))(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.options.QPS, w.options.Burst = 10, 1 // in a hot loop without a limit, no time would pass
				w.addNamespaces(1)
				w.mutate = mutate
				p := w.startController(0)
				w.share("db")
				advance(time.Hour)
				require.Less(t, len(w.written()), 130, "one attempt a minute")
				require.Equal(t, []string{event}, w.told())
				require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
				require.Zero(t, gauge(t, p, "secretsync_behind_seconds"))

				w.edit("secret-sync", "db", with("more", ""))
				advance(time.Second)
				w.requireCopies("db", "ns-00")

				w.locked(func() { w.mutate = nil })
				advance(2 * time.Minute)
				require.Zero(t, gauge(t, p, "secretsync_refused"))
				w.requireCopies("db", "ns-00")
				w.written()
				w.told()
				advance(time.Hour)
				require.Empty(t, w.written(), "at rest")
				require.Empty(t, w.told())
				w.remove("secret-sync", "db")
				advance(time.Minute)
				require.Nil(t, w.get("ns-00", "db"))
				advance(2 * time.Minute) // it might have to be deleted again
				requireNoAttempts(t, p)

				w.locked(func() { w.mutate = mutate })
				w.share("db")
				advance(time.Hour)
				require.Equal(t, []string{event}, w.told(), "the next source of that name")
				w.remove("secret-sync", "db")
				advance(time.Minute)
				require.Nil(t, w.get("ns-00", "db"))
				advance(2 * time.Minute) // it might have to be deleted again
				requireNoAttempts(t, p)
			})
		})
	}
	t.Run("of creates only", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.addNamespaces(1)
			w.mutate = func(s *corev1.Secret) {
				if s.ResourceVersion == "" {
					s.ManagedFields = nil
				}
			}
			w.startController(0)
			w.share("db")
			advance(time.Hour)
			require.Equal(t, []string{"create ns-00/db", "update ns-00/db"}, w.written())
			require.Empty(t, w.told())
		})
	})
}

// B8, B9: in a namespace that is being deleted nothing is written, and the next one of its name gets its copies.
func TestTerminatingNamespaces(t *testing.T) {
	for _, lag := range []time.Duration{0, 10 * time.Second} { // with the lag, the API server has to refuse
		inWorld(t, func(t *testing.T, w *world) {
			w.addNamespaces(2)
			p := w.startController(lag)
			for before, source := range []string{"db", "web"} {
				advance(time.Minute)
				w.terminate("ns-00")
				w.share(source)
				advance(10 * time.Minute)
				w.requireCopies(source, "ns-01")
				require.LessOrEqual(t, len(w.written()), 2+before)
				require.Empty(t, w.told(), "that a namespace is deleted is no warning")
				require.Zero(t, gauge(t, p, "secretsync_behind_seconds"))
				w.removeNamespace("ns-00")
				advance(time.Minute)
				require.Empty(t, w.written())
				w.addNamespace("ns-00", true)
				advance(time.Minute)
				w.requireCopies("db", "ns-00", "ns-01")
				w.requireCopies(source, "ns-00", "ns-01")
				require.Len(t, w.written(), 1+before, "a create for each source")
			}
		})
	}
}

// B9: a namespace has been created again, and the API server that is asked to create a copy does not know yet.
func TestANamespaceThatIsBackSoonerThanTheAPIServerKnows(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.startController(0)
		w.share("db")
		for range 2 {
			advance(time.Minute)
			w.terminate("ns-00")
			w.removeNamespace("ns-00")
			advance(time.Minute)
			w.locked(func() { w.behind["ns-00"] = true })
			w.addNamespace("ns-00", true)
			advance(10 * time.Minute)
			w.requireCopies("db", "ns-00")
		}
	})
}

// B1: the sources of a name were gone when a reconcile looked, and may be back when it ends the watch of the name.
func TestReleaseLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var again []string
		scheme := metadatafake.NewTestScheme()
		require.NoError(t, metav1.AddMetaToScheme(scheme))
		namesake := &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns-00", Name: "db"},
		}
		n := newNamesakes(metadatafake.NewSimpleMetadataClient(scheme, namesake), Scope{SourceNamespace: "secret-sync"},
			func(cache.ObjectName) {}, func(name string) { again = append(again, name) })
		n.start(ctx)
		n.watch("db")
		time.Sleep(time.Second)
		require.Empty(t, again)
		n.release("db")
		require.Equal(t, []string{"db"}, again)
		n.release("db")
		require.Equal(t, []string{"db"}, again, "there is no watch any more")
		cancel()
		n.wait()
	})
}

// The controller writes a copy before it knows that the namespace is being deleted, or gone. Neither makes it fall behind.
func TestWritesInANamespaceThatIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(w *world)
		refused float64
	}{
		"being deleted": {func(w *world) { w.terminate("ns-00") }, 1},
		"gone":          {func(w *world) { w.terminate("ns-00"); w.removeNamespace("ns-00") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				p := w.startController(10 * time.Second)
				advance(time.Minute)
				w.share("db")
				advance(5 * time.Second)
				test.change(w)
				advance(7 * time.Second) // so the source is known, and what became of the namespace is not
				require.Len(t, w.written(), 1)
				require.Equal(t, test.refused, gauge(t, p, "secretsync_refused"))
				require.Equal(t, test.refused, gauge(t, p, "secretsync_copies"), "no state but that")
				require.Zero(t, gauge(t, p, "secretsync_behind_seconds"))
			})
		})
	}
}

// B11: two sources want the same copy.
func TestTwoSourcesForOneName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(2)
		w.share("older")
		w.edit("secret-sync", "older", annotated(NameAnnotation, "db"))
		advance(time.Second)
		w.share("db")
		w.startController(0)
		advance(time.Minute)
		require.Equal(t, []string{"create ns-00/db", "create ns-01/db"}, w.written())
		require.Equal(t, "older", w.get("ns-00", "db").Annotations[SourceAnnotation])
		require.Equal(t, []string{
			"db Warning NameTaken Not copied to ns-00/db: Secret ns-00/db is for a copy of older, which has priority for this name",
			"db Warning NameTaken Not copied to ns-01/db: Secret ns-01/db is for a copy of older, which has priority for this name",
		}, w.told())
		advance(time.Hour)
		require.Empty(t, w.written(), "at rest")
		w.remove("secret-sync", "older")
		advance(time.Minute)
		require.Equal(t, []string{"update ns-00/db", "update ns-01/db"}, w.written())
		w.requireCopies("db", names...)
	})
}

// B11: two sources want the same name, in which a namesake is in the way. When one no longer wants it, the other is told.
func TestTheOtherSourceOfANameIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.create("ns-00", "db")
		w.share("older")
		advance(time.Second)
		w.share("db", annotated(NameAnnotation, "none"))
		w.startController(0)
		advance(time.Minute)
		for range 2 {
			w.edit("secret-sync", "older", annotated(NameAnnotation, "db"))
			w.edit("secret-sync", "db", func(s *corev1.Secret) { delete(s.Annotations, NameAnnotation) })
			advance(15 * time.Minute) // or client-go counts the next Events as the ones before
			require.Equal(t, []string{
				"db Warning NameTaken Not copied to ns-00/db: Secret ns-00/db is for a copy of older, which has priority for this name",
				"older Warning NamesakeNotOurs Not copied to ns-00/db: Secret ns-00/db exists and was not created by this controller; delete or rename it",
			}, w.told())
			w.edit("secret-sync", "older", annotated(NameAnnotation, "other"))
			advance(15 * time.Minute)
			require.Equal(t, []string{
				"db Warning NamesakeNotOurs Not copied to ns-00/db: Secret ns-00/db exists and was not created by this controller; delete or rename it",
			}, w.told())
			require.NotNil(t, w.get("ns-00", "other"))
			w.edit("secret-sync", "db", annotated(NameAnnotation, "none"))
			advance(15 * time.Minute)
			w.told()
		}
	})
}

// B13 and the other sources that are not copied.
func TestRefusedSources(t *testing.T) {
	for name, test := range map[string]struct {
		source secretOption
		reason string
	}{
		"token":    {typed(corev1.SecretTypeServiceAccountToken), "TypeRefused"},
		"helm":     {typed("helm.sh/release.v1"), "TypeRefused"},
		"selector": {annotated(NamespacesAnnotation, "a in"), "InvalidAnnotation"},
		"keys":     {annotated(KeysAnnotation, "none"), "InvalidAnnotation"},
		"name":     {annotated(NameAnnotation, "A B"), "InvalidAnnotation"},
		"size":     {with("big", strings.Repeat("x", corev1.MaxSecretSize)), "TooLarge"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(3)
				w.startController(0)
				w.share("db", test.source)
				advance(time.Hour)
				w.requireCopies("db")
				require.Empty(t, w.written())
				told := w.told()
				require.Len(t, told, 1, "one Event, and not one for each namespace")
				require.Contains(t, told[0], "db Warning "+test.reason+" ")
			})
		})
	}
}

// Who corrects one mistake and makes another, or the same again, gets a second Event.
func TestAnotherMistake(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		w.startController(0)
		w.share("db", annotated(KeysAnnotation, "none"))
		advance(time.Minute)
		require.Len(t, w.told(), 1)
		for range 2 {
			w.edit("secret-sync", "db", annotated(KeysAnnotation, "nothing"))
			advance(time.Minute)
			told := w.told()
			require.Len(t, told, 1)
			require.Contains(t, told[0], `lists the key "nothing"`)
			w.edit("secret-sync", "db", func(s *corev1.Secret) { delete(s.Annotations, KeysAnnotation) })
			advance(15 * time.Minute) // or client-go counts the next Event as this one
			w.requireCopies("db", "ns-00", "ns-01")
		}
	})
}

// A mistake in an annotation does not delete copies that are in use.
func TestAMistakeKeepsCopies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(2)
		w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.written()
		for _, annotation := range []string{NamespacesAnnotation, KeysAnnotation, NameAnnotation} {
			w.edit("secret-sync", "db", annotated(annotation, "A in"))
			advance(time.Minute)
			require.Len(t, w.told(), 1)
			w.edit("secret-sync", "db", func(s *corev1.Secret) { delete(s.Annotations, annotation) })
			advance(time.Minute)
		}
		require.Empty(t, w.written())
		w.requireCopies("db", names...)
		w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "kubernetes.io/metadata.name=ns-01"))
		advance(time.Minute)
		require.Equal(t, []string{"delete ns-00/db"}, w.written())
		w.edit("secret-sync", "db", annotated(NamespacesAnnotation, ""))
		advance(time.Minute)
		require.Len(t, w.told(), 1)
		require.Empty(t, w.written(), "an empty value does not select all namespaces")
		w.edit("secret-sync", "db", annotated(NamespacesAnnotation, "kubernetes.io/metadata.name=ns-01"))
		w.edit("secret-sync", "db", with("user", "me"), annotated(KeysAnnotation, " user"))
		advance(time.Minute)
		require.Equal(t, []string{"update ns-01/db"}, w.written())
		require.Equal(t, map[string][]byte{"user": []byte(secretValue + "me")}, w.get("ns-01", "db").Data)
		w.edit("secret-sync", "db", annotated(NameAnnotation, "renamed"))
		advance(time.Minute)
		require.Equal(t, []string{"create ns-01/renamed", "delete ns-01/db"}, w.written())
	})
}

// Missing rights in one namespace do not keep the others waiting.
func TestForbiddenNamespaces(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(3)
		w.forbidden["ns-01"] = true
		p := w.startController(0)
		w.share("db")
		advance(time.Hour)
		w.requireCopies("db", "ns-00", "ns-02")
		require.Less(t, len(w.written()), 100, "with backoff")
		require.Equal(t, []string{"db Warning Forbidden Not copied to ns-01/db: the API server answered 403 Forbidden: the ServiceAccount may not create Secrets in namespace ns-01; a RoleBinding there can allow it"}, w.told())
		require.True(t, p.c.ready.Load())
		failures := regexp.MustCompile(`Failed, requeueing with backoff.* failures=(\d+)`).FindAllStringSubmatch(p.log.String(), 3)
		require.Len(t, failures, 3)
		for i, failure := range failures {
			require.Equal(t, strconv.Itoa(i+1), failure[1])
		}
		w.locked(func() { delete(w.forbidden, "ns-01") })
		advance(2 * time.Minute)
		w.requireCopies("db", "ns-00", "ns-01", "ns-02")

		// After a success, the backoff of the next failure begins anew.
		w.locked(func() { w.forbidden["ns-01"] = true })
		w.edit("secret-sync", "db", with("more", ""))
		advance(time.Millisecond)
		w.locked(func() { delete(w.forbidden, "ns-01") })
		w.written()
		advance(time.Second)
		require.Equal(t, []string{"update ns-01/db"}, w.written())

		// A copy that cannot be deleted is not created again: the create would take the copy for a namesake.
		w.locked(func() { w.forbidden["ns-01"] = true })
		w.remove("secret-sync", "db")
		w.share("db", typed("example.com/x"))
		advance(time.Minute)
		require.Contains(t, w.requests, "delete ns-01/db 403")
		require.NotContains(t, w.requests, "create ns-01/db 403")
		w.locked(func() { delete(w.forbidden, "ns-01") })
		advance(2 * time.Minute)
		w.requireCopies("db", "ns-00", "ns-01", "ns-02")
	})
}

// A 404 does not always say that the copy or its namespace is gone. For a minute, somebody else answers each write with it.
func TestNotFoundThatIsNotTrue(t *testing.T) {
	group := secretsResource.GroupResource()
	webhook := apierrors.NewNotFound(group, "db")
	webhook.ErrStatus.Message = `admission webhook "x" denied the request: there is no tenant ` + secretValue
	changes := map[string]func(w *world){
		"create": func(w *world) { w.share("web") },
		"update": func(w *world) { w.edit("secret-sync", "db", with("more", "")) },
		"delete": func(w *world) { w.remove("secret-sync", "db") },
	}
	for name, test := range map[string]struct {
		answer        error
		event         string
		refused, late bool // for a minute
	}{
		"webhook":       {webhook, "Rejected Not copied to ns-00/%s: the API server answered 404 Not Found: an admission webhook denies it", true, false},
		"load balancer": {apierrors.NewGenericServerResponse(404, "", group, "db", "no such page", 0, true), "", false, true},
		"API server":    {apierrors.NewNotFound(group, "db"), "", false, false},
	} {
		for verb, change := range changes {
			t.Run(name+" "+verb, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.addNamespaces(1)
					p := w.startController(0)
					w.share("db")
					advance(time.Minute)
					w.locked(func() { w.answer = func(string) error { return test.answer } })
					change(w)
					advance(time.Minute)
					require.Equal(t, test.refused && verb != "delete", gauge(t, p, "secretsync_refused") == 1)
					require.Equal(t, test.late || test.refused && verb == "delete", gauge(t, p, "secretsync_behind_seconds") > 30)
					w.locked(func() { w.answer = nil })
					advance(2 * time.Minute)
					switch verb {
					case "create":
						w.requireCopies("db", "ns-00")
						w.requireCopies("web", "ns-00")
					case "update":
						w.requireCopies("db", "ns-00")
					case "delete":
						w.requireCopies("db")
					}
					told := w.told()
					if test.event == "" || verb == "delete" { // an Event is about a source
						require.Empty(t, told)
					} else {
						source := map[string]string{"create": "web", "update": "db"}[verb]
						require.Equal(t, []string{source + " Warning " + fmt.Sprintf(test.event, source)}, told)
					}
					w.written()
					advance(time.Hour)
					require.Empty(t, w.written(), "at rest")
				})
			})
		}
	}
}

// A ResourceQuota allows no more Secrets in one namespace. The other copies are not affected, and the copy is made once there
// is room, even if the controller had to delete it first.
func TestQuotas(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		w.full["ns-00"] = true
		p := w.startController(0)
		const event = "db Warning Forbidden Not copied to ns-00/db: the API server answered 403 Forbidden: a ResourceQuota of namespace ns-00 is exceeded"
		w.share("db")
		for range 2 { // the second time, somebody has deleted the copy, and taken its room
			advance(time.Hour)
			w.requireCopies("db", "ns-01")
			require.Equal(t, []string{event}, w.told())
			require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
			require.Less(t, len(w.written()), 100, "with backoff")
			w.locked(func() { w.full["ns-00"] = false })
			advance(2 * time.Minute)
			w.requireCopies("db", "ns-00", "ns-01")
			require.Zero(t, gauge(t, p, "secretsync_refused"))
			w.locked(func() { w.full["ns-00"] = true })
			w.remove("ns-00", "db")
		}
		w.locked(func() { w.full["ns-00"] = false })
		advance(15 * time.Minute) // or client-go counts the next Event as the one before
		w.told()

		// The type of the source changes, and somebody takes the room between the delete and the create.
		w.onWrite = func(*process) { w.full["ns-00"] = true }
		w.remove("secret-sync", "db")
		w.share("db", typed("example.com/x"))
		advance(time.Hour)
		w.requireCopies("db", "ns-01")
		require.Equal(t, []string{event}, w.told())
		require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
		w.locked(func() { w.onWrite, w.full["ns-00"] = nil, false })
		advance(2 * time.Minute)
		w.requireCopies("db", "ns-00", "ns-01")
	})
}

// Somebody's finalizer keeps a copy that the controller has deleted. It waits, without a request, until the copy is gone.
func TestFinalizersOfOthersOnACopy(t *testing.T) {
	for name, after := range map[string][]secretOption{
		"the source is gone":   nil,
		"the type has changed": {typed("example.com/x")},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				p := w.startController(0)
				for range 2 {
					w.remove("secret-sync", "db")
					w.share("db")
					advance(time.Minute)
					w.edit("ns-00", "db", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} })
					advance(time.Minute)
					w.written()
					w.remove("secret-sync", "db")
					if after != nil {
						w.share("db", after...)
					}
					advance(time.Minute)
					require.NotNil(t, w.get("ns-00", "db").DeletionTimestamp)
					require.LessOrEqual(t, len(w.written()), 3)
					advance(time.Hour)
					require.Empty(t, w.written())
					require.Empty(t, p.c.ownWrites.last, "the controller has seen its own delete")
					if after != nil {
						require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
						require.Equal(t, []string{"db Warning CopyTerminating Not copied to ns-00/db: Secret ns-00/db is being deleted, and waits for finalizers: example.com/x"}, w.told())
					}
					w.edit("ns-00", "db", func(s *corev1.Secret) { s.Finalizers = nil })
					advance(time.Minute)
					require.Zero(t, gauge(t, p, "secretsync_refused"))
					if after == nil {
						require.Nil(t, w.get("ns-00", "db"))
					} else {
						w.requireCopies("db", "ns-00")
					}
				}
			})
		})
	}
}

// B14: a source that is deleted in the middle of its fan-out is copied no further, and its copies go.
func TestASourceIsDeletedDuringItsFanOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(90)
		w.options.QPS, w.options.Burst = 10, 1
		w.startController(0)
		w.share("db")
		advance(time.Second)
		w.share("web")
		advance(time.Second)
		before := w.written()
		require.Less(t, len(before), 30)
		w.remove("secret-sync", "db")
		advance(0)
		var order []string
		w.locked(func() { w.requests = nil })
		advance(3 * time.Second)
		w.locked(func() { order = slices.Clone(w.requests) })
		copies := len(slices.DeleteFunc(before, func(request string) bool { return !strings.HasSuffix(request, "/db") }))
		require.NotZero(t, copies)
		deletes := 0
		for i, request := range order {
			require.False(t, strings.HasPrefix(request, "create") && strings.HasSuffix(request, "/db"), "%s: its source is gone", request)
			if strings.HasPrefix(request, "delete") {
				deletes++
				require.Less(t, i, copies+w.options.Workers, "deletes go first")
			}
		}
		require.Equal(t, copies, deletes, "the creates of the other source are still waiting")
		advance(time.Minute)
		w.requireCopies("db")
	})
}

// What is to be updated waits as well as what is to be created.
func TestDeletesGoBeforeUpdates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(30)
		w.options.QPS, w.options.Burst = 1, 1
		w.startController(0)
		w.share("db")
		w.share("web")
		advance(5 * time.Minute)
		w.requireCopies("db", names...)
		w.edit("secret-sync", "web", with("password", "new"))
		advance(time.Second)
		w.remove("secret-sync", "db")
		w.written()
		advance(time.Duration(len(names)+w.options.Workers) * time.Second)
		w.requireCopies("db")
		updates := slices.DeleteFunc(w.written(), func(request string) bool { return !strings.HasPrefix(request, "update") })
		require.LessOrEqual(t, len(updates), w.options.Workers, "those that workers had begun")
	})
}

// After a restart, all copies are compared once. Those that are right wait for no other, however few writes a second there
// may be.
func TestTheLimitIsOneOfWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(100)
		w.options.QPS, w.options.Burst = 1, 1
		p := w.startController(0)
		w.share("db")
		advance(5 * time.Minute)
		w.requireCopies("db", names...)
		p.stop()
		w.startController(0)
		advance(0)
		w.remove("ns-50", "db")
		advance(5 * time.Second)
		w.requireCopies("db", names...)
	})
}

// A copy that is created again takes two writes, and the limit counts both.
func TestTheLimitCountsEachWrite(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(40)
		w.share("db", immutable)
		p := w.startController(0)
		advance(time.Minute)
		p.stop()
		w.requireCopies("db", names...)
		w.remove("secret-sync", "db")
		w.share("db", immutable, with("password", "2"))
		w.written()
		w.options.QPS, w.options.Burst = 1, 1
		w.startController(0)
		advance(20*time.Second + time.Millisecond)
		writes := len(w.written())
		require.LessOrEqual(t, writes, 21)
		require.GreaterOrEqual(t, writes, 20-2*w.options.Workers)
		advance(2 * time.Minute)
		w.requireCopies("db", names...)
	})
}

// B18: of many changes, the last one wins everywhere. B19: no update of a source that is gone.
func TestManyChanges(t *testing.T) {
	for _, lag := range []time.Duration{0, 300 * time.Millisecond} {
		inWorld(t, func(t *testing.T, w *world) {
			names := w.addNamespaces(50)
			w.startController(lag)
			w.share("db")
			advance(time.Minute)
			w.written()
			for i := range 5 {
				w.edit("secret-sync", "db", with("version", fmt.Sprint(i)))
				advance(100 * time.Millisecond)
			}
			advance(5 * time.Second)
			w.requireCopies("db", names...)
			for _, request := range w.written() {
				require.NotContains(t, request, " 409", "it waits for its own writes")
			}
			advance(time.Hour)
			require.Empty(t, w.written(), "at rest")
		})
	}
}

// An answer that is lost does not lead to a second copy or to a wait without end.
func TestLostAnswers(t *testing.T) {
	for _, lag := range []time.Duration{0, 5 * time.Second} {
		inWorld(t, func(t *testing.T, w *world) {
			names := w.addNamespaces(3)
			p := w.startController(lag)
			advance(time.Minute)
			w.lost = 3
			w.share("db")
			advance(time.Minute)
			w.requireCopies("db", names...)
			require.Empty(t, p.c.namesakes.watches, "its own copies were in the way of its creates, and no namesake")
			w.lost = 3
			w.edit("secret-sync", "db", with("more", ""))
			advance(time.Minute)
			w.requireCopies("db", names...)
			w.lost = 3
			w.remove("secret-sync", "db")
			advance(time.Minute)
			w.requireCopies("db")
			w.written()
			advance(time.Hour)
			require.Empty(t, w.written(), "at rest")
		})
	}
}

// B17: after whichever write the controller is killed, the end is the same.
func TestSurvivesKills(t *testing.T) {
	count := 0
	play := func(t *testing.T, kill int) {
		inWorld(t, func(t *testing.T, w *world) {
			names := w.addNamespaces(3)
			w.create("ns-01", "web")
			writes := 0
			w.onWrite = func(p *process) {
				if writes++; writes == kill {
					p.dead = true
					p.cancel()
					time.AfterFunc(time.Second, func() { w.startController(0) })
				}
			}
			w.startController(0)
			w.share("db")
			w.share("web")
			advance(time.Minute)
			w.edit("secret-sync", "db", with("more", ""))
			w.edit("ns-00", "web", with("password", "other"))
			advance(time.Minute)
			w.remove("secret-sync", "db")
			w.share("db", typed("example.com/x"))
			advance(time.Minute)
			w.remove("secret-sync", "web")
			w.editNamespace("ns-02", func(namespace *corev1.Namespace) { delete(namespace.Labels, CopiesLabel) })
			advance(time.Minute)
			w.requireCopies("db", names[:2]...)
			w.requireCopies("web")
			require.NotNil(t, w.get("ns-01", "web"))
			count = writes
			w.written()
			advance(time.Hour)
			require.Empty(t, w.written(), "at rest")
		})
	}
	play(t, 0)
	undisturbed := count
	require.NotZero(t, undisturbed)
	for kill := 1; kill <= undisturbed; kill++ {
		t.Run(fmt.Sprint("after write ", kill), func(t *testing.T) { play(t, kill) })
	}
}

// A watch that is late must not make the controller repeat its own writes.
func TestReadsItsOwnWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(5)
		w.startController(5 * time.Second)
		advance(time.Minute)
		w.share("db")
		advance(5200 * time.Millisecond)
		require.Len(t, w.written(), 5)
		w.editNamespace("ns-00", func(namespace *corev1.Namespace) { namespace.Labels["a"] = "b" }) // adds the key again
		advance(time.Minute)
		require.Empty(t, w.written())
		w.requireCopies("db", names...)
	})
}

// A copy that is deleted while the watch of copies is down, before it was ever seen, is created again.
func TestACopyThatWasNeverSeen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		w.startController(0)
		advance(time.Second) // all watches are open
		// The watch would deliver both changes. One that starts again lists, and sees neither.
		w.onRequest = func(string) { w.deaf = CopyLabel }
		w.onWrite = func(*process) {
			w.set(secretsResource, cache.NewObjectName("ns-00", "db"), nil)
			w.deaf, w.onRequest, w.onWrite = "", nil, nil
		}
		w.share("db")
		advance(10 * time.Minute)
		require.Equal(t, []string{"create ns-00/db"}, w.written())
		// The world sends no bookmarks, so the cache gets past the lost events with the next event only.
		w.share("other")
		advance(10 * time.Minute)
		w.requireCopies("db", "ns-00")
	})
}

// Two controllers both believe that they lead.
func TestTwoControllers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(10)
		w.startController(0)
		w.startController(time.Second)
		w.share("db")
		advance(time.Minute)
		w.requireCopies("db", names...)
		w.edit("secret-sync", "db", with("more", ""))
		advance(time.Minute)
		w.requireCopies("db", names...)
		w.written()
		advance(time.Hour)
		require.Empty(t, w.written(), "at rest")
	})
}

func TestMetrics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		w.create("ns-00", "db")
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		require.NoError(t, testutil.CollectAndCompare(p.c.Metrics(), strings.NewReader(`
# HELP secretsync_behind_seconds Age of the oldest change that has not reached a copy yet, in seconds; 0 if there is none. Refused copies do not count.
# TYPE secretsync_behind_seconds gauge
secretsync_behind_seconds 0
# HELP secretsync_copies Number of copies that exist or should, by state.
# TYPE secretsync_copies gauge
secretsync_copies{state="current"} 1
secretsync_copies{state="pending"} 0
secretsync_copies{state="refused"} 1
# HELP secretsync_refused Number of copies that should exist but cannot, by reason.
# TYPE secretsync_refused gauge
secretsync_refused{reason="NamesakeNotOurs"} 1
`), "secretsync_behind_seconds", "secretsync_copies", "secretsync_refused"))
		for range 2 {
			w.setDown(true)
			w.edit("secret-sync", "db", with("more", ""))
			advance(30 * time.Second)
			require.Equal(t, 30.0, gauge(t, p, "secretsync_behind_seconds"))
			w.edit("secret-sync", "db", with("more", "still more"))
			advance(30 * time.Second)
			require.Equal(t, 60.0, gauge(t, p, "secretsync_behind_seconds"), "the first change has not arrived yet")
			w.setDown(false)
			advance(10 * time.Minute)
			require.Zero(t, gauge(t, p, "secretsync_behind_seconds"))
			w.edit("secret-sync", "db", with("more", "and more")) // or the second time would leave the copy as it is
			advance(time.Second)
		}
		w.remove("secret-sync", "db")
		advance(time.Minute)
		require.NoError(t, testutil.CollectAndCompare(p.c.Metrics(), strings.NewReader(`
# HELP secretsync_copies Number of copies that exist or should, by state.
# TYPE secretsync_copies gauge
secretsync_copies{state="current"} 0
secretsync_copies{state="pending"} 0
secretsync_copies{state="refused"} 0
# HELP secretsync_refusals_total Number of new refusals of copies, by reason.
# TYPE secretsync_refusals_total counter
secretsync_refusals_total{reason="NamesakeNotOurs"} 1
# HELP secretsync_writes_total Number of successful writes, by action.
# TYPE secretsync_writes_total counter
secretsync_writes_total{action="create"} 1
secretsync_writes_total{action="delete"} 1
secretsync_writes_total{action="update"} 4
`), "secretsync_copies", "secretsync_refused", "secretsync_refusals_total", "secretsync_writes_total"))
		require.Contains(t, metricsOf(t, p.c), "sample_count:6", "each write has a lag")
	})
}

// What no longer has a reason to be refused is no longer counted, whichever change it was that removed the reason. The watch
// of a name ends when no source has it, or no namesake.
func TestRefusalsEnd(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the source is renamed": func(w *world) { w.edit("secret-sync", "db", annotated(NameAnnotation, "other")) },
		"the source is deleted": func(w *world) { w.remove("secret-sync", "db") },
		"the source is deleted, and no watch reports it": func(w *world) {
			w.missed(func() { w.remove("secret-sync", "db") })
		},
		"the source is not shared": func(w *world) { w.edit("secret-sync", "db", func(s *corev1.Secret) { s.Labels = nil }) },
		"the namespace is not selected": func(w *world) {
			w.editNamespace("ns-00", func(n *corev1.Namespace) { delete(n.Labels, CopiesLabel) })
		},
		"the namespace is deleted": func(w *world) { w.terminate("ns-00"); w.removeNamespace("ns-00") },
		"the namespace is deleted, and no watch reports it": func(w *world) {
			w.missed(func() { w.terminate("ns-00"); w.removeNamespace("ns-00") })
		},
		"the namesake is deleted": func(w *world) { w.remove("ns-00", "db") },
		"the namesake is deleted, and no watch reports it": func(w *world) {
			w.missed(func() { w.remove("ns-00", "db") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(2)
				w.create("ns-00", "db")
				p := w.startController(0)
				w.share("db")
				advance(time.Minute)
				require.Equal(t, 1.0, gauge(t, p, "secretsync_refused"))
				change(w)
				advance(10 * time.Minute)
				require.Zero(t, gauge(t, p, "secretsync_refused"))
				if p.c.sourcesOf("db", nil) == nil || w.get("ns-00", "db") == nil {
					require.Empty(t, p.c.namesakes.watches)
				}
			})
		})
	}
}

// Namesakes that are all deleted at once make way for copies, though the watch of their name ends at the first that is seen.
func TestManyNamesakesAreDeleted(t *testing.T) {
	for name, change := range map[string]func(w *world, change func()){
		"while a watch reports it":  func(_ *world, change func()) { change() },
		"while no watch reports it": func(w *world, change func()) { w.missed(change) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				names := w.addNamespaces(50)
				for _, namespace := range names {
					w.create(namespace, "db")
				}
				p := w.startController(0)
				w.share("db")
				advance(time.Minute)
				require.Equal(t, 50.0, gauge(t, p, "secretsync_refused"))
				for _, gone := range [][]string{names[:10], names[10:]} {
					change(w, func() {
						for _, namespace := range gone {
							w.remove(namespace, "db")
						}
					})
					advance(time.Minute)
					w.requireCopies("db", names[:slices.Index(names, gone[len(gone)-1])+1]...)
				}
				require.Zero(t, gauge(t, p, "secretsync_refused"))
			})
		})
	}
}

// A name is watched once, also if several workers find at the same time that a Secret of that name exists.
func TestANameIsWatchedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		watches := func() (n int) {
			w.locked(func() {
				for one := range w.watchers {
					if _, named := one.restrict.Fields.RequiresExactMatch(metav1.ObjectNameField); named {
						n++
					}
				}
			})
			return n
		}
		names := w.addNamespaces(3)
		for _, namespace := range names {
			w.create(namespace, "db")
		}
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		p.c.namesakes.watch("db")
		advance(time.Second)
		require.Equal(t, 1, watches())
		for _, namespace := range names {
			w.remove(namespace, "db")
		}
		advance(time.Minute)
		require.Zero(t, watches())
		w.requireCopies("db", names...)
	})
}

// client-go may report the deletion of a source without any version of it, so nobody knows which name is free now.
func TestAnUnknownSourceIsDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(1)
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		p.c.stopping.Store(true) // so keys wait in the queue
		p.c.enqueueDeletedSource(coreinformers.DeletedSecret{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "secret-sync/other"}})
		require.False(t, p.c.pending.since(cache.NewObjectName("ns-00", "db")).IsZero())
	})
}

// Kubernetes itself writes to namespaces. Only what decides about copies makes the controller look at them.
func TestOnlySomeChangesOfANamespaceMatter(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*corev1.Namespace)
		matters bool
	}{
		"an annotation": {func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} }, false},
		"a label":       {func(n *corev1.Namespace) { n.Labels["a"] = "b" }, true},
		"deletion":      {func(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.Now()) }, true},
		"another one":   {func(n *corev1.Namespace) { n.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				p := w.startController(0)
				w.share("db")
				advance(time.Minute)
				p.c.stopping.Store(true) // so keys wait in the queue
				w.editNamespace("ns-00", test.change)
				advance(time.Second)
				require.Equal(t, test.matters, !p.c.pending.since(cache.NewObjectName("ns-00", "db")).IsZero())
			})
		})
	}
}

// The source of a copy whose label somebody has removed is deleted before the controller knows what is in the way.
func TestALostLabelAndALostSource(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.locked(func() { w.unlisted = "metadata.name=db" })
		w.edit("ns-00", "db", func(s *corev1.Secret) { s.Labels = nil })
		advance(time.Second)
		w.remove("secret-sync", "db")
		advance(time.Second)
		w.locked(func() { w.unlisted = "" })
		advance(time.Minute)
		require.Nil(t, w.get("ns-00", "db"))
		require.Nil(t, w.get("ns-01", "db"))
		require.Empty(t, p.c.namesakes.watches)
	})
}

// The same, but the API server refuses to repair the copy and to delete it for a while.
func TestALostLabelAndALostSourceWithoutRights(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(2)
		p := w.startController(0)
		w.share("db")
		advance(time.Minute)
		w.onRequest = func(request string) {
			if request == "update ns-00/db" {
				w.forbidden["ns-00"] = true
			}
		}
		w.edit("ns-00", "db", func(s *corev1.Secret) { s.Labels = nil })
		advance(time.Second)
		w.remove("secret-sync", "db")
		advance(time.Minute)
		require.Nil(t, w.get("ns-01", "db"))
		require.NotNil(t, w.get("ns-00", "db"))
		w.locked(func() { delete(w.forbidden, "ns-00") })
		advance(2 * time.Minute)
		require.Nil(t, w.get("ns-00", "db"))
		require.Empty(t, p.c.namesakes.watches)
	})
}

// Changes that no watch reports are found when the watches start again.
func TestMissedChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := w.addNamespaces(3)
		w.startController(0)
		w.share("db")
		w.share("web")
		advance(time.Minute)
		w.written()
		w.missed(func() {
			w.remove("secret-sync", "db")
			w.remove("ns-00", "web")
			w.edit("ns-01", "web", with("more", ""))
			w.removeNamespace("secret-sync") // its Secrets may be deleted later
		})
		advance(time.Minute)
		w.requireCopies("db")
		w.requireCopies("web", names...)
		require.Equal(t, []string{"create ns-00/web", "delete ns-00/db", "delete ns-01/db", "delete ns-02/db", "update ns-01/web"}, w.written())
	})
}

// When it is stopped, a write that has begun may end within the grace period, and no other begins.
func TestStops(t *testing.T) {
	for _, test := range []struct {
		name   string
		qps    float32
		writes int
	}{
		{"within the grace period", 1, 2}, // the second write waits for its turn when the controller is stopped
		{"after the grace period", 0.01, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(10)
				w.options.Workers, w.options.QPS, w.options.Burst = 1, test.qps, 1
				p := w.startController(0)
				w.share("db")
				advance(100 * time.Millisecond)
				p.cancel()
				synctest.Wait()
				answer := httptest.NewRecorder()
				p.c.Readyz(answer, nil)
				require.Equal(t, 503, answer.Code)
				advance(w.options.Grace + time.Second)
				select {
				case <-p.done:
				default:
					require.Fail(t, "it has not ended")
				}
				require.Len(t, w.written(), test.writes)
			})
		})
	}
}

// Readiness shows when a watch last delivered an event.
func TestReadyzShowsTheLastEvent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.startController(0)
		readyz := func() string {
			answer := httptest.NewRecorder()
			p.c.Readyz(answer, nil)
			return answer.Body.String()
		}
		advance(time.Hour)
		require.Equal(t, "ok; last event 1h0m0s ago\n", readyz(), "the list of namespaces")
		w.addNamespace("other", false)
		advance(time.Minute)
		require.Equal(t, "ok; last event 1m0s ago\n", readyz(), "no copy is affected")
		w.share("db")
		advance(time.Second)
		w.addNamespace("ns-00", true)
		advance(time.Minute)
		require.Equal(t, "ok; last event 1m0s ago\n", readyz())
		w.edit("ns-00", "db", annotated("a", "b"))
		advance(time.Second)
		require.Equal(t, "ok; last event 1s ago\n", readyz())
	})
}

// A plan made before the controller starts says what the controller writes then.
func TestThePlanIsWhatTheControllerDoes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addNamespaces(9)
		p := w.startController(0)
		for _, name := range []string{"db", "web", "gone", "kept"} {
			w.share(name)
		}
		advance(time.Minute)
		p.stop()
		w.written()
		w.told()
		w.edit("ns-01", "db", with("password", "edited"))
		w.edit("ns-02", "db", func(s *corev1.Secret) { s.Labels = nil })
		w.remove("ns-03", "db")
		w.remove("ns-04", "db")
		w.create("ns-04", "db")
		w.terminate("ns-05")
		w.editNamespace("ns-06", func(n *corev1.Namespace) { delete(n.Labels, CopiesLabel) })
		w.edit("ns-07", "db", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} })
		w.remove("ns-07", "db")
		w.remove("secret-sync", "web")
		w.share("web", typed("example.com/x"))
		w.edit("secret-sync", "gone", func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} })
		w.remove("secret-sync", "gone")
		w.edit("secret-sync", "kept", annotated(KeysAnnotation, "none"))
		w.share("token", typed(corev1.SecretTypeServiceAccountToken))

		plan, sources, err := Plan(t.Context(), p, p.metadata, w.options.Scope)
		require.NoError(t, err)
		require.Empty(t, w.written(), "a plan writes nothing")
		var planned, refused []string
		for _, one := range plan {
			switch one.Action {
			case None:
			case Recreate:
				planned = append(planned, "delete "+one.Key.String(), "create "+one.Key.String())
			default:
				planned = append(planned, string(one.Action)+" "+one.Key.String())
			}
			for _, refusal := range one.Refusals {
				refused = append(refused, string(refusal.Reason))
			}
		}
		slices.Sort(planned)
		again := w.startController(0)
		advance(time.Minute)
		written := slices.DeleteFunc(w.written(), func(request string) bool { return strings.HasSuffix(request, " 409") }) // how it finds a namesake
		require.Equal(t, written, planned)
		require.Equal(t, float64(len(refused)), gauge(t, again, "secretsync_refused"))
		byName := map[string]Status{}
		for _, status := range Summarize(plan, sources) {
			byName[status.Source] = status
		}
		require.Len(t, byName, 4)
		require.Equal(t, 8, byName["db"].Wanted)
		require.Equal(t, 2, byName["db"].Current, "ns-00 and ns-08; the copy in ns-07 is being deleted")
	})
}

// metricsOf returns all metrics of a controller.
func metricsOf(t *testing.T, c *Controller) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	return fmt.Sprint(families)
}

// gauge returns the sum of the values of a metric.
func gauge(t *testing.T, p *process, name string) (sum float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(p.c.Metrics()))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				sum += metric.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// B20: a user puts a Secret in the place of the copy between the decision and the write.
func TestTheCopyIsReplacedMeanwhile(t *testing.T) {
	for verb, change := range map[string]func(w *world){
		"delete": func(w *world) { w.remove("secret-sync", "db") },
		"update": func(w *world) { w.edit("secret-sync", "db", with("more", "")) },
	} {
		t.Run(verb, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				w.startController(0)
				w.share("db")
				advance(time.Minute)
				w.onRequest = func(request string) {
					require.Equal(t, verb+" ns-00/db", request)
					w.onRequest = nil
					w.users["user-new"] = true
					w.set(secretsResource, cache.NewObjectName("ns-00", "db"), &corev1.Secret{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns-00", Name: "db", UID: "user-new"}, Type: corev1.SecretTypeOpaque, // an update cannot change it
					})
				}
				change(w)
				advance(time.Minute)
				require.Nil(t, w.onRequest)
				require.NotNil(t, w.get("ns-00", "db"))
				require.Equal(t, "user-new", string(w.get("ns-00", "db").UID))
				require.Empty(t, w.get("ns-00", "db").Labels)
				require.Empty(t, w.get("ns-00", "db").Data)
			})
		})
	}
}

// A copy may change after the controller has decided. That is no failure, so the log does not call it one.
func TestConflictsAreNotLoggedAsErrors(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the copy was changed": func(w *world) {
			w.edit("ns-00", "db", with("password", "other"))
			advance(4 * time.Second)
			w.edit("ns-00", "db", with("password", "another"))
		},
		"a Secret has the copy's name": func(w *world) {
			w.addNamespace("ns-01", true)
			advance(4 * time.Second)
			w.create("ns-01", "db")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.addNamespaces(1)
				w.share("db")
				p := w.startController(5 * time.Second)
				advance(time.Minute)
				w.written()
				change(w)
				advance(time.Minute)
				require.Contains(t, strings.Join(w.written(), "\n"), " 409")
				require.Contains(t, p.log.String(), `Writing copy="ns-00/db" action="create" why="there is no copy"`)
				require.Contains(t, p.log.String(), "Conflict, requeueing with backoff")
				require.NotContains(t, p.log.String(), "Failed, requeueing with backoff")
			})
		})
	}
}

func TestSaysAtTheStartIfThereIsNoSourceNamespace(t *testing.T) {
	for _, exists := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			if !exists {
				w.removeNamespace("secret-sync")
			}
			p := w.startController(0)
			advance(time.Minute)
			require.Equal(t, !exists, strings.Contains(p.log.String(), "The source namespace does not exist"))
		})
	}
}
