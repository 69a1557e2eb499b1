package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
	"example.com/controllers/harness/view/internal/recorded"
	"example.com/controllers/harness/view/page"
)

// The page is generated. Its first lines have a hash of what it was generated from.
func TestGenerated(t *testing.T) {
	sum := sha256.New()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == "view.html" || entry.Name() == "svg.min.js" || strings.HasPrefix(entry.Name(), ".") || strings.HasSuffix(entry.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(entry.Name())
		require.NoError(t, err)
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(text), text)
	}
	html, err := os.ReadFile("view.html")
	require.NoError(t, err)
	require.Contains(t, string(html[:300]), fmt.Sprintf("hash is %x", sum.Sum(nil)), "the page has changed: run make page")
}

func TestPageNeedsNothingElse(t *testing.T) {
	var r recorded.Recorder
	r.Request(0, 1, `</script><script>alert("a")</script>`, "patch", `<img src=x onerror="alert(1)">`, func(q *history.Request) { q.Error = "<!-- <script>" })
	var html bytes.Buffer
	require.NoError(t, page.Write(&html, view.Of("test", history.Of(r.Records...))))
	text := html.String()
	require.Contains(t, text, "connect-src 'none'")
	require.Equal(t, 2, strings.Count(strings.ToLower(text), "</script"), "that of the model, and that of the script")
	require.NotContains(t, text, "<img")
	require.NotRegexp(t, `\b(src|href)="`, text)
	require.Less(t, html.Len(), 300_000)
}

func TestPicture(t *testing.T) {
	m := view.Of(`"quoted" & <titled>`, history.Of(stored()...))
	for name, test := range map[string]struct {
		picture  page.Picture
		has, not string
	}{
		"all of it":         {page.Picture{Width: 800}, "behind for 795 ms", "</title><script"},
		"one object":        {page.Picture{Width: 800, Query: "object:node-0"}, "node-0", "node-1"},
		"one moment":        {page.Picture{Width: 800, From: 940, To: 980}, "960 ms", "behind for"},
		"in the dark":       {page.Picture{Width: 800, Dark: true}, "#12161c", "#ffffff"},
		"a name is no code": {page.Picture{Width: 800}, "&#60;img", "<img"},
	} {
		var out bytes.Buffer
		require.NoError(t, test.picture.Write(&out, m), name)
		require.Contains(t, out.String(), test.has, name)
		require.NotContains(t, out.String(), test.not, name)
		require.NoError(t, xml.Unmarshal(out.Bytes(), new(struct{ XMLName xml.Name })), name)
	}
	require.ErrorContains(t, page.Picture{Width: 800, From: 5, To: 4}.Write(&bytes.Buffer{}, m), "the end must come after the beginning")
}
