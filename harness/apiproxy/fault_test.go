package apiproxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		"verb=create,group=core,resource=events,refuse=403": {Match: apiproxy.Match{Verb: "create", Group: apiproxy.CoreGroup, Resource: "events"},
			Effect: apiproxy.Effect{Refuse: 403}},
		"verb=patch,resource=nodes,subresource=none,refuse=409": {Match: apiproxy.Match{Verb: "patch", Resource: "nodes", Subresource: apiproxy.NoSubresource},
			Effect: apiproxy.Effect{Refuse: 409}},
		"refuse=503,delay=10ms":                     {Effect: apiproxy.Effect{Refuse: 503, Delay: 10 * time.Millisecond}},
		"verb=patch,nth=3,lost=reply":               {Match: apiproxy.Match{Verb: "patch", From: 3, To: 3}, Effect: apiproxy.Effect{Lost: apiproxy.LostReply}},
		"verb=patch,refuse=504,lost=reply":          {Match: apiproxy.Match{Verb: "patch"}, Effect: apiproxy.Effect{Refuse: 504, Lost: apiproxy.LostReply}},
		"verb=get,lost=request":                     {Match: apiproxy.Match{Verb: "get"}, Effect: apiproxy.Effect{Lost: apiproxy.LostRequest}},
		"verb=create,delay=1s,lost=late":            {Match: apiproxy.Match{Verb: "create"}, Effect: apiproxy.Effect{Delay: time.Second, Lost: apiproxy.LostLate}},
		"nth=2-,down=1s":                            {Match: apiproxy.Match{From: 2}, Effect: apiproxy.Effect{Down: time.Second}},
		"verb=delete,nth=1,kill=before":             {Match: apiproxy.Match{Verb: "delete", From: 1, To: 1}, Effect: apiproxy.Effect{Kill: apiproxy.Before}},
		"verb=update,nth=2,answer-late=3s":          {Match: apiproxy.Match{Verb: "update", From: 2, To: 2}, Effect: apiproxy.Effect{AnswerLate: 3 * time.Second}},
		"verb=list,nth=1,hang=20s":                  {Match: apiproxy.Match{Verb: "list", From: 1, To: 1}, Effect: apiproxy.Effect{Hang: 20 * time.Second}},
		"verb=update,nth=1,freeze=before":           {Match: apiproxy.Match{Verb: "update", From: 1, To: 1}, Effect: apiproxy.Effect{Freeze: apiproxy.Before}},
		"nth=1,freeze=after,freeze-for=5s":          {Match: apiproxy.Match{From: 1, To: 1}, Effect: apiproxy.Effect{Freeze: apiproxy.After, FreezeFor: 5 * time.Second}},
		"verb=patch,program=agent,reboot=before":    {Match: apiproxy.Match{Verb: "patch", Program: "agent"}, Effect: apiproxy.Effect{Reboot: apiproxy.Before}},
		"nth=2,power-cut=after":                     {Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{PowerCut: apiproxy.After}},
		"nth=2,reboot=before,off-for=1m0s":          {Match: apiproxy.Match{From: 2, To: 2}, Effect: apiproxy.Effect{Reboot: apiproxy.Before, OffFor: time.Minute}},
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
		"colour=red,delay=1s":                   `there is no key "colour"; the keys are verb, group, resource, subresource, namespace, name, agent, program, nth, refuse, retry-after, delay, answer-late, hang, late, down, for, lost, kill, crash, stop, freeze, freeze-for, reboot, power-cut, off-for, watch, event`,
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
		"hang=1s,refuse=504":                    "with hang there is no answer",
		"freeze=now":                            "freeze=now is not one of before, after",
		"reboot=5s":                             "reboot=5s is not one of before, after",
		"power-cut=now":                         "power-cut=now is not one of before, after",
		"delay=1s,freeze-for=5s":                "add freeze=before or freeze=after",
		"delay=1s,off-for=5s":                   "add reboot or power-cut",
		"freeze-for=5s":                         "it does not say what is to go wrong",
		"freeze=after,freeze-for=0s":            "freeze-for=0s is not a duration",
		"verb=watch,answer-late=1s":             "answer-late is not for watches",
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
		"no subresource":    {apiproxy.Match{Subresource: apiproxy.NoSubresource}, "------"},
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

// Requests for a subresource are for the resource, too, unless the fault says otherwise.
func TestSubresources(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/shop/deployments/frontend"
	for subresource, want := range map[string]string{"": "500 500", "status": "200 500", apiproxy.NoSubresource: "500 200", "scale": "200 200"} {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {},
			apiproxy.Fault{Match: apiproxy.Match{Resource: "deployments", Subresource: subresource}, Effect: apiproxy.Effect{Refuse: 500}})
		itself, _ := w.do("GET", path, "")
		status, _ := w.do("GET", path+"/status", "")
		require.Equal(t, want, fmt.Sprint(itself.StatusCode, " ", status.StatusCode), subresource)
	}
}

// Events, for example, are in the core group and in another one. A request for no resource is in no group.
func TestTheCoreGroup(t *testing.T) {
	for group, want := range map[string]string{"": "500 500 500", apiproxy.CoreGroup: "500 200 200", "events.k8s.io": "200 500 200"} {
		w := newWorld(t, func(http.ResponseWriter, *http.Request) {},
			apiproxy.Fault{Match: apiproxy.Match{Group: group}, Effect: apiproxy.Effect{Refuse: 500}})
		core, _ := w.do("GET", "/api/v1/namespaces/shop/events/a", "")
		other, _ := w.do("GET", "/apis/events.k8s.io/v1/namespaces/shop/events/a", "")
		path, _ := w.do("GET", "/version", "")
		require.Equal(t, want, fmt.Sprint(core.StatusCode, " ", other.StatusCode, " ", path.StatusCode), group)
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
