package view_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/controllers/harness/history"
	"example.com/controllers/harness/view"
)

// The page is generated. Its first lines have a hash of what it was generated from.
func TestGenerated(t *testing.T) {
	sum := sha256.New()
	entries, err := os.ReadDir("page")
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == "view.html" || entry.Name() == "svg.min.js" || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("page", entry.Name()))
		require.NoError(t, err)
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(text), text)
	}
	page, err := os.ReadFile("page/view.html")
	require.NoError(t, err)
	require.Contains(t, string(page[:300]), fmt.Sprintf("hash is %x", sum.Sum(nil)), "the page has changed: run make page")
}

func TestPageNeedsNothingElse(t *testing.T) {
	var r recorder
	r.request(0, 1, `</script><script>alert("a")</script>`, "patch", `<img src=x onerror="alert(1)">`, func(q *history.Request) { q.Error = "<!-- <script>" })
	var page bytes.Buffer
	require.NoError(t, view.Page(&page, r.model()))
	text := page.String()
	require.Contains(t, text, "connect-src 'none'")
	require.Equal(t, 2, strings.Count(strings.ToLower(text), "</script"), "that of the model, and that of the script")
	require.NotContains(t, text, "<img")
	require.NotRegexp(t, `\b(src|href)="`, text)
	require.Less(t, page.Len(), 300_000)
}

func TestPicture(t *testing.T) {
	m := view.Of(`"quoted" & <titled>`, history.Of(stored()...))
	for name, test := range map[string]struct {
		picture  view.Picture
		has, not string
	}{
		"all of it":         {view.Picture{Width: 800}, "behind for 795 ms", "</title><script"},
		"one object":        {view.Picture{Width: 800, Query: "object:node-0"}, "node-0", "node-1"},
		"one moment":        {view.Picture{Width: 800, From: 940, To: 980}, "960 ms", "behind for"},
		"in the dark":       {view.Picture{Width: 800, Dark: true}, "#12161c", "#ffffff"},
		"a name is no code": {view.Picture{Width: 800}, "&#60;img", "<img"},
	} {
		var out bytes.Buffer
		require.NoError(t, test.picture.Write(&out, m), name)
		require.Contains(t, out.String(), test.has, name)
		require.NotContains(t, out.String(), test.not, name)
		require.NoError(t, xml.Unmarshal(out.Bytes(), new(struct{ XMLName xml.Name })), name)
	}
	require.ErrorContains(t, view.Picture{Width: 800, From: 5, To: 4}.Write(&bytes.Buffer{}, m), "the end must come after the beginning")
}
