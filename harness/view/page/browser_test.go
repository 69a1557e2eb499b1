package page_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/suite"
	"example.com/controllers/harness/torture/report"
	"example.com/controllers/harness/torture/reporthtml"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
	"example.com/controllers/harness/view/page"
)

// browser returns a page of a headless Chromium.
func browser(t *testing.T) *tab {
	suite.Long(t, "it starts a browser")
	return newTab(t)
}

func newTab(t testing.TB, flags ...string) *tab {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("Chromium is not installed; on Debian: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 720),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(2*time.Minute))
	for _, flag := range flags {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		require.NoError(t, chromedp.Cancel(ctx))
		cancel()
		stop()
	})
	p := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			p.requests = append(p.requests, e.Request.URL)
		case *runtime.EventExceptionThrown:
			p.errors = append(p.errors, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				p.errors = append(p.errors, string(a.Value))
			}
		}
	}))
	p.run(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		// An answer to a key stands for seconds, and on a busy machine a test may need longer to see it.
		_, err := cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{
			Source: "(() => { const set = setTimeout; window.setTimeout = (f, ms) => ms === 4000 ? window.forget = f : set(f, ms); })()",
		})
		return err
	}))
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.errors, "the page's errors")
	})
	return p
}

// tab is a page in a browser.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string
	errors   []string
}

func (p *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// evaluate evaluates JavaScript.
func evaluate[T any](p *tab, script string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, script)
	return value
}

// open opens a page and waits until it is drawn.
func (p *tab) open(url string) {
	p.t.Helper()
	p.run(chromedp.Navigate(url))
	p.until(`document.querySelector('#bill tr') && document.getElementById('canvas').width > 0`)
}

// until waits until a condition in JavaScript holds. The page's own policy forbids to evaluate text, so that it cannot be polled otherwise.
func (p *tab) until(condition string) {
	p.t.Helper()
	if !evaluate[bool](p, "new Promise((resolve) => { let n = 0; const look = () => { if ("+condition+") resolve(true); "+
		"else if (++n > 3000) resolve(false); else setTimeout(look, 20); }; look(); })") {
		require.FailNow(p.t, "it does not come to this: "+condition, "state: %s\ndetails: %s\nbill: %s\naddress: %s",
			p.text("#state"), p.text("#details"), p.text("#bill"), evaluate[string](p, "location.hash"))
	}
}

