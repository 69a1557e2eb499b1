package secretsync

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

var (
	testScope = Scope{SourceNamespace: "secret-sync", Namespaces: labels.SelectorFromSet(labels.Set{CopiesLabel: "true"})}
	testKey   = cache.NewObjectName("shop", "db")
	monday    = time.Date(2024, 11, 18, 9, 0, 0, 0, time.UTC)
)

// testSource returns a source of testKey.
func testSource(name string, options ...secretOption) *Source {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "secret-sync", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(monday),
			Annotations: map[string]string{NameAnnotation: testKey.Name}},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{"user": []byte("me"), "password": []byte(secretValue)},
	}
	for _, option := range options {
		option(secret)
	}
	return ParseSource(secret)
}

func olderBy(age time.Duration) secretOption {
	return func(secret *corev1.Secret) { secret.CreationTimestamp = metav1.NewTime(monday.Add(-age)) }
}

// testCopy returns the metadata of the copy that the controller makes of a source.
func testCopy(source *Source, changes ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	secret := testScope.desired(testKey, source, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "copy", ResourceVersion: "1"}})
	one := &metav1.PartialObjectMetadata{ObjectMeta: secret.ObjectMeta}
	for _, change := range changes {
		change(one)
	}
	return one
}

// wroteBy adds an entry to the managedFields.
func wroteBy(manager, fieldsV1 string) func(*metav1.PartialObjectMetadata) {
	return func(one *metav1.PartialObjectMetadata) {
		one.ManagedFields = append(one.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", FieldsV1: metav1.NewFieldsV1(fieldsV1)})
	}
}

// no longer ours are fields of the last entry that is ours.
func notOurs(field string) func(*metav1.PartialObjectMetadata) {
	return func(one *metav1.PartialObjectMetadata) {
		entry := &one.ManagedFields[len(one.ManagedFields)-1]
		entry.FieldsV1 = metav1.NewFieldsV1(strings.ReplaceAll(strings.ReplaceAll(entry.FieldsV1.GetRawString(), `,"`+field+`":{}`, ""), `"`+field+`":{},`, ""))
	}
}

func testNamespace(change ...func(*metav1.PartialObjectMetadata)) *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{CopiesLabel: "true", "team": "web"}}}
	for _, one := range change {
		one(namespace)
	}
	return namespace
}

func terminating(one *metav1.PartialObjectMetadata) {
	one.DeletionTimestamp = new(metav1.NewTime(monday))
}
func unlabelled(one *metav1.PartialObjectMetadata)  { one.Labels = nil }
func unannotated(one *metav1.PartialObjectMetadata) { one.Annotations = nil }
func untracked(one *metav1.PartialObjectMetadata)   { one.ManagedFields = nil }

func unannotatedBut(kept string) func(*metav1.PartialObjectMetadata) {
	return func(one *metav1.PartialObjectMetadata) {
		one.Annotations = map[string]string{kept: one.Annotations[kept]}
	}
}

