package history_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"example.com/controllers/harness/history"
)

// A controller named shop watches ConfigMaps. When one changes, it deletes two Pods. After the second change it deletes
// a Pod that is gone already, and updates a Deployment without changing it.
const recording = `
{"request":{"id":1,"start":"2026-01-02T15:00:00Z","ms":2,"agent":"shop/v1 (linux/amd64)","verb":"watch","version":"v1","resource":"configmaps","ns":"shop","uri":"/api/v1/namespaces/shop/configmaps?watch=true","status":200,"open":true}}
{"event":{"watch":1,"time":"2026-01-02T15:00:01Z","type":"MODIFIED","resource":"configmaps","ns":"shop","name":"colors","rv":"20","bytes":600}}
{"request":{"id":2,"start":"2026-01-02T15:00:01Z","ms":40,"agent":"shop/v1 (linux/amd64)","verb":"delete","version":"v1","resource":"pods","ns":"shop","name":"a","uri":"/api/v1/namespaces/shop/pods/a","status":200,"received":1500,"rvBefore":"11","rvAfter":"21"}}
{"request":{"id":3,"start":"2026-01-02T15:00:02Z","ms":500,"agent":"shop/v1 (linux/amd64)","verb":"delete","version":"v1","resource":"pods","ns":"shop","name":"b","uri":"/api/v1/namespaces/shop/pods/b","status":200,"received":1500,"rvBefore":"12","rvAfter":"22"}}
{"event":{"watch":1,"time":"2026-01-02T15:00:10Z","type":"MODIFIED","resource":"configmaps","ns":"shop","name":"colors","rv":"30","bytes":400}}
{"request":{"id":4,"start":"2026-01-02T15:00:11Z","ms":100,"agent":"shop/v1 (linux/amd64)","verb":"delete","version":"v1","resource":"pods","ns":"shop","name":"b","uri":"/api/v1/namespaces/shop/pods/b","status":404,"received":200}}
{"request":{"id":5,"start":"2026-01-02T15:00:12Z","ms":1000,"agent":"shop/v1 (linux/amd64)","verb":"update","group":"apps","version":"v1","resource":"deployments","ns":"shop","name":"frontend","uri":"/apis/apps/v1/namespaces/shop/deployments/frontend","status":200,"sent":900,"received":900,"rvBefore":"15","rvAfter":"15","noop":true}}
{"request":{"id":6,"start":"2026-01-02T15:00:20Z","ms":3,"who":"workshop:admin","agent":"kubectl/v1.37.1 (linux/amd64)","verb":"list","version":"v1","resource":"pods","ns":"shop","uri":"/api/v1/namespaces/shop/pods?limit=500","status":200,"received":3000,"rvAfter":"31"}}
{"request":{"id":1,"start":"2026-01-02T15:00:00Z","ms":30000,"agent":"shop/v1 (linux/amd64)","verb":"watch","version":"v1","resource":"configmaps","ns":"shop","uri":"/api/v1/namespaces/shop/configmaps?watch=true","status":200}}
`

func read() *history.History {
	h, err := history.Read(strings.NewReader(recording))
	if err != nil {
		panic(err)
	}
	return h
}

func at(second int) time.Time { return time.Date(2026, 1, 2, 15, 0, second, 0, time.UTC) }

func Example() {
	h := read()
	ofShop := h.Where(func(r history.Request) bool { return r.ShortAgent() == "shop" })
	fmt.Println("writes:", len(ofShop.Writes()))
	fmt.Println("writes that changed nothing:", len(ofShop.NoOps()))
	fmt.Println("done after:", ofShop.TimeToLastWrite([]time.Time{at(1), at(10)}))
	fmt.Println("writes since then:", len(ofShop.WritesAfter(at(13))))
	// Output:
	// writes: 4
	// writes that changed nothing: 1
	// done after: [1.5s 3s]
	// writes since then: 0
}

func ExampleRead() {
	// The recorder was killed while it was writing the second line.
	h, err := history.Read(strings.NewReader(
		`{"request":{"id":1,"start":"2026-01-02T15:00:00Z","ms":1.5,"verb":"get","uri":"/version","status":200}}` + "\n" +
			`{"request":{"id":2,"st`))
	fmt.Println(len(h.Requests), h.Requests[0].Duration, err)

	_, err = history.Read(strings.NewReader("{}\n{}\n"))
	fmt.Println(err)
	// Output:
	// 1 1.5ms <nil>
	// line 1: not a record: it must have one of request, event, seen, step, process and sample
}

