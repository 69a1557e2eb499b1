package view_test

import (
	"bytes"
	"crypto/sha256"
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
		if entry.IsDir() || entry.Name() == "view.html" || strings.HasPrefix(entry.Name(), ".") {
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