func TestDecide(t *testing.T) {
	db := testSource("db")
	foreign := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: "foreign"}}
	tls := func(options ...secretOption) *Source {
		return testSource("db", append([]secretOption{typed(corev1.SecretTypeTLS), immutable, with("tls.crt", "c"), with("tls.key", "k")}, options...)...)
	}
	owned := func(options ...secretOption) *Source {
		return testSource("db", append([]secretOption{labelled("owner", "us"), annotated("doc", "x"), annotated(LabelsAnnotation, "owner"), annotated(AnnotationsAnnotation, "doc")}, options...)...)
	}
	for _, test := range []struct {
		name      string
		namespace *metav1.PartialObjectMetadata
		sources   []*Source
		current   *metav1.PartialObjectMetadata
		action    Action
		source    string // of the copy; "" for none
		refused   string // "name Reason" of each refusal
	}{
		{name: "nothing", namespace: testNamespace()},
		{name: "no copy yet", namespace: testNamespace(), sources: []*Source{db}, action: Create, source: "db"},
		{name: "up to date", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db), source: "db"},
		{name: "source has changed", namespace: testNamespace(), sources: []*Source{testSource("db", with("password", "2"))}, current: testCopy(db), action: Update, source: "db"},
		{name: "source has gone", namespace: testNamespace(), current: testCopy(db), action: Delete},
		{name: "source is another one", namespace: testNamespace(), sources: []*Source{testSource("db2")}, current: testCopy(db), action: Update, source: "db2"},
		{name: "source has been recreated", namespace: testNamespace(), sources: []*Source{testSource("db", func(s *corev1.Secret) { s.UID = "new" })}, current: testCopy(db), action: Update, source: "db"},
		{name: "source has another name for its copies", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(NameAnnotation, "x"))}, current: testCopy(db), action: Delete},

		{name: "namespace is not selected", namespace: testNamespace(unlabelled), sources: []*Source{db}},
		{name: "namespace is no longer selected", namespace: testNamespace(unlabelled), sources: []*Source{db}, current: testCopy(db), action: Delete},
		{name: "namespace is the source namespace", namespace: testNamespace(func(n *metav1.PartialObjectMetadata) { n.Name = "secret-sync" }), sources: []*Source{db}},
		{name: "namespace is selected by the source", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(NamespacesAnnotation, "team=web"))}, action: Create, source: "db"},
		{name: "namespace is not selected by the source", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(NamespacesAnnotation, "team!=web"))}, current: testCopy(db), action: Delete},
		{name: "namespace is unknown", sources: []*Source{db}},
		{name: "namespace is unknown, and has a copy", sources: []*Source{db}, current: testCopy(db)},
		{name: "namespace is terminating", namespace: testNamespace(terminating), sources: []*Source{db}, source: "db", refused: "db NamespaceTerminating"},
		{name: "namespace is terminating, and has an orphan", namespace: testNamespace(terminating), current: testCopy(db), action: Delete},
		{name: "namespace is terminating, and has the copy", namespace: testNamespace(terminating), sources: []*Source{db}, current: testCopy(db), source: "db"},
		{name: "namespace is terminating, and the source has changed", namespace: testNamespace(terminating), sources: []*Source{testSource("db", with("password", "2"))}, current: testCopy(db), action: Update, source: "db"},
		{name: "namespace is terminating, and the type has changed", namespace: testNamespace(terminating), sources: []*Source{testSource("db", typed("x"))}, current: testCopy(db), source: "db", refused: "db NamespaceTerminating"},
		{name: "namespace is terminating, and has a namesake", namespace: testNamespace(terminating), sources: []*Source{db}, current: foreign, source: "db", refused: "db NamespaceTerminating"},
		{name: "namespace is terminating, and has a namesake that nobody wants", namespace: testNamespace(terminating), current: foreign},
		{name: "namespace is terminating, and so is the copy", namespace: testNamespace(terminating), current: testCopy(db, terminating)},
		{name: "namespace is terminating, and the source has a mistake", namespace: testNamespace(terminating), sources: []*Source{testSource("db", annotated(KeysAnnotation, "none"))}, current: testCopy(db), refused: "db InvalidAnnotation"},

		{name: "namesake", namespace: testNamespace(), sources: []*Source{db}, current: foreign, source: "db", refused: "db NamesakeNotOurs"},
		{name: "namesake that nobody wants", namespace: testNamespace(), current: foreign},
		{name: "namesake with our label", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, unannotated, untracked), source: "db", refused: "db NamesakeNotOurs"},
		{name: "namesake with our annotations", namespace: testNamespace(), current: testCopy(db, unlabelled, untracked)},
		{name: "copy of another controller", namespace: testNamespace(), current: testCopy(db, func(c *metav1.PartialObjectMetadata) { c.Labels[CopyLabel] = "other" })},
		{name: "copy of a copy", namespace: testNamespace(), current: testCopy(db, untracked, func(c *metav1.PartialObjectMetadata) { c.Annotations[CopiedToAnnotation] = "web/db" })},

		{name: "label removed", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, unlabelled, notOurs("f:"+CopyLabel)), action: Update, source: "db"},
		{name: "label removed, and the source has gone", namespace: testNamespace(), current: testCopy(db, unlabelled), action: Delete},
		{name: "address removed", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, unannotatedBut(SourceAnnotation)), action: Update, source: "db"},
		{name: "restored from a backup", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, untracked), action: Update, source: "db"},
		{name: "edited", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, notOurs("f:user"), wroteBy("kubectl", `{"f:data":{"f:user":{}}}`)), action: Update, source: "db"},
		{name: "key added", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, wroteBy("kubectl", `{"f:data":{"f:more":{}}}`)), action: Update, source: "db"},
		{name: "key removed", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, notOurs("f:user")), action: Update, source: "db"},
		{name: "written again by another manager", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, untracked, wroteBy("kubectl", db.fields)), action: Update, source: "db"},
		{name: "a record without fields", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, func(c *metav1.PartialObjectMetadata) {
			c.ManagedFields = slices.Insert(c.ManagedFields, 0, metav1.ManagedFieldsEntry{Manager: "kubectl"})
		}), source: "db"},
		{name: "applied with the same value", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, wroteBy("kubectl", `{"f:data":{"f:user":{}}}`)), source: "db"},
		{name: "label of another manager", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, wroteBy("kubectl", `{"f:metadata":{"f:labels":{"f:a":{}}}}`)), source: "db"},
		{name: "is being deleted", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, terminating), source: "db", refused: "db CopyTerminating"},
		{name: "is being deleted, and the source has gone", namespace: testNamespace(), current: testCopy(db, terminating)},

		{name: "asks for a label", namespace: testNamespace(), sources: []*Source{owned()}, current: testCopy(db), action: Update, source: "db"},
		{name: "has the label", namespace: testNamespace(), sources: []*Source{owned()}, current: testCopy(owned()), source: "db"},
		{name: "no longer asks for the label", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(owned()), action: Update, source: "db"},
		{name: "the label has changed", namespace: testNamespace(), sources: []*Source{owned(labelled("owner", "them"))}, current: testCopy(owned()), action: Update, source: "db"},
		{name: "the label of the copy was edited", namespace: testNamespace(), sources: []*Source{owned()}, current: testCopy(owned(), func(c *metav1.PartialObjectMetadata) { c.Labels["owner"] = "" }), action: Update, source: "db"},
		{name: "the annotation of the copy was removed", namespace: testNamespace(), sources: []*Source{owned()}, current: testCopy(owned(), func(c *metav1.PartialObjectMetadata) { delete(c.Annotations, "doc") }), action: Update, source: "db"},
		{name: "immutable, the label has changed", namespace: testNamespace(), sources: []*Source{owned(immutable, labelled("owner", "them"))}, current: testCopy(owned(immutable)), action: Update, source: "db"},
		{name: "asks for a label that it does not have", namespace: testNamespace(), sources: []*Source{owned(annotated(LabelsAnnotation, "none"))}, current: testCopy(owned()), refused: "db InvalidAnnotation"},

		{name: "type has changed", namespace: testNamespace(), sources: []*Source{testSource("db", typed("x"))}, current: testCopy(db), action: Recreate, source: "db"},
		{name: "immutable, up to date", namespace: testNamespace(), sources: []*Source{testSource("db", immutable)}, current: testCopy(testSource("db", immutable)), source: "db"},
		{name: "immutable, source has changed", namespace: testNamespace(), sources: []*Source{testSource("db", immutable, with("password", "2"))}, current: testCopy(testSource("db", immutable)), action: Recreate, source: "db"},
		{name: "immutable, label removed", namespace: testNamespace(), sources: []*Source{testSource("db", immutable)}, current: testCopy(testSource("db", immutable), unlabelled), action: Update, source: "db"},
		{name: "made immutable", namespace: testNamespace(), sources: []*Source{db}, current: testCopy(db, wroteBy("kubectl", `{"f:immutable":{}}`)), action: Recreate, source: "db"},

		{name: "token", namespace: testNamespace(), sources: []*Source{testSource("db", typed(corev1.SecretTypeServiceAccountToken))}, refused: "db TypeRefused"},
		{name: "token, with a copy of what it was", namespace: testNamespace(), sources: []*Source{testSource("db", typed(corev1.SecretTypeServiceAccountToken))}, current: testCopy(db), action: Delete, refused: "db TypeRefused"},
		{name: "bad annotation", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(KeysAnnotation, "none"))}, refused: "db InvalidAnnotation"},
		{name: "bad annotation keeps the copy", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(KeysAnnotation, "none"))}, current: testCopy(db), refused: "db InvalidAnnotation"},
		{name: "bad annotation keeps the copy from another source", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(KeysAnnotation, "none")), testSource("db2", annotated(NameAnnotation, "db"))}, current: testCopy(db), refused: "db InvalidAnnotation, db2 NameTaken"},
		{name: "keys that the type does not allow keep an immutable copy", namespace: testNamespace(), sources: []*Source{tls(annotated(KeysAnnotation, "tls.crt"))}, current: testCopy(tls()), refused: "db InvalidAnnotation"},
		{name: "keys that the new type does not allow keep the copy", namespace: testNamespace(), sources: []*Source{tls(annotated(KeysAnnotation, "user"))}, current: testCopy(testSource("db", annotated(KeysAnnotation, "user"))), refused: "db InvalidAnnotation"},
		{name: "bad name keeps the copy", namespace: testNamespace(), sources: []*Source{testSource("db", annotated(NameAnnotation, "A B"))}, current: testCopy(db)},
		{name: "bad annotation, namespace no longer selected", namespace: testNamespace(unlabelled), sources: []*Source{testSource("db", annotated(KeysAnnotation, "none"))}, current: testCopy(db), action: Delete},

		{name: "two sources", namespace: testNamespace(), sources: []*Source{db, testSource("db2", olderBy(time.Second))}, action: Create, source: "db2", refused: "db NameTaken"},
		{name: "two sources of the same age", namespace: testNamespace(), sources: []*Source{testSource("db2"), db}, action: Create, source: "db", refused: "db2 NameTaken"},
		{name: "two sources, one with a problem", namespace: testNamespace(), sources: []*Source{db, testSource("db2", olderBy(time.Second), typed("helm.sh/release.v1"))}, action: Create, source: "db", refused: "db2 TypeRefused"},
		{name: "two sources, one for others", namespace: testNamespace(), sources: []*Source{db, testSource("db2", olderBy(time.Second), annotated(NamespacesAnnotation, "team=x"))}, action: Create, source: "db"},
	} {
		t.Run(test.name, func(t *testing.T) {
			decision := Decide(Input{Scope: testScope, Key: testKey, Namespace: test.namespace, Sources: test.sources, Copy: test.current})
			var refused []string
			for _, refusal := range decision.Refusals {
				refused = append(refused, refusal.Source.Name+" "+string(refusal.Reason))
				require.NotContains(t, refusal.Message, secretValue)
				require.NotEmpty(t, refusal.Message)
			}
			require.Equal(t, test.action, decision.Action)
			require.Equal(t, test.action == None, decision.Why == "")
			require.Equal(t, test.source, decision.Source.nameOrNone())
			require.Equal(t, test.refused, strings.Join(refused, ", "))
		})
	}
}

