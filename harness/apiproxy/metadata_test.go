package apiproxy

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// encodings are how the API server writes an object.
func encodings(t *testing.T, kind string, object runtime.Object) map[string][]byte {
	t.Helper()
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	texts := map[string][]byte{}
	for name, encoder := range map[string]runtime.Encoder{
		"JSON":        json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{}),
		"pretty JSON": json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Pretty: true}),
		"protobuf":    protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
	} {
		var text bytes.Buffer
		require.NoError(t, encoder.Encode(object, &text))
		texts[name] = text.Bytes()
	}
	return texts
}

func TestReadMetadata(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "u-1", ResourceVersion: "7",
		GenerateName: "generated-", Labels: map[string]string{"resourceVersion": "8"},
		Annotations: map[string]string{"metadata": `{"name":"x"}`}}
	want := metadata{kind: "Secret", name: "a", namespace: "shop", uid: "u-1", resourceVersion: "7"}
	with := func(change func(*metav1.ObjectMeta)) *corev1.Secret {
		secret := &corev1.Secret{ObjectMeta: *meta.DeepCopy(), Data: map[string][]byte{"x": []byte("y")}}
		change(&secret.ObjectMeta)
		return secret
	}
	deleting := with(func(m *metav1.ObjectMeta) { m.DeletionTimestamp = new(metav1.Unix(1, 0)) })
	graceful := with(func(m *metav1.ObjectMeta) {
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = new(metav1.Unix(1, 0)), new(int64(30))
	})
	atOnce := with(func(m *metav1.ObjectMeta) {
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = new(metav1.Unix(1, 0)), new(int64(0))
	})
	held := with(func(m *metav1.ObjectMeta) {
		m.DeletionTimestamp, m.Finalizers = new(metav1.Unix(1, 0)), []string{"example.com/a", "example.com/b"}
	})
	large := with(func(m *metav1.ObjectMeta) {
		m.Annotations["large"] = strings.Repeat("x", 256<<10)
		m.DeletionTimestamp, m.Finalizers = new(metav1.Unix(1, 0)), []string{"example.com/a"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", 1<<20)}}
	})
	is := func(change func(*metadata)) metadata {
		m := want
		change(&m)
		return m
	}
	isRemoved := is(func(m *metadata) { m.deleting = true })
	for name, c := range map[string]struct {
		kind   string
		object runtime.Object
		want   metadata
	}{
		"an object":        {"Secret", with(func(*metav1.ObjectMeta) {}), want},
		"being deleted":    {"Secret", deleting, isRemoved},
		"with time left":   {"Secret", graceful, is(func(m *metadata) { m.deleting, m.graceful = true, true })},
		"with no time":     {"Secret", atOnce, isRemoved},
		"with finalizers":  {"Secret", held, is(func(m *metadata) { m.deleting, m.finalizers = true, 2 })},
		"large":            {"Secret", large, is(func(m *metadata) { m.deleting, m.finalizers = true, 1 })},
		"a list":           {"SecretList", &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "c"}, Items: []corev1.Secret{*held}}, metadata{kind: "SecretList", resourceVersion: "9"}},
		"a status":         {"Status", &metav1.Status{Status: "Success", Message: "m"}, metadata{kind: "Status"}},
		"delete options":   {"DeleteOptions", &metav1.DeleteOptions{GracePeriodSeconds: new(int64(5))}, metadata{kind: "DeleteOptions"}},
		"a delete for dry": {"DeleteOptions", &metav1.DeleteOptions{DryRun: []string{"All"}, GracePeriodSeconds: new(int64(5))}, metadata{kind: "DeleteOptions", dryRun: true}},
	} {
		for encoding, text := range encodings(t, c.kind, c.object) {
			t.Run(name+"/"+encoding, func(t *testing.T) {
				got, _ := readMetadata(bytes.NewReader(text))
				require.Equal(t, c.want, got)
				got, _ = readMetadata(iotest.OneByteReader(bytes.NewReader(text)))
				require.Equal(t, c.want, got)
				for end := range min(len(text), 600) { // it must not fail in a way of its own, nor make anything up
					got, _ := readMetadata(bytes.NewReader(text[:end]))
					require.Contains(t, []string{"", c.want.resourceVersion}, got.resourceVersion)
				}
			})
		}
	}
	require.True(t, isRemoved.removed())
	require.False(t, want.removed())
	require.False(t, is(func(m *metadata) { m.deleting, m.graceful = true, true }).removed())
	require.False(t, is(func(m *metadata) { m.deleting, m.finalizers = true, 1 }).removed())
}

