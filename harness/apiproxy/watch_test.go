package apiproxy_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/controllers/harness/history"
)

// added is an event of Pod a.
func added(version string) string { return event("ADDED", version) }

func event(kind, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":%q,`+
		`"annotations":{"x":"}\\\"{ \n"}},"spec":{}}}`+"\n", kind, version)
}

// protobufEvent is the same in protobuf, as the API server frames it.
func protobufEvent(t *testing.T, kind, version string) string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "u", ResourceVersion: version}}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	var object bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &object))
	data, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	require.NoError(t, err)
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(data)))) + string(data)
}

// Each event reaches the client, whole and as it was, before the API server says anything more.
func TestWatch(t *testing.T) {
	const json, proto = "application/json", "application/vnd.kubernetes.protobuf;stream=watch"
	kinds := []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ADDED"}
	var jsonEvents, protoEvents, members, spread []string
	for i, kind := range kinds {
		version := fmt.Sprint(10 + i)
		jsonEvents = append(jsonEvents, event(kind, version))
		protoEvents = append(protoEvents, protobufEvent(t, kind, version))
		members = append(members, compress(protoEvents[i]))
		spread = append(spread, "\n \t"+strings.TrimSpace(jsonEvents[i]))
	}
	whole := compress(strings.Join(jsonEvents, ""))
	for name, c := range map[string]struct {
		contentType, encoding string
		pieces                []string // what the API server writes at once
		events                int
	}{
		"JSON":                         {json, "", jsonEvents, 5},
		"JSON, all at once":            {json, "", []string{strings.Join(jsonEvents, "")}, 5},
		"JSON, byte by byte":           {json, "", strings.Split(strings.Join(jsonEvents, ""), ""), 5},
		"JSON, other white space":      {json + "; charset=utf-8", "", spread, 5},
		"protobuf":                     {proto, "", protoEvents, 5},
		"protobuf, all at once":        {proto, "", []string{strings.Join(protoEvents, "")}, 5},
		"protobuf, byte by byte":       {proto, "", strings.Split(strings.Join(protoEvents, ""), ""), 5},
		"gzip, a member each":          {proto, "gzip", members, 5},
		"gzip, members in one piece":   {proto, "gzip", []string{strings.Join(members, "")}, 5},
		"gzip, one member":             {json, "gzip", []string{whole}, 5},
		"gzip, byte by byte":           {json, "gzip", strings.Split(whole, ""), 5},
		"gzip, its last bytes missing": {json, "gzip", []string{whole[:len(whole)-8]}, 5},
		"no event":                     {json, "", nil, 0},
		"something else":               {"text/plain", "", jsonEvents, 0},
		"another encoding":             {json, "br", jsonEvents, 0},
		"CBOR":                         {"application/cbor-seq", "", []string{"\xd9\xd9\xf7\xa1"}, 0},
		"an event, and then nonsense":  {json, "", []string{jsonEvents[0], "nonsense", jsonEvents[1]}, 1},
		"gzip that is none":            {json, "gzip", jsonEvents, 0},
		"protobuf that is none":        {proto, "", []string{protoEvents[0], "\xff\xff\xff\xffxyz", protoEvents[1]}, 1},
		"protobuf without an event":    {proto, "", []string{"\x00\x00\x00\x02ab"}, 0},
		"cut off within an event":      {proto, "", []string{protoEvents[0], protoEvents[1][:30]}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan struct{})
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				if c.encoding != "" {
					w.Header().Set("Content-Encoding", c.encoding)
				}
				w.(http.Flusher).Flush()
				for _, piece := range c.pieces {
					_, _ = io.WriteString(w, piece)
					w.(http.Flusher).Flush()
					select {
					case <-seen: // or else we would hang here, and the client there
					case <-r.Context().Done():
						return
					}
				}
			})
			response, err := client(t, w.Config()).Get(w.URL() + "/api/v1/pods?watch=true")
			require.NoError(t, err, "the answer begins before there is an event")
			defer response.Body.Close()
			if len(c.pieces) > 0 { // the API server waits for us
				require.True(t, w.only().Open)
			}
			require.Equal(t, 200, w.only().Status)
			var total int
			for _, piece := range c.pieces {
				got := make([]byte, len(piece))
				_, err := io.ReadFull(response.Body, got)
				require.NoError(t, err)
				require.True(t, piece == string(got), "want %q\n got %q", piece, got)
				total += len(piece)
				seen <- struct{}{}
			}
			rest, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Empty(t, rest)

			h := w.memory.History()
			require.False(t, w.only().Open)
			require.Empty(t, w.only().Error)
			require.Len(t, h.Events, c.events)
			bytes := int(w.only().Received)
			for i, e := range h.Events {
				require.Equal(t, history.Event{
					Request: w.only().ID, Time: e.Time, Type: kinds[i], Resource: "pods", Namespace: "shop", Name: "a", UID: "u",
					ResourceVersion: fmt.Sprint(10 + i), Bytes: e.Bytes}, e)
				require.Positive(t, e.Bytes)
				bytes += e.Bytes
			}
			require.Equal(t, total, bytes, "every byte is counted once")
			if c.encoding == "" && c.events == 5 && len(c.pieces) == 5 {
				for i, e := range h.Events {
					require.Equal(t, len(c.pieces[i]), e.Bytes)
				}
			}
		})
	}
}

