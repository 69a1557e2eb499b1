package apiproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/controllers/harness/apiproxy"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]apiproxy.Fault{
		"verb=delete,resource=pods,nth=2,refuse=500": {Match: apiproxy.Match{Verb: "delete", Resource: "pods", From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}},
		"verb=watch,resource=pods,late=2s":           {Match: apiproxy.Match{Verb: "watch", Resource: "pods"}, Effect: apiproxy.Effect{Late: 2 * time.Second}},
		"verb=delete,delay=2s":                       {Match: apiproxy.Match{Verb: "delete"}, Effect: apiproxy.Effect{Delay: 2 * time.Second}},
		"nth=1-6,refuse=429,retry-after=1s":          {Match: apiproxy.Match{From: 1, To: 6}, Effect: apiproxy.Effect{Refuse: 429, RetryAfter: time.Second}},
		"nth=3-,delay=1m0s":                          {Match: apiproxy.Match{From: 3}, Effect: apiproxy.Effect{Delay: time.Minute}},
		"verb=update,group=apps,resource=deployments,subresource=status,namespace=a,name=b,agent=shop/,refuse=409": {Match: apiproxy.Match{Verb: "update", Group: "apps", Resource: "deployments", Subresource: "status",
			Namespace: "a", Name: "b", Agent: "shop/"}, Effect: apiproxy.Effect{Refuse: 409}},
		"refuse=503,delay=10ms":                     {Effect: apiproxy.Effect{Refuse: 503, Delay: 10 * time.Millisecond}},
		"verb=patch,nth=3,lost=reply":               {Match: apiproxy.Match{Verb: "patch", From: 3, To: 3}, Effect: apiproxy.Effect{Lost: apiproxy.LostReply}},
		"verb=patch,refuse=504,lost=reply":          {Match: apiproxy.Match{Verb: "patch"}, Effect: apiproxy.Effect{Refuse: 504, Lost: apiproxy.LostReply}},
		"verb=get,lost=request":                     {Match: apiproxy.Match{Verb: "get"}, Effect: apiproxy.Effect{Lost: apiproxy.LostRequest}},
		"verb=create,delay=1s,lost=late":            {Match: apiproxy.Match{Verb: "create"}, Effect: apiproxy.Effect{Delay: time.Second, Lost: apiproxy.LostLate}},
		"nth=2-,down=1s":                            {Match: apiproxy.Match{From: 2}, Effect: apiproxy.Effect{Down: time.Second}},
		"verb=delete,nth=1,kill=before":             {Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Kill: apiproxy.Before}},
		"verb=delete,refuse=500,for=5s":             {Match: apiproxy.Match{Verb: "delete"}, Effect: apiproxy.Effect{Refuse: 500, For: 5 * time.Second}},
		"verb=delete,nth=1,stop=before":             {Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Stop: apiproxy.Before}},
		"verb=delete,nth=1,crash=after":             {Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Crash: apiproxy.After}},
		"verb=watch,nth=1,watch=unobserved,event=3": {Match: apiproxy.Match{Verb: "watch", From: 1, To: 1}, Effect: apiproxy.Effect{Watch: apiproxy.WatchUnobserved, Event: 3}},
		"verb=watch,late=1s,watch=no-bookmarks":     {Match: apiproxy.Match{Verb: "watch"}, Effect: apiproxy.Effect{Late: time.Second, Watch: apiproxy.WatchNoBookmarks}},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := apiproxy.ParseFault(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, text, got.String())
		})
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "post", "put", "options"} {
		_, err := apiproxy.ParseFault("delay=1s,verb=" + verb)
		require.NoError(t, err)
	}
	spaced, err := apiproxy.ParseFault("verb=get, delay=1s")
	require.NoError(t, err)
	require.Equal(t, "verb=get,delay=1s", spaced.String())
	require.Equal(t, "nth=1-2,delay=1s", apiproxy.Fault{Match: apiproxy.Match{To: 2}, Effect: apiproxy.Effect{Delay: time.Second}}.String())
	require.Equal(t, "nth=1,delay=1s", apiproxy.Fault{Match: apiproxy.Match{To: 1}, Effect: apiproxy.Effect{Delay: time.Second}}.String())
}

func TestParseFaultRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      `"" is not of the form key=value`,
		"verb":                                  `"verb" is not of the form key=value`,
		"verb=":                                 `"verb=" is not of the form key=value`,
		"colour=red,delay=1s":                   `there is no key "colour"; the keys are verb, group, resource, subresource, namespace, name, agent, nth, refuse, retry-after, delay, late, down, for, lost, kill, crash, stop, watch, event`,
		"verb=get,verb=list,delay=1s":           "verb is given twice",
		"verb=delete,resource=pods":             "it does not say what is to go wrong; give one of refuse=STATUS, ",
		"refuse=no":                             "refuse=no is not an HTTP status such as 500",
		"refuse=200":                            "refuse is 200; it must be an HTTP status from 400 to 599",
		"refuse=404,retry-after=1s":             "retry-after is for refusals with 429 or 5xx",
		"delay=1s,retry-after=1s":               "retry-after is for refusals with 429 or 5xx",
		"delay=2":                               "delay=2 is not a duration such as 2s",
		"delay=-2s":                             "delay=-2s is not a duration such as 2s",
		"late=2s":                               "late=2s is for watches; add verb=watch",
		"verb=list,late=2s":                     "late=2s is for watches; add verb=watch",
		"delay=1s,nth=0":                        "nth=0 is not a number, or a range such as 1-6 or 3-, from 1",
		"delay=1s,nth=x":                        "nth=x is not a number, or a range",
		"delay=1s,nth=6-1":                      "nth=6-1 is not a number, or a range",
		"delay=1s,nth=-3":                       "nth=-3 is not a number, or a range",
		"delay=1s,nth=1-x":                      "nth=1-x is not a number, or a range",
		"lost=both":                             "lost=both is not one of request, reply, late",
		"kill=never":                            "kill=never is not one of before, after",
		"crash=now":                             "crash=now is not one of before, after",
		"verb=watch,watch=late":                 "watch=late is not one of cut, expired, unobserved, held, no-bookmarks",
		"watch=cut":                             "watch=cut is for watches; add verb=watch",
		"verb=watch,watch=cut,event=0":          "event=0 is not a number from 1",
		"verb=watch,watch=cut,event=x":          "event=x is not a number from 1",
		"verb=get,delay=1s,event=2":             "event is the number, from 1, of the event at which",
		"verb=watch,watch=no-bookmarks,event=2": "event is the number, from 1, of the event at which",
		"verb=remove,delay=1s":                  `no request has the verb "remove"; the verbs are get, list, watch, create, update, patch, delete and deletecollection`,
		"verb=DELETE,delay=1s":                  `no request has the verb "DELETE"; `,
		"verb=post,resource=pods,delay=1s":      `no request for a resource has the verb "post"; `,
		"verb=watch,lost=reply":                 "lost=reply is not for watches",
		"verb=watch,lost=late":                  "lost=late is not for watches",
		"lost=request,refuse=500":               "with lost=request there is no answer",
		"lost=late,refuse=504":                  "with lost=late there is no answer",
		"verb=get,delay=1s,":                    `"" is not of the form key=value`,
		"delay=99999999999999999999999h":        "is not a duration",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := apiproxy.ParseFault(text)
			require.ErrorContains(t, err, fmt.Sprintf("fault %q: ", text))
			require.ErrorContains(t, err, want)
		})
	}
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfigAndClient(config, client(t, config))
	require.NoError(t, err)
	return c
}

