package secretsync

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// Action is what should be done to a copy.
type Action string

// The actions. Each is one write, except Recreate.
const (
	None     Action = ""
	Create   Action = "create"
	Update   Action = "update"
	Recreate Action = "recreate" // delete and create: the type of a Secret, and an immutable one, cannot be updated
	Delete   Action = "delete"
)

// writes returns how many writes an action is.
func (a Action) writes() int {
	switch a {
	case None:
		return 0
	case Recreate:
		return 2
	}
	return 1
}

// Reason says in a word why a source is not copied, for Events and metrics.
type Reason string

// The reasons. Forbidden, Rejected, Mutated and Failing come from the API server's response to a write.
const (
	NamesakeNotOurs      Reason = "NamesakeNotOurs"      // a Secret of that name exists, and is not a copy of ours
	NameTaken            Reason = "NameTaken"            // another source with the same name for its copies has priority
	NamespaceTerminating Reason = "NamespaceTerminating" // nothing can be created there any more
	CopyTerminating      Reason = "CopyTerminating"      // the copy has been deleted, and waits for somebody's finalizer
	TypeRefused          Reason = "TypeRefused"
	InvalidAnnotation    Reason = "InvalidAnnotation"
	TooLarge             Reason = "TooLarge"
	Forbidden            Reason = "Forbidden" // by RBAC, a quota or an admission policy
	Rejected             Reason = "Rejected"  // by validation or an admission policy
	Mutated              Reason = "Mutated"   // the write succeeds, but something else is stored
	Contested            Reason = "Contested" // the write succeeds, and somebody undoes it
	Failing              Reason = "Failing"   // for any other reason
)

// Input is all that the decision about one copy depends on. It has the data of the sources, and only the metadata of the rest.
type Input struct {
	Scope
	Key cache.ObjectName // of the copy
	// Namespace is that of the copy; nil if there is none.
	Namespace *metav1.PartialObjectMetadata
	// Sources holds at least the sources whose copies have the key's name, and the one that the copy names.
	Sources []*Source
	// Copy is what exists at the key, whoever created it; nil if nothing does.
	Copy *metav1.PartialObjectMetadata

	hold time.Duration // see Controller.holdBack
}

// Decision says what should be done about one copy, and which sources cannot be copied there.
type Decision struct {
	Action Action
	Why    string // why the action is needed, for the log and "kubectl secretsync plan"
	// Source is what should be copied to the key; nil if nothing should.
	Source *Source
	// Refusals has an entry for each source that should be copied to the key but cannot be.
	Refusals []Refusal
}

// Refusal says why a source is not copied to one namespace.
type Refusal struct {
	Source *Source
	Problem
}

// refuses reports whether a source is not copied for this reason.
func (d Decision) refuses(reason Reason) bool {
	return slices.ContainsFunc(d.Refusals, func(refusal Refusal) bool { return refusal.Reason == reason })
}

// Decide says what should exist at a key. It depends on nothing but its input.
func Decide(in Input) Decision {
	var d Decision
	refuse := func(source *Source, reason Reason, format string, args ...any) {
		d.Refusals = append(d.Refusals, Refusal{source, Problem{reason, fmt.Sprintf(format, args...)}})
	}
	var contenders []*Source
	for _, source := range in.Sources {
		switch {
		case source.CopyName != in.Key.Name || !in.wants(source):
		case source.Problem != nil:
			d.Refusals = append(d.Refusals, Refusal{source, *source.Problem})
		default:
			contenders = append(contenders, source)
		}
	}
	slices.SortFunc(contenders, compareSources)
	ours := in.Copy != nil && in.isOurs()
	if ours && in.isHeld() {
		for _, source := range contenders {
			refuse(source, NameTaken, "Secret %s is a copy of %s, and stays as it is until the annotations of that are correct", in.Key, in.Copy.Annotations[SourceAnnotation])
		}
		return d
	}
	if len(contenders) > 0 {
		d.Source = contenders[0]
		for _, loser := range contenders[1:] {
			refuse(loser, NameTaken, "Secret %s is for a copy of %s, which has priority for this name", in.Key, d.Source.Name)
		}
	}
	switch {
	case in.Namespace == nil:
	case in.isEnding() && (!ours || in.Copy.DeletionTimestamp != nil):
		if d.Source != nil {
			refuse(d.Source, NamespaceTerminating, "namespace %s is being deleted", in.Key.Namespace)
		}
	case in.Copy != nil && !ours:
		if d.Source != nil {
			refuse(d.Source, NamesakeNotOurs, "Secret %s exists and was not created by this controller; delete or rename it", in.Key)
		}
	case in.Copy != nil && in.Copy.DeletionTimestamp != nil:
		if d.Source != nil {
			refuse(d.Source, CopyTerminating, "Secret %s is being deleted, and waits for finalizers: %s", in.Key, strings.Join(in.Copy.Finalizers, ", "))
		}
	case d.Source == nil && ours:
		d.Action, d.Why = Delete, "no source is copied here"
	case d.Source == nil:
	case in.Copy == nil:
		d.Action, d.Why = Create, "there is no copy"
	default:
		d.Action, d.Why = in.compare(d.Source)
	}
	if d.Action == Recreate && in.isEnding() {
		d.Action, d.Why = None, ""
		refuse(d.Source, NamespaceTerminating, "namespace %s is being deleted, and the copy could not be created again", in.Key.Namespace)
	}
	return d
}