func TestWatchOfOtherThings(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want history.Event
	}{
		"a row of a table": {`{"type":"ADDED","object":{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[{"cells":["a"],"object":{"metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"8"}}}]}}`,
			history.Event{Type: "ADDED", Namespace: "shop", Name: "a", UID: "u", ResourceVersion: "8"}},
		"an error": {`{"type":"ERROR","object":{"kind":"Status","metadata":{"resourceVersion":"5"},"code":410}}`,
			history.Event{Type: "ERROR"}},
		"a bookmark": {`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"12"}}}`,
			history.Event{Type: "BOOKMARK", ResourceVersion: "12"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.text+"\n")
			})
			_, body := w.do("GET", "/apis/example.com/v1/colors?watch=1", "")
			require.Equal(t, c.text+"\n", body)
			events := w.memory.History().Events
			require.Len(t, events, 1)
			c.want.Request, c.want.Time, c.want.Bytes = w.only().ID, events[0].Time, len(body)
			c.want.Group, c.want.Resource = "example.com", "colors"
			require.Equal(t, c.want, events[0])
		})
	}
}

// An event far larger than a buffer, as a Secret may be.
func TestWatchLargeEvent(t *testing.T) {
	large := strings.Replace(added("7"), `"x":"`, `"x":"`+strings.Repeat("y", 3<<20), 1)
	for _, encoding := range []string{"", "gzip"} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
				zip := gzip.NewWriter(w)
				defer zip.Close()
				_, _ = io.WriteString(zip, large+added("8"))
				return
			}
			_, _ = io.WriteString(w, large+added("8"))
		})
		w.do("GET", "/api/v1/pods?watch=1", "")
		events := w.memory.History().Events
		require.Len(t, events, 2)
		require.Equal(t, "8", events[1].ResourceVersion)
	}
}

func TestWatchThatIsRefused(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"kind":"Status","code":410}`)
	})
	w.do("GET", "/api/v1/pods?watch=1", "")
	require.Equal(t, http.StatusGone, w.only().Status)
	require.EqualValues(t, 28, w.only().Received)
	require.Empty(t, w.memory.History().Events)
}

func TestClientEndsItsWatch(t *testing.T) {
	gone := make(chan struct{})
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", w.URL()+"/api/v1/pods?watch=1", nil)
	require.NoError(t, err)
	response, err := client(t, w.Config()).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	cancel()
	<-gone
	eventually(t, "recorded", func() bool { return !w.only().Open })
	require.Empty(t, w.only().Error, "that is how watches end")
	require.False(t, w.only().Failed())
}

// What a watch says of resourceVersions counts for the writes that come after it.
func TestWatchTellsWhatWasBefore(t *testing.T) {
	const of = `{"kind":"Namespace","metadata":{"name":%q,"resourceVersion":%q}}`
	answer := map[string]string{
		"/api/v1/namespaces/a": fmt.Sprintf(of, "a", "9"),
		"/api/v1/namespaces/b": fmt.Sprintf(of, "b", "20"),
		"/api/v1/namespaces/c": fmt.Sprintf(of, "c", "21"),
		"/api/v1/namespaces": `{"type":"ADDED","object":` + fmt.Sprintf(of, "a", "9") + "}\n" +
			`{"type":"ADDED","object":` + fmt.Sprintf(of, "d", "10") + "}\n" +
			`{"type":"DELETED","object":` + fmt.Sprintf(of, "d", "11") + "}\n" +
			`{"type":"BOOKMARK","object":` + fmt.Sprintf(of, "", "20") + "}\n",
		"/api/v1/namespaces/d": fmt.Sprintf(of, "d", "22"),
	}
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer[r.URL.Path])
	})
	w.do("GET", "/api/v1/namespaces?watch=1", "")
	wanted := map[string]history.Request{
		"a": {RVBefore: "9", RVAfter: "9", NoOp: true},
		"b": {RVAfter: "20", NoOp: true}, // a later one would be higher than the bookmark
		"c": {RVAfter: "21"},
		"d": {RVAfter: "22"}, // it was deleted
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) { // resourceVersions grow
		want := wanted[name]
		w.do("PATCH", "/api/v1/namespaces/"+name, "{}")
		requests := w.memory.History().Requests
		last := requests[len(requests)-1]
		require.Equal(t, want, history.Request{RVBefore: last.RVBefore, RVAfter: last.RVAfter, NoOp: last.NoOp}, name)
	}
}
