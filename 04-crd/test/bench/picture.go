package main

import (
	"fmt"

	"example.com/controllers/harness/chart"
)

// picture returns an SVG of the time until all Networks are ready, and until they are deleted, by their number.
func picture(all []result) []byte {
	c := chart.Chart{Title: "How long it takes until all Networks are ready, and until they are deleted", X: "Networks", Unit: "s"}
	for _, phase := range []struct {
		title string
		of    func(result) phase
	}{
		{"until all are Ready", func(r result) phase { return r.made }},
		{"until all are deleted", func(r result) phase { return r.deleted }},
	} {
		panel := chart.Panel{Title: phase.title}
		lines := map[int]int{} // index by number of workers
		for _, r := range all {
			i, ok := lines[r.workers]
			if !ok {
				i = len(panel.Lines)
				lines[r.workers] = i
				panel.Lines = append(panel.Lines, chart.Line{Name: fmt.Sprintf("%d workers", r.workers), Points: []chart.Point{{}}}) // none take no time
			}
			panel.Lines[i].Points = append(panel.Lines[i].Points, chart.Point{X: float64(r.networks), Y: phase.of(r).took.Seconds()})
		}
		c.Panels = append(c.Panels, panel)
	}
	return c.SVG()
}
