package main

import (
	"time"

	"example.com/controllers/harness/chart"
)

// series are the lines of each panel.
var series = []struct {
	name string
	of   func(round) lifecycle
}{
	{"plain client", func(r round) lifecycle { return r.plain }},
	{"controller", func(r round) lifecycle { return r.controller }},
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

// picture returns an SVG of the time that each phase took, by the number of copies. Of several rounds, it shows the median.
func picture(results []sizeResult) []byte {
	c := chart.Chart{Title: "How long it takes to create, update and delete all copies", X: "copies", Unit: "s"}
	for _, phase := range phases {
		panel := chart.Panel{Title: phase.title}
		for _, s := range series {
			line := chart.Line{Name: s.name, Points: []chart.Point{{}}} // no copies take no time
			for _, r := range results {
				line.Points = append(line.Points, chart.Point{X: float64(r.copies()), Y: r.took(s.of, phase.of).Seconds()})
			}
			panel.Lines = append(panel.Lines, line)
		}
		c.Panels = append(c.Panels, panel)
	}
	return c.SVG()
}