func ExampleReadFile() {
	_, err := history.ReadFile("nowhere.jsonl")
	fmt.Println(err)
	// Output: read the recording: open nowhere.jsonl: no such file or directory
}

func ExampleWrite() {
	record := history.Record{Request: &history.Request{
		ID: 1, Start: at(0), Duration: 1500 * time.Microsecond, Verb: "list", Version: "v1", Resource: "nodes",
		URI: "/api/v1/nodes?limit=500&watch=false", Status: 200,
	}}
	if err := history.Write(os.Stdout, record); err != nil {
		panic(err)
	}
	// Output:
	// {"request":{"id":1,"start":"2026-01-02T15:00:00Z","verb":"list","version":"v1","resource":"nodes","uri":"/api/v1/nodes?limit=500&watch=false","status":200,"ms":1.5}}
}

func ExampleOf() {
	// A watch is recorded when it begins and again when it has ended.
	watch := history.Request{ID: 1, Verb: "watch", Status: 200, Open: true}
	ended := watch
	ended.Open, ended.Duration = false, time.Minute
	h := history.Of(history.Record{Request: &watch}, history.Record{Request: &ended})
	fmt.Println(len(h.Requests), h.Requests[0].Open, h.Requests[0].Duration)
	// Output: 1 false 1m0s
}

func ExampleMemory() {
	var memory history.Memory // pass memory.Record to apiproxy.Options
	memory.Record(history.Record{Request: &history.Request{ID: 1, Verb: "get", URI: "/version", Status: 200}})
	fmt.Println(len(memory.History().Requests))
	// Output: 1
}

func ExampleHistory_Where() {
	pods := read().Where(func(r history.Request) bool { return r.Resource == "pods" })
	fmt.Println(len(pods.Requests), "requests,", len(pods.Events), "events")
	watches := read().Where(func(r history.Request) bool { return r.Verb == "watch" })
	fmt.Println(len(watches.Requests), "requests,", len(watches.Events), "events")
	// Output:
	// 4 requests, 0 events
	// 1 requests, 2 events
}

func ExampleHistory_Between() {
	// The watch began earlier, but one of its events falls into that time.
	h := read().Between(at(10), at(20))
	for _, r := range h.Requests {
		fmt.Println(r.Verb, r.What(), r.Object())
	}
	for _, e := range h.Events {
		fmt.Println(e.Type, e.Name)
	}
	fmt.Println(h.Span())
	// Output:
	// delete pods shop/b
	// update deployments.apps shop/frontend
	// MODIFIED colors
	// 10s
}

func ExampleHistory_Span() {
	fmt.Println(read().Span())
	// Output: 30s
}

func ExampleHistory_Writes() {
	for _, w := range read().Writes() {
		fmt.Println(w.Verb, w.What(), w.Object(), w.Status)
	}
	// Output:
	// delete pods shop/a 200
	// delete pods shop/b 200
	// delete pods shop/b 404
	// update deployments.apps shop/frontend 200
}

func ExampleHistory_NoOps() {
	for _, w := range read().NoOps() {
		fmt.Println(w.Verb, w.Object(), "stays at", w.RVAfter)
	}
	// Output: update shop/frontend stays at 15
}

func ExampleHistory_WritesAfter() {
	fmt.Println(len(read().WritesAfter(at(2))))
	// Output: 2
}

func ExampleHistory_LastWrite() {
	w, ok := read().LastWrite(at(1), at(10))
	fmt.Println(w.Object(), w.End().Format("05.0"), ok)
	_, ok = read().LastWrite(at(13), time.Time{})
	fmt.Println(ok)
	// Output:
	// shop/b 02.5 true
	// false
}

func ExampleHistory_TimeToLastWrite() {
	changes := []time.Time{at(1), at(10), at(20)}
	for i, duration := range read().TimeToLastWrite(changes) {
		if duration == history.NoWrite {
			fmt.Println("change", i, "led to no write")
			continue
		}
		fmt.Println("change", i, "was dealt with after", duration)
	}
	// Output:
	// change 0 was dealt with after 1.5s
	// change 1 was dealt with after 3s
	// change 2 led to no write
}

