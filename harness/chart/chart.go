// Package chart draws how measurements grow, for the lessons' benchmarks.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
)

// Chart is a row of panels. All have the same axes, which are linear and begin at 0, so that what grows linearly is a straight line
// and panels can be compared.
type Chart struct {
	Title  string // for readers who don't see the picture
	X      string // what the horizontal axis counts, such as "copies"
	Unit   string // of the vertical axis, such as "s"
	Panels []Panel
}

// Panel is one of the panels. All panels of a chart have lines of the same names, in the same order.
type Panel struct {
	Title string
	Lines []Line
}

// Line connects points, which may be in any order.
type Line struct {
	Name   string
	Points []Point
}

// Point is a measurement, or the origin, if nothing takes no time. Both coordinates are 0 or more.
type Point struct{ X, Y float64 }

// The sizes are in the units of the picture, which are pixels if it is not scaled.
const (
	panelWidth, panelHeight = 200, 190 // of the area in which lines are drawn
	left, top, gap, bottom  = 62, 62, 66, 50
	legend                  = 190 // width of an entry
)

// styles are those of the lines, from the one below to the one above. The colors can be told apart by color-blind readers. More
// lines than there are styles look like the first ones.
var styles = []string{"stroke:#56b4e9;stroke-width:5", "stroke:#004d38;stroke-width:2", "stroke:#d55e00;stroke-width:2;stroke-dasharray:6 3"}

// SVG draws the chart.
func (c Chart) SVG() []byte {
	var most Point
	names := []string{}
	for i, p := range c.Panels {
		for _, line := range p.Lines {
			if i == 0 {
				names = append(names, line.Name)
			}
			for _, at := range line.Points {
				most = Point{max(most.X, at.X), max(most.Y, at.Y)}
			}
		}
	}
	xMax, yMax := end(most.X), end(most.Y)

	var b bytes.Buffer
	width := max(left+len(c.Panels)*(panelWidth+gap)-gap+26, left+len(names)*legend)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica,Arial,sans-serif" font-size="11">`+"\n", width, top+panelHeight+bottom)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, top+panelHeight+bottom)
	if len(names) > 1 {
		for i, name := range names {
			x := left + i*legend
			fmt.Fprintf(&b, `<path d="M%d 18h30" fill="none" style="%s"/><text x="%d" y="22">%s</text>`+"\n", x, styles[i%len(styles)], x+36, html.EscapeString(name))
		}
	}
	for i, panel := range c.Panels {
		x0, y0 := float64(left+i*(panelWidth+gap)), float64(top+panelHeight)
		x := func(value float64) float64 { return x0 + panelWidth*value/xMax }
		y := func(value float64) float64 { return y0 - panelHeight*value/yMax }
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" font-weight="bold">%s</text>`+"\n", x0+panelWidth/2, top-12, html.EscapeString(panel.Title))
		for tick := 0.0; tick <= yMax*1.001; tick += step(yMax) {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fh%d" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="end">%s %s</text>`+"\n",
				x0, y(tick), panelWidth, x0-6, y(tick)+4, number(tick), html.EscapeString(c.Unit))
		}
		for tick := 0.0; tick <= xMax*1.001; tick += step(xMax) {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x(tick), y0+16, number(tick))
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", x0+panelWidth/2, y0+34, html.EscapeString(c.X))
		for k, line := range panel.Lines {
			fmt.Fprintf(&b, `<g fill="none" style="%s"><path d="`, styles[k%len(styles)])
			points := slices.SortedStableFunc(slices.Values(line.Points), func(a, b Point) int { return cmp.Compare(a.X, b.X) })
			for n, at := range points {
				fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(n, 1)], x(at.X), y(at.Y))
			}
			b.WriteString(`"/>`)
			for _, at := range points {
				if at == (Point{}) {
					continue // not measured, but known
				}
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="2"/>`, x(at.X), y(at.Y))
			}
			b.WriteString("</g>\n")
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// number returns a number without the noise of repeated addition, and with commas between thousands.
func number(value float64) string {
	text := fmt.Sprintf("%.10g", value)
	for i := len(text) - 3; value >= 1000 && i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// end returns where an axis ends: at the first tick at or above the greatest value.
func end(most float64) float64 {
	if most <= 0 {
		most = 1
	}
	return step(most) * math.Ceil(most/step(most)-1e-9)
}

// step returns a distance between ticks, so that there are about four of them up to a value: 1, 2 or 5 times a power of ten.
func step(value float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(value/4)))
	for _, factor := range []float64{1, 2, 5} {
		if value/(factor*power) <= 5 {
			return factor * power
		}
	}
	return 10 * power
}
