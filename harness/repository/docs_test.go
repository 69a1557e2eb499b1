package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"example.com/controllers/harness/cluster"
	"example.com/controllers/harness/testinput"
)

// document is a Markdown file.
type document struct {
	links    []string        // destinations of its links and images, in order
	anchors  map[string]bool // of its headings, as GitHub makes them
	headings []string        // in order
}

func readDocument(t *testing.T, path string) document {
	t.Helper()
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	d := document{anchors: map[string]bool{}}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	err = ast.Walk(root, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Link:
			d.links = append(d.links, string(node.Destination))
		case *ast.Image:
			d.links = append(d.links, string(node.Destination))
		case *ast.Heading:
			heading := plainText(node, source)
			d.headings = append(d.headings, heading)
			d.anchors[anchor(heading)] = true
		}
		return ast.WalkContinue, nil
	})
	require.NoError(t, err)
	return d
}

func plainText(node ast.Node, source []byte) string {
	var words strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if segment, ok := child.(*ast.Text); ok {
			words.Write(segment.Segment.Value(source))
			continue
		}
		words.WriteString(plainText(child, source))
	}
	return words.String()
}

// anchor returns the fragment under which GitHub links to a heading: in lower case, without punctuation, and with
// hyphens for spaces. GitHub numbers headings that are repeated; no page links to those.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestAnchor(t *testing.T) {
	for heading, want := range map[string]string{
		"Which cloud":         "which-cloud",
		"5. Torture":          "5-torture",
		"store (cache)":       "store-cache",
		"managedFields":       "managedfields",
		"k8s.io/client-go":    "k8sioclient-go",
		"Who am I, and what?": "who-am-i-and-what",
	} {
		require.Equal(t, want, anchor(heading))
	}
}

// pages returns the paths of all pages that people read: README, CONTRIBUTING, the lessons' pages, and those in docs.
func pages(t *testing.T, root string) []string {
	t.Helper()
	testinput.DeclareOnly(root, filepath.Join(root, "docs"))
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "guesses/README.md", "[0-9][0-9]-*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		all = append(all, found...)
	}
	testinput.Declare(all...)
	return all
}

// Each link of a page to a file of this repository, and to a heading in it, leads somewhere.
func TestLinks(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	documents := map[string]document{}
	for _, page := range pages(t, root) {
		documents[page] = readDocument(t, page)
	}
	local := 0
	for page, d := range documents {
		for _, link := range d.links {
			if strings.Contains(link, "://") {
				continue
			}
			local++
			path, fragment, hasFragment := strings.Cut(link, "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
				testinput.DeclareOnly(target)
			}
			where, err := filepath.Rel(root, page)
			require.NoError(t, err)
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", where, link)
				continue
			}
			if hasFragment && !documents[target].anchors[fragment] {
				t.Errorf("%s links to %s, but there is no such heading", where, link)
			}
		}
	}
	require.NotZero(t, local)
}

// On macOS, wc pads its counts with spaces. So a page shows no such count, and compares none in quotes.
func TestCountsOfLinesAreNotPadded(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	padded := regexp.MustCompile(`(?m)^\$ .*(wc -l$|"\$\([^)]*wc -l)`)
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Empty(t, padded.FindAllString(string(text), -1), page)
	}
}

// The glossary's terms are in alphabetical order.
func TestGlossaryIsSorted(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	path := filepath.Join(root, "docs", "glossary.md")
	testinput.Declare(path)
	terms := readDocument(t, path).headings[1:]
	require.NotEmpty(t, terms)
	require.True(t, slices.IsSortedFunc(terms, func(a, b string) int {
		return strings.Compare(strings.ToLower(a), strings.ToLower(b))
	}), "%s", terms)
}

// Without --timeout, kubectl waits for 30 seconds, which a busy machine may need.
func TestWaitsHaveATimeout(t *testing.T) {
	root, err := cluster.Root(t.Context())
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^\$ .*kubectl wait .*`)
	waits := 0
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, line := range command.FindAllString(string(text), -1) {
			waits++
			require.Contains(t, line, "--timeout", page)
		}
	}
	require.NotZero(t, waits)
}
