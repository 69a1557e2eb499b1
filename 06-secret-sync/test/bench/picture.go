package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"
)

// The picture has a panel for each phase.
const (
	panelWidth, panelHeight = 200, 190 // of the area in which lines are drawn
	left, top, gap, bottom  = 58, 62, 62, 50
)

// series are the lines of each panel, from the one below to the one above. The colors can be told apart by color-blind
// readers.
var series = []struct {
	name, style string
	of          func(round) lifecycle
}{
	{"plain client", "stroke:#56b4e9;stroke-width:5", func(r round) lifecycle { return r.plain }},
	{"controller", "stroke:#004d38;stroke-width:2", func(r round) lifecycle { return r.controller }},
}

// phases are the panels.
var phases = []struct {
	title string
	of    func(lifecycle) phase
}{
	{"create all copies", func(l lifecycle) phase { return l.create }},
	{"update all copies", func(l lifecycle) phase { return l.update }},
	{"delete all copies", func(l lifecycle) phase { return l.remove }},
}

// took returns the median of what a phase took.
func (s sizeResult) took(program func(round) lifecycle, of func(lifecycle) phase) time.Duration {
	return time.Duration(s.median(func(r round) float64 { return float64(of(program(r)).took) }))
}

// picture returns an SVG of the time that each phase took, by the number of copies, on linear axes.
// Of several rounds, it shows the median.
func picture(results []sizeResult) []byte {
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b sizeResult) int { return a.copies() - b.copies() })
	most, longest := 1, time.Duration(1)
	for _, r := range results {
		most = max(most, r.copies())
		for _, s := range series {
			for _, of := range phases {
				longest = max(longest, r.took(s.of, of.of))
			}
		}
	}
	yMax := niceStep(longest.Seconds()) * math.Ceil(longest.Seconds()/niceStep(longest.Seconds()))

	var b bytes.Buffer
	width, height := left+3*panelWidth+2*gap+20, top+panelHeight+bottom
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica,Arial,sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>How long it takes to create, update and delete all copies</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for i, s := range series {
		x := left + i*190
		fmt.Fprintf(&b, `<path d="M%d 18h30" fill="none" style="%s"/><text x="%d" y="22">%s</text>`+"\n", x, s.style, x+36, s.name)
	}
	for i, panel := range phases {
		x0, y0 := float64(left+i*(panelWidth+gap)), float64(top+panelHeight)
		x := func(copies int) float64 { return x0 + panelWidth*float64(copies)/float64(most) }
		y := func(seconds float64) float64 { return y0 - panelHeight*seconds/yMax }
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-weight="bold">%s</text>`+"\n", x0+panelWidth/2, top-12, panel.title)
		for tick := 0.0; tick <= yMax*1.001; tick += niceStep(yMax) {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fh%d" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%g s</text>`+"\n", x0, y(tick), panelWidth, x0-6, y(tick)+4, tick)
		}
		for tick := 0.0; tick <= float64(most); tick += niceStep(float64(most)) {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", x(int(tick)), y0+16, tick)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">copies</text>`+"\n", x0+panelWidth/2, y0+34)
		for _, s := range series {
			fmt.Fprintf(&b, `<path d="M%.1f %.1f`, x0, y0)
			for _, r := range results {
				fmt.Fprintf(&b, "L%.1f %.1f", x(r.copies()), y(r.took(s.of, panel.of).Seconds()))
			}
			fmt.Fprintf(&b, `" fill="none" style="%s"/>`+"\n", s.style)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// niceStep returns a distance between ticks, so that there are about four of them up to a value: 1, 2 or 5 times a power of
// ten.
func niceStep(value float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(value/4)))
	for _, factor := range []float64{1, 2, 5} {
		if value/(factor*power) <= 5 {
			return factor * power
		}
	}
	return 10 * power
}