func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.run(chromedp.KeyEvent(key))
	}
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return evaluate[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

func (p *tab) says(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.querySelector(%q).textContent.includes(%q)", selector, text))
}

// stored is a recording with a stale cache, a conflict, a retry and a fault.
func stored() []history.Record {
	var r recorded.Recorder
	w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
	for i := range 3 {
		r.Event(w, 1, "ADDED", fmt.Sprint("node-", i), fmt.Sprint(10+i))
	}
	r.Request(100, 110, "kubectl", "patch", "node-0", recorded.After("20"))
	r.Late(w, 105, 900, "MODIFIED", "node-0", "20")
	r.Request(400, 402, "loop", "update", "node-0", func(q *history.Request) { q.Status, q.RVBefore = 409, "10" })
	r.Request(500, 502, "loop", "get", "node-1", recorded.After("11"))
	r.Request(950, 955, "loop", "update", "node-0", func(q *history.Request) { q.RVBefore, q.RVAfter = "20", "30" })
	r.Event(w, 960, "MODIFIED", "node-0", "30")
	r.Request(990, 1000, "loop", "patch", `<img src=x onerror=alert(1)>`, func(q *history.Request) {
		q.Status, q.Injected = 500, []history.Injection{{Kind: history.Refused, Status: 500}}
	})
	return r.Records
}

// A page in a file, without network, used with the keyboard alone.
func TestPageInAFile(t *testing.T) {
	p := browser(t)
	path := filepath.Join(t.TempDir(), "page.html")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, page.Write(file, view.Of("recording <b>of a test</b>", history.Of(stored()...))))
	require.NoError(t, file.Close())
	p.open("file://" + path)
	require.Equal(t, "recording <b>of a test</b>", p.text("#title"))
	require.Equal(t, "kubectl1110000.0", p.text("#bill tr:nth-child(2)"))

	p.press("s") // the write by a program that was behind
	p.says("#details", "loop: update nodes node-0 (conflict, 409)")
	p.says("#details", "It had been told of version 10; the API server had version 20, and it had been behind for 295ms.")
	p.until(`location.hash.includes('at=m2')`)

	p.press("w", "w") // the conflict was one, so: its second try, then the one that is refused
	p.says("#details", "loop: patch nodes <img src=x onerror=alert(1)> (refused, 500)")
	p.says("#details", "On purpose: refused with 500.")
	p.press("W")
	p.says("#details", "loop: update nodes node-0 (changed it, 200)")
	p.says("#details", "The last event about this object that it had been told of since its last write to it.")

	// The chain: from the write to the event that came before, to the version, to who wrote it.
	follow := func(text string) {
		t.Helper()
		evaluate[chromedp.Void](p, fmt.Sprintf("[...document.querySelectorAll('#details button')].find((b) => b.textContent.includes(%q)).click()", text))
	}
	follow("loop was told at 900 ms: MODIFIED nodes node-0 at version 20, held back for 795 ms")
	follow("version 20, written by kubectl, at 105 ms")
	follow("kubectl: patch nodes node-0")
	p.says("#details", "Who acted after it, inferred")
	p.until(`location.hash === '#at=m1'`)

	p.press("/", kb.Backspace) // unlike a keyboard, chromedp types the character although the page has taken the key
	p.press("failed")
	p.says("#state", "The filter shows 2 of 5 rows and 2 of 6 requests; Esc shows all.")
	p.press(kb.Enter, "t")
	p.says("#words", "2 requests from")
	p.until(`location.hash.includes('q=failed')`)

	p.run(chromedp.Reload()) // the address has all of it
	p.says("#state", "The filter shows 2 of 5 rows")
	p.says("#details", "kubectl: patch nodes node-0")
	p.press(kb.Escape, kb.Escape)
	p.until(`document.getElementById('state').textContent === ''`)
	p.press("c", "c")
	p.says("#state", "There is no later conflict.")
	p.press("?")
	p.until(`document.getElementById('help').open`)
	p.press(kb.Escape, "+", "+", kb.ArrowRight)
	p.until(`/from=[0-9.]+&to=[0-9.]+/.test(location.hash)`)
	p.press("0")
	p.until(`!location.hash.includes('from=')`)

	p.press("]", "]", "]", " ") // ten times as fast
	p.until(`document.getElementById('state').textContent.includes('At ')`)
	p.until(`document.getElementById('play').textContent === '▶'`) // it has come to the end
	evaluate[chromedp.Void](p, "dispatchEvent(new Event('beforeprint'))")
	p.until(`document.querySelector('#print svg title').textContent === 'recording <b>of a test</b>'`)

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.requests {
		require.Equal(t, "file://"+path, strings.Split(url, "#")[0], "no request leaves the page")
	}
}

// A page that follows a recording while it grows.
func TestPageFollows(t *testing.T) {
	p := browser(t)
	records := stored()
	s := serve(t)
	p.open(s.url)
	p.says("#state", "No request has been recorded yet.")
	s.add(records[:5]...)
	p.says("#bill", "kubectl")
	p.press("n", "n")
	p.says("#details", "kubectl: patch nodes node-0")
	p.press("f")
	p.says("#state", "There is no later fault.")
	s.add(records[5:7]...)
	p.until(`document.querySelectorAll('#bill tr').length === 3`)
	require.Contains(t, p.text("#state"), "There is no later fault.")
	s.add(records[7:]...)
	p.until(`document.querySelectorAll('#bill tr').length === 3 && document.querySelector('#bill tr:nth-child(3)').textContent.startsWith('loop5')`)
	p.says("#details", "kubectl: patch nodes node-0") // still, as does what was said
	require.Contains(t, p.text("#state"), "There is no later fault.")
	evaluate[chromedp.Void](p, "window.forget()")
	p.until(`document.getElementById('state').textContent === ''`)
	require.NoError(t, os.Remove(s.path))
	p.says("#state", "The recording is gone; the page shows what was in it.")
}

