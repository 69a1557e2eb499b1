package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wellFormed fails the test if an SVG is not XML.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestSVG(t *testing.T) {
	svg := Chart{Title: "a < b", X: "Nodes", Unit: "ms", Panels: []Panel{
		{Title: "one", Lines: []Line{{"x & y", []Point{{0, 0}, {2000, 4}, {500, 1}}}, {"z", []Point{{2000, 2}}}}},
		{Title: "two", Lines: []Line{{"x & y", []Point{{1000, 2}}}, {"z", nil}}},
	}}.SVG()
	wellFormed(t, svg)
	text := string(svg)
	require.Contains(t, text, "<title>a &lt; b</title>")
	require.Contains(t, text, `d="M62.0 252.0L112.0 204.5L262.0 62.0"`)
	require.Contains(t, text, `d="M428.0 157.0"`, "in the middle of the second panel, which has the same axes")
	require.Equal(t, 4, strings.Count(text, "<circle"), "of what was measured")
	require.Equal(t, 1, strings.Count(text, "x &amp; y"), "one legend for all panels")
	for _, label := range []string{">0 ms<", ">4 ms<", ">0<", ">1,500<", ">2,000<", ">Nodes<"} {
		require.Equal(t, 2, strings.Count(text, label), label)
	}

	// Where everything is, somebody has looked at in a browser.
	seen, err := os.ReadFile("testdata/seen.svg")
	require.NoError(t, err)
	require.Equal(t, string(seen), text, "if it should look different, look at it, and store it in testdata/seen.svg")
}

// A single line needs no legend.
func TestSVGOfOneLine(t *testing.T) {
	text := string(Chart{Panels: []Panel{{Lines: []Line{{"alone", []Point{{1, 1}}}}}}}.SVG())
	require.NotContains(t, text, "alone")
	require.Contains(t, text, `viewBox="0 0 288 302"`)
}

func TestSVGOfNothing(t *testing.T) {
	for _, c := range []Chart{{}, {Panels: []Panel{{}}}, {Panels: []Panel{{Lines: []Line{{}}}}}, {Panels: []Panel{{Lines: []Line{{Points: []Point{{0, 0}}}}}}}} {
		svg := c.SVG()
		wellFormed(t, svg)
		require.NotContains(t, string(svg), "NaN")
		require.NotContains(t, string(svg), "Inf")
	}
}

// A legend may be wider than the panels.
func TestLegendOfOnePanel(t *testing.T) {
	text := string(Chart{Panels: []Panel{{Lines: []Line{{"one", []Point{{1, 1}}}, {"other", nil}}}}}.SVG())
	require.Contains(t, text, `<text x="98" y="22">one</text>`)
	require.Contains(t, text, `<text x="288" y="22">other</text>`)
	require.Contains(t, text, `viewBox="0 0 442 302"`)
}

func TestAxes(t *testing.T) {
	for _, test := range []struct {
		most, end, step float64
	}{
		{0, 1, 0.2}, {1, 1, 0.2}, {3.7, 4, 1}, {10, 10, 2}, {10.1, 15, 5}, {4999, 5000, 1000}, {20000, 20000, 5000}, {0.0042, 0.005, 0.001},
	} {
		require.InDelta(t, test.end, end(test.most), 1e-9, "%v", test.most)
		require.InDelta(t, test.step, step(end(test.most)), 1e-9, "%v", test.most)
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.1 + 0.2: "0.3", 999: "999", 1000: "1,000", 20000: "20,000", 100000: "100,000", 1234567: "1,234,567"} {
		require.Equal(t, want, number(value))
	}
}
