package secretsync

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Prefix begins all labels and annotations of this package.
const Prefix = "secretsync.controllers.example.com/"

// What users set, on a Secret of the source namespace and on a namespace.
const (
	// SharedLabel marks a source. Its value is "true".
	SharedLabel = Prefix + "shared"
	// NamespacesAnnotation narrows the namespaces that get a copy of a source, by a label selector.
	NamespacesAnnotation = Prefix + "namespaces"
	// KeysAnnotation lists the keys of a source that are copied, separated by commas. Without it, all are.
	KeysAnnotation = Prefix + "keys"
	// NameAnnotation is the name of the copies, if it is not that of the source.
	NameAnnotation = Prefix + "name"
	// CopyTypeAnnotation is the type of the copies, if it is not that of the source: without some of its keys, a typed Secret
	// may be none of its type.
	CopyTypeAnnotation = Prefix + "copy-type"
	// LabelsAnnotation and AnnotationsAnnotation list the labels and the annotations of a source that are copied, separated by
	// commas. Without them, none are.
	LabelsAnnotation      = Prefix + "labels"
	AnnotationsAnnotation = Prefix + "annotations"
	// CopiesLabel marks a namespace that gets copies, unless the controller has another selector. Its value is "true".
	CopiesLabel = Prefix + "copies"
)

// What the controller sets on a copy. The mark of a source and the mark of a copy must differ: with one mark for both, a
// user's own Secret is taken for a copy, and deleted.
const (
	// CopyLabel holds the source namespace. The cache of copies selects by it, so two controllers with different source
	// namespaces do not see each other's copies, and a mistyped source namespace has no copies that could be deleted.
	CopyLabel = Prefix + "copied-from"
	// CopiedToAnnotation holds the namespace and the name of the copy itself, so that a copy that a user has exported and
	// created again somewhere else is not taken for ours.
	CopiedToAnnotation = Prefix + "copied-to"
	// SourceAnnotation and SourceUIDAnnotation name the source.
	SourceAnnotation    = Prefix + "source"
	SourceUIDAnnotation = Prefix + "source-uid"
	// HashAnnotation identifies the source and what was copied from it.
	HashAnnotation = Prefix + "content-hash"
	// TypeAnnotation repeats the type of the Secret, which its metadata does not have.
	TypeAnnotation = Prefix + "type"
	// CopiedLabelsAnnotation and CopiedAnnotationsAnnotation list what the copy has got from its source besides the data, so
	// that it can be withdrawn. A copy that has got nothing has neither.
	CopiedLabelsAnnotation      = Prefix + "copied-labels"
	CopiedAnnotationsAnnotation = Prefix + "copied-annotations"
)

// Scope says what a controller copies from where to where.
type Scope struct {
	SourceNamespace string
	// Namespaces selects the namespaces that get copies. The source namespace never does.
	Namespaces Selector
}

// FieldManager is the name under which the API server records which fields of a copy the controller wrote.
func (s Scope) FieldManager() string { return "secretsync/" + s.SourceNamespace }

// desired returns the copy of a source as it should be at the key. It keeps what others have added to the metadata of the
// current copy, but not what we have written and the source no longer asks for. It has the copy's UID and resourceVersion, so that
// the API server refuses to update any other. current is nil if there is no copy.
func (s Scope) desired(key cache.ObjectName, source *Source, current *metav1.PartialObjectMetadata) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Type:       source.Type,
		Data:       source.Data,
	}
	if source.Immutable {
		secret.Immutable = new(true)
	}
	if current != nil {
		secret.UID, secret.ResourceVersion = current.UID, current.ResourceVersion
		secret.OwnerReferences, secret.Finalizers = current.OwnerReferences, current.Finalizers
		maps.Copy(secret.Labels, current.Labels)
		maps.Copy(secret.Annotations, current.Annotations)
		withdraw(&secret.ObjectMeta)
		secret.ManagedFields = s.managedFields(source, current)
	}
	maps.Copy(secret.Labels, s.labelsOf(source))
	maps.Copy(secret.Annotations, source.annotationsAt(key))
	return secret
}

// managedFields returns the current record of who wrote what, with our entry for all that an update writes. Without it, the
// API server would record only what the update changes: after somebody has edited a copy and undone the edit, or has cleared
// managedFields, we would write the same data again and again, and never own it.
func (s Scope) managedFields(source *Source, current *metav1.PartialObjectMetadata) []metav1.ManagedFieldsEntry {
	ours := metav1.ManagedFieldsEntry{
		Manager: s.FieldManager(), Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(source.fields),
	}
	others := slices.DeleteFunc(slices.Clone(current.ManagedFields), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == ours.Manager && entry.Operation == ours.Operation
	})
	for i := range others {
		others[i] = withoutStringData(others[i])
	}
	return append(others, ours)
}

// withoutStringData returns an entry without the record of stringData. Whoever applies stringData changes data, but the API
// server records data as ours all the same, and stringData, which is nowhere in the object, as theirs. So such a record says that
// the data may have been edited; once it has been repaired, it would say so for ever.
func withoutStringData(entry metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	fields := map[string]json.RawMessage{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil || fields["f:stringData"] == nil {
		return entry
	}
	delete(fields, "f:stringData")
	text, err := json.Marshal(fields)
	if err != nil {
		return entry
	}
	entry.FieldsV1 = metav1.NewFieldsV1(string(text))
	return entry
}

// fieldsV1 returns all fields that the controller writes in a copy, as the API server records them.
func (s *Source) fieldsV1() string {
	none := struct{}{}
	fields := map[string]any{
		"f:data": fieldsOf(s.Data), "f:type": none,
		"f:metadata": map[string]any{"f:annotations": fieldsOf(s.annotationsAt(cache.ObjectName{})), "f:labels": fieldsOf(Scope{}.labelsOf(s))},
	}
	if s.Immutable {
		fields["f:immutable"] = none
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err) // maps of strings can be encoded
	}
	return string(text)
}

// fieldsOf returns the entry for all keys of a map.
func fieldsOf[V any](values map[string]V) map[string]any {
	fields := map[string]any{".": struct{}{}}
	for name := range values {
		fields["f:"+name] = struct{}{}
	}
	return fields
}

// marks returns the annotations by which the controller recognizes the copy at the key.
func (s *Source) marks(key cache.ObjectName) map[string]string {
	marks := map[string]string{
		CopiedToAnnotation: key.String(), SourceAnnotation: s.Name, SourceUIDAnnotation: string(s.UID),
		HashAnnotation: s.Hash, TypeAnnotation: string(s.Type),
	}
	if len(s.labels) > 0 {
		marks[CopiedLabelsAnnotation] = list(s.labels)
	}
	if len(s.annotations) > 0 {
		marks[CopiedAnnotationsAnnotation] = list(s.annotations)
	}
	return marks
}

// hash returns a hash of the content that is copied, without labels and annotations: those can be read in the copy. It begins with the UID of the source: sources with the same content have different
// hashes, and the hash of a guessed password cannot be looked up in a table.
func (s *Source) hash() string {
	h := sha256.New()
	write := func(part []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // so that no two lists of parts have the same bytes
		h.Write(part)
	}
	write([]byte(s.UID))
	write([]byte(s.Type))
	if s.Immutable {
		write([]byte("immutable"))
	}
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		write([]byte(key))
		write(s.Data[key])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// hashWithMetadata returns a hash of all that a copy gets: the content, the labels and the annotations.
func (s *Source) hashWithMetadata() string {
	text, err := json.Marshal([]any{s.Hash, s.labels, s.annotations})
	if err != nil {
		panic(err) // strings and maps of strings can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