// On a narrow screen, nothing is wider than it.
func TestNarrowPage(t *testing.T) {
	p := browser(t)
	s := serve(t, stored()...)
	p.run(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	p.open(s.url + "#at=m2")
	p.says("#details", "conflict")
	require.LessOrEqual(t, evaluate[int](p, "document.documentElement.scrollWidth"), 390)
}

// What torture has found is a page that a browser shows without network: no request leaves it.
func TestReportMakesNoRequests(t *testing.T) {
	p := browser(t)
	at := func(ms int) time.Time { return recorded.Start.Add(time.Duration(ms) * time.Millisecond) }
	run := history.Of(append(stored(), history.Record{Step: &history.Step{Time: at(0), Name: "the start"}},
		history.Record{Process: &history.Process{Time: at(0), Program: "loop", State: history.Running}})...)
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, reporthtml.Write(file, &report.Summary{Baseline: run, Failures: []report.Failure{{Verdict: "died", Plans: []report.Plan{{}}, Run: run}}}))
	require.NoError(t, file.Close())
	p.run(chromedp.Navigate("file://" + path))
	p.until(`document.querySelectorAll('figure svg').length === 2`)
	require.Greater(t, evaluate[float64](p, `document.querySelector('figure svg').getBoundingClientRect().width`), 1000.0)
	require.Equal(t, "15px", evaluate[string](p, `getComputedStyle(document.body).fontSize`), "its policy allows its style")
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t, []string{"file://" + path}, p.requests)
}

// BenchmarkPan compares how often the page can draw a recording of 100,000 records while somebody moves through it with how often it could if
// it drew every mark. Both are measured in turns.
func BenchmarkPan(b *testing.B) {
	var r recorded.Recorder
	const nodes, records = 1000, 100_000
	w := r.Request(0, 1, "loop", "watch", "", recorded.Open)
	for i := range records / 2 {
		name, at := fmt.Sprint("node-", i%nodes), float64(i)
		r.Request(at, at+3, "loop", "patch", name, recorded.After(fmt.Sprint(10+i)))
		r.Event(w, at+4, "MODIFIED", name, fmt.Sprint(10+i))
	}
	path := filepath.Join(b.TempDir(), "page.html")
	file, err := os.Create(path)
	require.NoError(b, err)
	require.NoError(b, page.Write(file, view.Of("many", history.Of(r.Records...))))
	require.NoError(b, file.Close())
	p := newTab(b, "disable-frame-rate-limit", "disable-gpu-vsync")
	p.run(chromedp.Navigate("about:blank"))
	p.open("file://" + path)
	// frame returns how long it takes to draw a frame, in milliseconds.
	frame := func(address string) float64 {
		evaluate[chromedp.Void](p, fmt.Sprintf("location.hash = %q", address))
		return evaluate[float64](p, `(async () => {
			const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
			const move = (key) => document.dispatchEvent(new KeyboardEvent('keydown', {key}));
			for (let i = 0; i < 3; i++) { move('ArrowLeft'); await frame(); }
			const begin = performance.now(), frames = 10;
			for (let i = 0; i < frames; i++) { move(i % 2 ? 'ArrowLeft' : 'ArrowRight'); await frame(); }
			return (performance.now() - begin) / frames;
		})()`)
	}
	for _, where := range []struct{ name, address string }{
		{"all of it as one row", "from=1&to=40000"}, {"a second, a row for each object", "from=20000&to=21000&open=nodes%20node-*"},
	} {
		b.Run(where.name, func(b *testing.B) {
			var ours, naive float64
			for b.Loop() {
				ours += frame(where.address)
				naive += frame(where.address + "&draw=all")
			}
			b.ReportMetric(ours/float64(b.N), "ms/frame")
			b.ReportMetric(naive/ours, "times-as-fast-as-all-marks")
		})
	}
}

// A program misses a version if it had a watch and was never told of it; not if it had none. And to look for what is not there is no failure.
func TestWhatAProgramMissed(t *testing.T) {
	p := browser(t)
	var r recorded.Recorder
	for _, program := range []string{"ended", "loop"} {
		w := r.Request(0, 1, program, "watch", "", func(q *history.Request) {
			if q.Open = program == "loop"; !q.Open {
				q.Duration = 50 * time.Millisecond
			}
		})
		r.Event(w, 10, "ADDED", "a", "10")
		if program == "loop" {
			r.Event(w, 400, "MODIFIED", "a", "30") // and none for 20
		}
	}
	r.Request(100, 101, "kubectl", "patch", "a", recorded.After("20"))
	r.Request(200, 201, "kubectl", "patch", "a", recorded.After("30"))
	r.Request(500, 501, "kubectl", "get", "z", func(q *history.Request) { q.Status = 404 })
	s := serve(t, r.Records...)
	p.open(s.url + "#at=v1.1")
	p.says("#details", "loop had a watch of it meanwhile, and was never told of this version.")
	require.NotContains(t, p.text("#details"), "ended had a watch")
	p.press("e")
	p.says("#state", "There is no later failure.")
	p.open(s.url + "?again#at=v1.2")
	p.says("#details", "version 30, written by kubectl")
	require.NotContains(t, p.text("#details"), "was never told")
}