// randomInput draws an input. Names and values are few, so that they often meet.
func randomInput(t *rapid.T) Input {
	in := Input{Scope: testScope, Key: testKey}
	draw := func(label string, options ...secretOption) secretOption {
		return rapid.SampledFrom(append(options, func(*corev1.Secret) {})).Draw(t, label)
	}
	source := func(name string) *Source {
		return testSource(name, draw(name+" type", typed("x"), typed(corev1.SecretTypeServiceAccountToken)), draw(name+" immutable", immutable),
			draw(name+" data", with("password", "2"), with("more", "")), draw(name+" name", annotated(NameAnnotation, "x"), annotated(NameAnnotation, "A B")),
			draw(name+" keys", annotated(KeysAnnotation, "user"), annotated(KeysAnnotation, "none")),
			draw(name+" owner", labelled("owner", "us"), labelled("owner", "them")), draw(name+" labels", annotated(LabelsAnnotation, "owner")),
			draw(name+" annotations", annotated(AnnotationsAnnotation, NameAnnotation), annotated(AnnotationsAnnotation, "doc")), draw(name+" doc", annotated("doc", "x")),
			draw(name+" copy type", annotated(CopyTypeAnnotation, "x"), annotated(CopyTypeAnnotation, "")),
			draw(name+" namespaces", annotated(NamespacesAnnotation, "team=web"), annotated(NamespacesAnnotation, "team=x"), annotated(NamespacesAnnotation, "a in")),
			draw(name+" age", olderBy(time.Hour)), draw(name+" UID", func(s *corev1.Secret) { s.UID += "-new" }))
	}
	for _, name := range []string{"db", "db2", "db3"} {
		if rapid.Bool().Draw(t, name) {
			in.Sources = append(in.Sources, source(name))
		}
	}
	type change = func(*metav1.PartialObjectMetadata)
	drawChange := func(label string, changes ...change) change {
		return rapid.SampledFrom(append(changes, func(*metav1.PartialObjectMetadata) {})).Draw(t, label)
	}
	if rapid.IntRange(0, 5).Draw(t, "namespace") > 0 {
		in.Namespace = testNamespace(drawChange("namespace labels", unlabelled), drawChange("namespace state", terminating))
	}
	if rapid.Bool().Draw(t, "copy") {
		of := source(rapid.SampledFrom([]string{"db", "db2", "db3", "gone"}).Draw(t, "copy of"))
		in.Copy = testCopy(of, drawChange("tracked", untracked, notOurs("f:user"), wroteBy("kubectl", `{"f:data":{"f:more":{}}}`), wroteBy("kubectl", `{"f:immutable":{}}`)),
			drawChange("label", unlabelled, func(c *metav1.PartialObjectMetadata) { c.Labels[CopyLabel] = "other" }),
			drawChange("annotations", unannotated, unannotatedBut(SourceAnnotation), func(c *metav1.PartialObjectMetadata) { c.Annotations[CopiedToAnnotation] = "web/db" }),
			drawChange("copy state", terminating))
	}
	return in
}