func TestReadMetadataOfJSON(t *testing.T) {
	for text, want := range map[string]metadata{
		// Lists of custom resources have their metadata at the end.
		`{"apiVersion":"v1","items":[{"metadata":{"name":"a","resourceVersion":"1"}},[],{}],"kind":"ColorList","metadata":{"resourceVersion":"5"}}`: {kind: "ColorList", resourceVersion: "5"},
		`{"spec":{"metadata":{"name":"x"}},"metadata":{"name":"a"},"kind":"Color"}`:                                                                 {kind: "Color", name: "a"},
		`{"metadata":{"resourceVersion":"3"}}`: {resourceVersion: "3"},
		`{"metadata":{"labels":{},"name":"a"`:  {},
		`{"metadata":7,"kind":"x"}`:            {},
		`{}`:                                   {},
		`{`:                                    {},
		`[{"metadata":{"name":"a"}}]`:          {},
		`"metadata"`:                           {},
		`apiVersion: v1`:                       {},
		``:                                     {},
		`k8s`:                                  {},
		"k8s\x00":                              {},
		"k8s\x00\x08\x01":                      {}, // a field that is no message
		"k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": {}, // too long to be true
		"k8s\x00\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01": {},
	} {
		t.Run(text, func(t *testing.T) {
			got, _ := readMetadata(strings.NewReader(text))
			require.Equal(t, want, got)
		})
	}
}

// The reader gets no further than it must, so a large answer costs no more than a small one.
func TestReadMetadataStopsEarly(t *testing.T) {
	for name, start := range encodings(t, "Secret", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}) {
		if name == "protobuf" {
			continue // its length is known
		}
		never := iotest.ErrReader(io.ErrNoProgress)
		text := strings.TrimRight(string(start), "} \n") + `},"data":{"x":"`
		got, err := readMetadata(io.MultiReader(strings.NewReader(text), never))
		require.NoError(t, err, "%s", name)
		require.Equal(t, "a", got.name)
	}
}

// A stream that is something else must not make us wait for gigabytes.
func TestFrameTooLarge(t *testing.T) {
	_, err := readProtobufFrame(bufio.NewReader(strings.NewReader("\xff\xff\xff\xff")), nil)
	require.ErrorIs(t, err, errNoObject)
}

func TestSeen(t *testing.T) {
	s := newSeen()
	pods := resource{"", "pods"}
	a, b := object{pods, "shop", "a"}, object{pods, "shop", "b"}
	is := func(o object, version, latest string) {
		t.Helper()
		gotVersion, gotLatest := s.before(o)
		require.Equal(t, []string{version, latest}, []string{gotVersion, gotLatest})
	}
	is(a, "", "")
	s.object(a, "9")
	is(a, "9", "9")
	is(b, "", "9")
	s.object(b, "10")
	is(b, "10", "10")
	s.object(b, "8") // from a cache that is behind
	is(b, "10", "10")
	s.object(b, "")
	is(b, "10", "10")
	s.version(pods, "12")
	s.version(pods, "11")
	s.version(pods, "0")
	s.version(pods, "")
	is(a, "9", "12")
	s.gone(a)
	is(a, "", "12")
	is(object{resource{"apps", "pods"}, "shop", "b"}, "", "")
	s.object(a, "not-a-number") // an API server of another kind
	is(a, "not-a-number", "12")
	s.object(a, "neither")
	is(a, "neither", "12")
}

// What is not looked at is forgotten in the end; what is looked at is not.
func TestSeenIsBounded(t *testing.T) {
	s := newSeen()
	pods := resource{"", "pods"}
	kept := object{pods, "shop", "kept"}
	s.object(kept, "1")
	for i := range 5 * maxObjects {
		s.object(object{pods, time.Duration(i).String(), "a"}, "2")
		version, _ := s.before(kept)
		require.Equal(t, "1", version)
		require.LessOrEqual(t, len(s.objects)+len(s.older), 2*maxObjects)
	}
	version, _ := s.before(object{pods, time.Duration(0).String(), "a"})
	require.Empty(t, version)
	version, _ = s.before(object{pods, time.Duration(5*maxObjects - 1).String(), "a"})
	require.Equal(t, "2", version)
}