func ExampleHistory_Cost() {
	for _, c := range read().Cost() {
		fmt.Println(c.Verb, c.Resource, c.Requests, c.Events, c.Received)
	}
	// Output:
	// watch configmaps 1 2 1000
	// update deployments.apps 1 0 900
	// delete pods 3 0 3200
	// list pods 1 0 3000
}

func ExampleHistory_Agents() {
	fmt.Println(read().Agents())
	// Output: [kubectl shop]
}

func ExampleHistory_WriteBill() {
	if err := read().WriteBill(os.Stdout, history.BillOptions{}); err != nil {
		panic(err)
	}
	// Output:
	// VERB     RESOURCE           REQUESTS   NO-OP   FAILED   EVENTS   KB
	// watch    configmaps         1          0       0        2        1.0
	// update   deployments.apps   1          1       0        0        1.8
	// delete   pods               3          0       1        0        3.2
	// list     pods               1          0       0        0        3.0
	// total                       6          1       1        2        9.0
}

func ExampleHistory_WriteBill_perMinuteByAgent() {
	var bill bytes.Buffer
	options := history.BillOptions{PerMinute: true, ByAgent: true, ByWho: true}
	if err := read().Between(at(10), at(40)).WriteBill(&bill, options); err != nil {
		panic(err)
	}
	fmt.Print(bill.String())
	// Output:
	// AGENT     WHO              VERB     RESOURCE           REQUESTS   NO-OP   FAILED   EVENTS   KB
	// kubectl   workshop:admin   list     pods               2.0        0.0     0.0      0.0      6.0
	// shop      -                watch    configmaps         0.0        0.0     0.0      2.0      0.8
	// shop      -                update   deployments.apps   2.0        2.0     0.0      0.0      3.6
	// shop      -                delete   pods               2.0        0.0     2.0      0.0      0.4
	// total                                                  6.0        2.0     2.0      2.0      10.8
}

func ExampleRequest_Injections() {
	r := history.Request{Verb: "delete", Resource: "pods", Status: 503, Injected: []history.Injection{
		{Kind: history.Delayed, Duration: time.Second},
		{Kind: history.Refused, Status: 503},
	}}
	fmt.Println(r.Injections())
	fmt.Println(r.IsDisturbed(), r.IsOnlySlow())
	// Output:
	// delayed by 1s, refused with 503
	// true false
}

func ExampleRequest_IsWrite() {
	for _, r := range []history.Request{
		{Verb: "patch", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes", DryRun: true},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
		{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		{Verb: "create", Resource: "pods", Subresource: "eviction"},
	} {
		fmt.Println(r.Verb, r.What(), r.IsWrite())
	}
	// Output:
	// patch nodes true
	// patch nodes false
	// create serviceaccounts/token false
	// create subjectaccessreviews.authorization.k8s.io false
	// create pods/eviction true
}

func ExampleRequest_What() {
	fmt.Println(history.Request{Group: "apps", Resource: "deployments", Subresource: "status"}.What())
	fmt.Println(history.Request{URI: "/version?timeout=32s"}.What())
	// Output:
	// deployments.apps/status
	// /version
}

func ExampleRequest_Object() {
	fmt.Println(history.Request{Resource: "pods", Namespace: "shop", Name: "a"}.Object())
	fmt.Println(history.Request{Resource: "nodes", Name: "node-0"}.Object())
	fmt.Println(history.Request{Resource: "namespaces", Namespace: "shop", Name: "shop"}.Object())
	// Output:
	// shop/a
	// node-0
	// shop
}

func ExampleRequest_ShortAgent() {
	fmt.Println(history.Request{Agent: "kubectl/v1.37.1 (linux/amd64)"}.ShortAgent())
	// Output: kubectl
}

func ExampleRequest_Failed() {
	fmt.Println(history.Request{Status: 409}.Failed())
	fmt.Println(history.Request{Status: 0}.Failed())
	fmt.Println(history.Request{Status: 200, Error: "unexpected EOF"}.Failed())
	fmt.Println(history.Request{Verb: "watch", Status: 200, Open: true}.Failed())
	// Output:
	// true
	// true
	// true
	// false
}

func ExampleRequest_End() {
	fmt.Println(history.Request{Start: at(1), Duration: time.Second}.End().Second())
	// Output: 2
}