// isEnding reports whether the namespace is being deleted. Its Pods go first, and as long as one of them is left, so are its
// Secrets, and can be read. Nothing can be created there, but a copy can be changed, and deleted with its source.
func (in Input) isEnding() bool { return in.Namespace != nil && in.Namespace.DeletionTimestamp != nil }

// wants reports whether the namespace should get a copy of a source, if that can be copied at all.
func (in Input) wants(source *Source) bool {
	return in.selects(in.Namespace) && source.Selector.Matches(labels.Set(in.Namespace.Labels))
}

// selects reports whether a namespace gets copies.
func (s Scope) selects(namespace *metav1.PartialObjectMetadata) bool {
	return namespace != nil && namespace.Name != s.SourceNamespace && s.Namespaces.Matches(labels.Set(namespace.Labels))
}

// isOurs reports whether the controller created the copy. Either its label and its copied-to annotation say so, or, if
// somebody has removed one of these marks, managedFields do: they record that our manager wrote the other one. A Secret that
// has lost both is no longer ours.
func (in Input) isOurs() bool {
	from, labelled := in.Copy.Labels[CopyLabel]
	if labelled && from != in.SourceNamespace {
		return false
	}
	return labelled && in.Copy.Annotations[CopiedToAnnotation] == in.Key.String() || in.written().marks
}

// isHeld reports whether the copy stays although nothing can be copied: a mistake in an annotation of the source must not
// delete copies that are in use.
func (in Input) isHeld() bool {
	return in.selects(in.Namespace) && slices.ContainsFunc(in.Sources, func(source *Source) bool {
		return source.Name == in.Copy.Annotations[SourceAnnotation] && source.Problem != nil && source.Problem.Reason == InvalidAnnotation
	})
}

// compare says what makes our copy equal to the source, and why it is not.
func (in Input) compare(source *Source) (Action, string) {
	wrote := in.wrote(source)
	why, content := "", true // whether the data may differ
	oldType, hasType := in.Copy.Annotations[TypeAnnotation]
	switch {
	case hasType && oldType != string(source.Type):
		return Recreate, "the type of its source has changed"
	case in.Copy.Annotations[SourceUIDAnnotation] != string(source.UID):
		why = "its source is another Secret now"
	case in.Copy.Annotations[HashAnnotation] != source.Hash:
		why = "its source has changed"
	case !wrote.all:
		why = "its content has been edited"
	default:
		content = false
	}
	if why == "" {
		why = in.compareMetadata(source)
	}
	switch {
	case why == "":
		return None, ""
	case content && wrote.immutable:
		return Recreate, why + ", and it is immutable"
	}
	return Update, why
}

// ownership is what managedFields say about a Secret. The API server keeps them, and they are part of the metadata: an edit of
// the data shows there although we do not read the data.
type ownership struct {
	marks     bool            // our manager wrote at least one of our marks
	keys      map[string]bool // of the data that our manager wrote last
	others    map[string]bool // keys of the data that others wrote last
	strings   bool            // somebody applied stringData, and so perhaps wrote data although it is recorded as ours
	immutable bool            // somebody set the field immutable
	all       bool            // the content is as our manager wrote it
}

// wrote says whether the content of the copy is as our manager wrote it: we wrote each key of the source last, and there are
// no others. A key that somebody else changed or removed is no longer recorded as ours. A key that somebody else applied with
// the same value is recorded for both.
func (in Input) wrote(source *Source) ownership {
	// Nearly all copies have this record, and to compare it is much cheaper than to parse it.
	if entries := in.Copy.ManagedFields; len(entries) == 1 && entries[0].Manager == in.FieldManager() && string(entries[0].FieldsV1.GetRawBytes()) == source.fields {
		return ownership{marks: true, immutable: source.Immutable, all: true}
	}
	o := in.written()
	o.all = len(o.keys) == len(source.Data) && o.immutable == source.Immutable && !o.strings
	for _, keys := range []map[string]bool{o.keys, o.others} {
		for key := range keys {
			if _, ok := source.Data[key]; !ok {
				o.all = false
			}
		}
	}
	return o
}

// written reads the managedFields of the copy.
func (in Input) written() ownership {
	type set map[string]json.RawMessage
	o := ownership{keys: map[string]bool{}, others: map[string]bool{}}
	for _, entry := range in.Copy.ManagedFields {
		var wrote struct {
			Metadata struct {
				Labels      set `json:"f:labels"`
				Annotations set `json:"f:annotations"`
			} `json:"f:metadata"`
			Data       set             `json:"f:data"`
			StringData set             `json:"f:stringData"` // see withoutStringData
			Immutable  json.RawMessage `json:"f:immutable"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &wrote) != nil {
			continue
		}
		o.immutable = o.immutable || wrote.Immutable != nil
		keys := o.others
		if entry.Manager == in.FieldManager() {
			keys = o.keys
			o.marks = o.marks || wrote.Metadata.Labels["f:"+CopyLabel] != nil || wrote.Metadata.Annotations["f:"+CopiedToAnnotation] != nil
		}
		for field := range wrote.Data {
			if key, ok := strings.CutPrefix(field, "f:"); ok {
				keys[key] = true
			}
		}
		o.strings = o.strings || wrote.StringData != nil
	}
	return o
}