// carryOut returns the input after the decision has been carried out, as the caches show it then.
func carryOut(in Input, d Decision) Input {
	switch d.Action {
	case Delete:
		in.Copy = nil
	case Create, Recreate:
		in.Copy = testCopy(d.Source)
	case Update:
		in.Copy = &metav1.PartialObjectMetadata{ObjectMeta: testScope.desired(in.Key, d.Source, in.Copy).ObjectMeta}
		// The API server removes what no longer exists from the entries of all managers.
		for i, entry := range in.Copy.ManagedFields {
			if entry.Manager != testScope.FieldManager() {
				in.Copy.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1("{}")
			}
		}
	}
	return in
}

func TestLabelsAreWithdrawn(t *testing.T) {
	asks := testSource("db", labelled("owner", "us"), annotated("doc", "x"), annotated(LabelsAnnotation, "owner"), annotated(AnnotationsAnnotation, "doc"))
	current := testCopy(asks, func(c *metav1.PartialObjectMetadata) { c.Labels["team"], c.Annotations["note"] = "theirs", "theirs" })
	require.Equal(t, "us", current.Labels["owner"])
	require.Equal(t, "x", current.Annotations["doc"])
	copied := testScope.desired(testKey, testSource("db"), current)
	require.NotContains(t, copied.Labels, "owner", "what the source no longer asks for")
	require.NotContains(t, copied.Annotations, "doc")
	require.Equal(t, "theirs", copied.Labels["team"], "what somebody else has added")
	require.Equal(t, "theirs", copied.Annotations["note"])
}

func TestDecideHasTheseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		before := in
		d := Decide(in)
		require.Equal(t, before, in, "it modifies nothing")

		// Whose the Secret at the key is, said in another way than isOurs does.
		var ours, foreign bool
		if in.Copy != nil {
			tracked := slices.ContainsFunc(in.Copy.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == "secretsync/secret-sync" })
			claims := in.Copy.Labels[CopyLabel] == "secret-sync" && in.Copy.Annotations[CopiedToAnnotation] == "shop/db"
			ours = in.Copy.Labels[CopyLabel] != "other" && (claims || tracked)
			foreign = !ours
		}
		if foreign {
			require.Equal(t, None, d.Action, "a Secret of somebody else is not touched")
		}
		if d.Action == Create {
			require.Nil(t, in.Copy)
		}
		if d.Action == Update || d.Action == Recreate || d.Action == Delete {
			require.True(t, ours)
			require.Nil(t, in.Copy.DeletionTimestamp)
		}
		if in.Namespace == nil {
			require.Equal(t, None, d.Action)
		} else if in.Namespace.DeletionTimestamp != nil {
			require.NotContains(t, []Action{Create, Recreate}, d.Action)
		}
		require.Equal(t, d.Action == Delete || d.Action == None && d.Source == nil, d.Source == nil, "only a delete has no source")

		// The decision does not depend on the order of the sources.
		reversed := in
		reversed.Sources = slices.Clone(in.Sources)
		slices.Reverse(reversed.Sources)
		again := Decide(reversed)
		require.Equal(t, d.Action, again.Action)
		require.Equal(t, d.Source.nameOrNone(), again.Source.nameOrNone())

		// Each source that wants the key either has the copy or a refusal.
		for _, source := range in.Sources {
			refused := slices.ContainsFunc(d.Refusals, func(r Refusal) bool { return r.Source == source })
			if source.CopyName == "db" && in.wants(source) && d.Source != source {
				require.True(t, refused, "%s is neither copied nor refused", source.Name)
			}
		}

		// One write is enough.
		require.Equal(t, None, Decide(carryOut(in, d)).Action, "a second write")

		if d.Source != nil {
			copied := testScope.desired(in.Key, d.Source, in.Copy)
			// If somebody has removed the annotation that says which labels are the source's, nobody knows whose the label is.
			if in.Copy == nil || in.Copy.Labels["owner"] == "" || in.Copy.Annotations[CopiedLabelsAnnotation] != "" || d.Source.labels["owner"] != "" {
				require.Equal(t, d.Source.labels["owner"], copied.Labels["owner"], "what the source no longer asks for is withdrawn")
			}
			require.Equal(t, d.Source.annotations["doc"], copied.Annotations["doc"])
			require.NotEmpty(t, copied.Data)
			require.Equal(t, slices.Sorted(maps.Keys(d.Source.Data)), slices.Sorted(maps.Keys(copied.Data)))
			if in.Copy != nil && d.Action == Update {
				require.Equal(t, in.Copy.UID, copied.UID)
				require.Equal(t, in.Copy.ResourceVersion, copied.ResourceVersion)
			}
		}
	})
}