func TestRefuse(t *testing.T) {
	for code, is := range map[int]func(error) bool{
		400: apierrors.IsBadRequest,
		401: apierrors.IsUnauthorized,
		403: apierrors.IsForbidden,
		404: apierrors.IsNotFound,
		409: apierrors.IsConflict,
		410: func(err error) bool { return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown },
		422: apierrors.IsInvalid,
		429: apierrors.IsTooManyRequests,
		500: apierrors.IsInternalError,
		503: apierrors.IsServiceUnavailable,
		504: apierrors.IsTimeout,
	} {
		for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			t.Run(fmt.Sprint(code, " ", contentType), func(t *testing.T) {
				w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
					apiproxy.Fault{Match: apiproxy.Match{Verb: "update"}, Effect: apiproxy.Effect{Refuse: code}})
				config := w.Config()
				config.ContentType = contentType
				_, err := clientset(t, config).CoreV1().ConfigMaps("shop").Update(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
				require.True(t, is(err), "%v", err)
				require.ErrorContains(t, err, fmt.Sprintf("refused on purpose by the workshop's proxy (verb=update,refuse=%d)", code))
				require.Equal(t, fmt.Sprintf("refused with %d", code), w.only().Injections())
				require.Equal(t, code, w.only().Status)
				require.False(t, w.only().NoOp)
			})
		}
	}
}

