package reporthtml_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/torture/report"
	"example.com/controllers/harness/torture/reporthtml"
)

var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// run is a recording of a Deployment that is scaled, and of a loop that is to patch another. A loop that fails does not.
func run(fails bool) *history.History {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	request := func(id int64, ms int, verb, name, rv string) *history.Request {
		return &history.Request{ID: id, Start: at(ms), Duration: time.Millisecond, Agent: "loop/v1", Verb: verb, Group: "apps", Version: "v1", Resource: "deployments",
			Name: name, URI: "/apis/apps/v1/deployments/" + name, Status: 200, RVAfter: rv}
	}
	step := func(ms int, name string) history.Record {
		return history.Record{Step: &history.Step{Time: at(ms), Name: name}}
	}
	records := []history.Record{step(0, "the start"), step(100, "scale <web>"), {Request: request(1, 110, "get", "quiet", "4")}, {Request: request(2, 120, "patch", "web", "5")}}
	if fails {
		records[3].Request.Status, records[3].Request.RVAfter = 500, ""
		records[3].Request.Injected = []history.Injection{{Kind: history.Refused, Status: 500}}
	}
	return history.Of(records...)
}

func failure() report.Failure {
	return report.Failure{
		Verdict: "change lost", Cause: "web", Message: "the Deployment <web> is not scaled", Confirmed: true, Kinds: []string{"answered 500"}, Seen: 2, Runs: 3,
		Plans: []report.Plan{{Kind: "answered 500", Faults: []string{"verb=patch,refuse=500"}, Verdict: "change lost", Message: "no",
			Requests: []string{"TIME  VERB", "0.1s  patch"}, Replay: "workshop torture --fault '<'", Files: "/tmp/x", View: "workshop view /tmp/x.jsonl"}},
		Behind: []string{"behind at 0.120s: it knew nothing"}, Run: run(true),
	}
}

func write(t *testing.T, s *report.Summary) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, reporthtml.Write(&out, s))
	return out.String()
}

func TestWrite(t *testing.T) {
	second := failure()
	second.Confirmed, second.Runs, second.Plans = false, 1, append(second.Plans, second.Plans...)
	text := write(t, &report.Summary{
		Scenario: "shop/<torture>.yaml", Plans: 3, Failed: 1, NotMet: 1, Duration: 83 * time.Second, Baseline: run(false),
		Kinds:    []report.Kind{{Name: "answered 500", Plans: 3, Passed: 1, NotMet: 1, Failed: []report.Count{{Verdict: "change lost", Plans: 1}}}},
		Failures: []report.Failure{failure(), second}, Notes: []report.Note{{Text: "it did more", Plans: 2}},
	})
	for _, part := range []string{
		"What torture found with shop/&lt;torture&gt;.yaml", "3 plans, 1 failed; 1m23s",
		"1. change lost: the Deployment &lt;web&gt; is not scaled", "1 plan: answered 500, which failed like this in 2 of 3 runs.",
		"It did not do what a change called for in the time that it had", "workshop torture --fault &#39;&lt;&#39;", "workshop view /tmp/x.jsonl", "behind at 0.120s: it knew nothing",
		"0.12 s: patch deployments.apps web by loop: refused with 500", "0.1s  patch", "All 2 plans that failed like this",
		"Not counted, as it has been seen once", "it did more (plans: 2)", "scale &#60;web&#62;", "NOT INJECTED: the request",
		"the other run has no such write in this step",
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "<web>")
	require.NotContains(t, text, "<torture>")
	require.Equal(t, 4, strings.Count(text, "<figure>"), "each failure, above a run without faults")
	require.NotContains(t, text, ">quiet<", "nobody wrote to it")
	require.Contains(t, text, "Objects to which nobody wrote are left out (2 rows).")

	require.NotRegexp(t, `(?i)<script|\b(src|href)=|url\((?:[^#]|#[^b])`, text, "it needs no other file")
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(text)[1]
	sum := sha256.Sum256([]byte(style))
	require.Contains(t, text, "style-src &#39;sha256-"+strings.ReplaceAll(base64.StdEncoding.EncodeToString(sum[:]), "+", "&#43;")+"&#39;", "the browser applies the style")
}

// A report is written of any run, also if there is little to tell.
func TestWriteLittle(t *testing.T) {
	text := write(t, &report.Summary{Plans: 5})
	require.Contains(t, text, "5 plans, 0 failed; 0s")
	require.NotContains(t, text, "How to read the pictures")

	text = write(t, &report.Summary{Plans: 1, Planned: 7, Error: "the disk is full", Resume: "workshop torture --resume", NotRun: 1,
		CouldNotRun: &report.Example{Plans: 1, First: report.Plan{Kind: "slow", Message: "no port"}}})
	for _, part := range []string{"ended by an error: 1 of 7 plans were run", "the disk is full", "workshop torture --resume", "nothing is known about the controller. The first: slow: no port"} {
		require.Contains(t, text, part)
	}

	alone := failure() // the baseline may be of a run elsewhere, and the recording too large to keep
	text = write(t, &report.Summary{Failures: []report.Failure{alone}})
	require.Equal(t, 1, strings.Count(text, "<figure>"))
	alone.Run = &history.History{}
	require.NotContains(t, write(t, &report.Summary{Failures: []report.Failure{alone}}), "<figure>")
}

func TestWriteFails(t *testing.T) {
	require.ErrorIs(t, reporthtml.Write(full{}, &report.Summary{}), errFull)
}

var errFull = errors.New("the disk is full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