// An apply of stringData changes the data and leaves it recorded as ours. It is looked at once, and then no more.
func TestAnAppliedStringData(t *testing.T) {
	source := testSource("db")
	in := Input{Scope: testScope, Key: testKey, Namespace: testNamespace(), Sources: []*Source{source},
		Copy: testCopy(source, wroteBy("flux", `{"f:metadata":{"f:labels":{"f:x":{}}},"f:stringData":{"f:password":{}}}`))}
	d := Decide(in)
	require.Equal(t, Update, d.Action)
	require.Equal(t, "its content has been edited", d.Why)

	repaired := testScope.desired(testKey, source, in.Copy)
	in.Copy = &metav1.PartialObjectMetadata{ObjectMeta: repaired.ObjectMeta}
	require.Equal(t, None, Decide(in).Action)
	require.JSONEq(t, `{"f:metadata":{"f:labels":{"f:x":{}}}}`, in.Copy.ManagedFields[0].FieldsV1.GetRawString(), "what else they own stays")
	for _, fields := range []string{"", "{", `{"f:data":{}}`} {
		entry := metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(fields)}
		require.Equal(t, entry, withoutStringData(entry))
	}
	require.Equal(t, metav1.ManagedFieldsEntry{}, withoutStringData(metav1.ManagedFieldsEntry{}))
}