// client-go tries again by itself when it is told when to, and not otherwise.
func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		after    time.Duration
		requests int
	}{"without": {0, 1}, "with": {time.Millisecond, 2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`)
			}, apiproxy.Fault{Match: apiproxy.Match{From: 1, To: 1}, Effect: apiproxy.Effect{Refuse: 503, RetryAfter: c.after}})
			_, err := clientset(t, w.Config()).CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
			require.Equal(t, c.after == 0, apierrors.IsServiceUnavailable(err), "%v", err)
			require.Len(t, w.memory.History().Requests, c.requests)
		})
	}
}

func TestFaultsChoose(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/shop/deployments/frontend"
	for name, c := range map[string]struct {
		match apiproxy.Match
		want  string // for six requests: + is answered, - is refused
	}{
		"any":               {apiproxy.Match{}, "------"},
		"the second":        {apiproxy.Match{From: 2, To: 2}, "+-++++"},
		"some":              {apiproxy.Match{From: 2, To: 4}, "+---++"},
		"up to":             {apiproxy.Match{To: 2}, "--++++"},
		"from":              {apiproxy.Match{From: 5}, "++++--"},
		"verb":              {apiproxy.Match{Verb: "get"}, "------"},
		"other verb":        {apiproxy.Match{Verb: "list"}, "++++++"},
		"group":             {apiproxy.Match{Group: "apps"}, "------"},
		"other group":       {apiproxy.Match{Group: "batch"}, "++++++"},
		"resource":          {apiproxy.Match{Resource: "deployments"}, "------"},
		"other resource":    {apiproxy.Match{Resource: "pods"}, "++++++"},
		"other subresource": {apiproxy.Match{Subresource: "status"}, "++++++"},
		"namespace":         {apiproxy.Match{Namespace: "shop"}, "------"},
		"other namespace":   {apiproxy.Match{Namespace: "sho"}, "++++++"},
		"name":              {apiproxy.Match{Name: "frontend"}, "------"},
		"other name":        {apiproxy.Match{Name: "front"}, "++++++"},
		"agent":             {apiproxy.Match{Agent: "shop/"}, "------"},
		"other agent":       {apiproxy.Match{Agent: "hop"}, "++++++"},
		"all of it":         {apiproxy.Match{Verb: "get", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "frontend", Agent: "shop", From: 3, To: 3}, "++-+++"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, apiproxy.Fault{Match: c.match, Effect: apiproxy.Effect{Refuse: 500}})
			var got strings.Builder
			for range 6 {
				response, _ := w.do("GET", path, "", "User-Agent", "shop/v1")
				got.WriteByte(map[bool]byte{true: '+', false: '-'}[response.StatusCode == 200])
			}
			require.Equal(t, c.want, got.String())
		})
	}
}

// Each fault counts the requests that it is for, whatever others do to them.
func TestFaultsTogether(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {},
		apiproxy.Fault{Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{Refuse: 500}},
		apiproxy.Fault{Match: apiproxy.Match{From: 2, To: 3}, Effect: apiproxy.Effect{Refuse: 503}},
		apiproxy.Fault{Match: apiproxy.Match{From: 3, To: 3}, Effect: apiproxy.Effect{Delay: time.Millisecond}})
	var got []string
	for range 4 {
		response, _ := w.do("GET", "/version", "")
		got = append(got, fmt.Sprint(response.StatusCode))
	}
	require.Equal(t, []string{"200", "500", "503", "200"}, got)
	require.Equal(t, "delayed by 1ms, refused with 503", w.memory.History().Requests[2].Injections())
}

func TestDelay(t *testing.T) {
	const delay = 50 * time.Millisecond
	var came time.Time
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { came = time.Now() }, apiproxy.Fault{Effect: apiproxy.Effect{Delay: delay}})
	start := time.Now()
	response, _ := w.do("GET", "/version", "")
	require.Equal(t, 200, response.StatusCode)
	require.GreaterOrEqual(t, came.Sub(start), delay)
	require.GreaterOrEqual(t, w.only().Duration, delay)
	require.Equal(t, "delayed by 50ms", w.only().Injections())
}

func TestClientDoesNotWaitForADelay(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		apiproxy.Fault{Effect: apiproxy.Effect{Delay: time.Hour}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "DELETE", w.URL()+"/api/v1/namespaces/shop/pods/a", nil)
	require.NoError(t, err)
	_, err = client(t, w.Config()).Do(request)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	eventually(t, "recorded", func() bool { return len(w.memory.History().Requests) == 1 })
	require.Zero(t, w.only().Status)
	require.Equal(t, "the client went away", w.only().Error)
}

func TestStopDoesNotWaitForADelay(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it reached the API server") },
		apiproxy.Fault{Match: apiproxy.Match{Verb: "get"}, Effect: apiproxy.Effect{Delay: time.Hour}})
	failed := make(chan error)
	go func() {
		_, err := client(t, w.Config()).Get(w.URL() + "/version")
		failed <- err
	}()
	// It cannot be seen from outside that the request has come. If Stop is sooner, that is fine, too.
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, w.Stop())
	require.Error(t, <-failed)
}

func TestLate(t *testing.T) {
	const late, events = 30 * time.Millisecond, 20
	sent := make([]atomic.Int64, events)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := range events {
			sent[i].Store(time.Now().UnixNano())
			_, _ = io.WriteString(w, added(fmt.Sprint(i+1)))
			w.(http.Flusher).Flush()
		}
	}, apiproxy.Fault{Match: apiproxy.Match{Verb: "watch"}, Effect: apiproxy.Effect{Late: late}})
	response, err := client(t, w.Config()).Get(w.URL() + "/api/v1/pods?watch=1")
	require.NoError(t, err)
	defer response.Body.Close()
	for i := range events {
		want := added(fmt.Sprint(i + 1))
		got := make([]byte, len(want))
		_, err := io.ReadFull(response.Body, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.GreaterOrEqual(t, time.Since(time.Unix(0, sent[i].Load())), late)
	}
	_, err = response.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the end is late, too, but comes")
	h := w.memory.History()
	require.Len(t, h.Events, events)
	for i, e := range h.Events {
		require.GreaterOrEqual(t, e.Time.UnixNano()-sent[i].Load(), int64(late), "it is recorded when it was delivered")
	}
	require.Equal(t, "events late by 30ms", w.only().Injections())
}

// What is late is not delivered to nobody, and does not keep anything alive.
func TestLateForever(t *testing.T) {
	for name, end := range map[string]func(w *world, cancel func()){
		"the client goes away": func(w *world, cancel func()) { cancel() },
		"the proxy stops":      func(w *world, _ func()) { require.NoError(w.t, w.Stop()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, added("1"))
			}, apiproxy.Fault{Match: apiproxy.Match{Verb: "watch"}, Effect: apiproxy.Effect{Late: time.Hour}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, "GET", w.URL()+"/api/v1/pods?watch=1", nil)
			require.NoError(t, err)
			response, err := client(t, w.Config()).Do(request)
			require.NoError(t, err)
			defer response.Body.Close()
			end(w, cancel)
			eventually(t, "recorded", func() bool { return !w.only().Open })
			require.Empty(t, w.memory.History().Events)
		})
	}
}
