package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	pictureTitle = "What lessons 1 to 3 cost, and what they lose"
	costTitle    = "What it costs when nothing happens"
	costX        = "Pods"
	costY        = "KB received a minute"
	lostTitle    = "Changes lost"
)

// pen is the style of a lesson's line. Where two lines coincide, the narrow dark one is drawn on top of the wide light
// one.
type pen struct {
	line, text color.RGBA
	width      vg.Length
	dashes     []vg.Length
	glyph      draw.GlyphDrawer
}

// pens are the styles of the lessons, in order. The colors can be told apart by color-blind readers.
var pens = []pen{
	{line: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, text: color.RGBA{0xb0, 0x4a, 0x00, 0xff}, width: 2, glyph: draw.CircleGlyph{}},
	{line: color.RGBA{0x56, 0xb4, 0xe9, 0xff}, text: color.RGBA{0x00, 0x6d, 0xaa, 0xff}, width: 6, glyph: draw.BoxGlyph{}},
	{line: color.RGBA{0x00, 0x4d, 0x38, 0xff}, text: color.RGBA{0x00, 0x4d, 0x38, 0xff}, width: 1.5, dashes: []vg.Length{5, 3}, glyph: draw.PyramidGlyph{}},
}

func penOf(lesson int) pen { return pens[lesson%len(pens)] }

// picture returns an SVG with two panels: what idle controllers cost, and how many changes are lost. It is
// deterministic.
func picture(r results) string {
	const width, height, top, split = 720, 330, 38, 440
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	all := draw.New(canvas)
	all.SetColor(color.White) // readable in dark mode as well
	all.Fill(all.Rectangle.Path())
	title := sans(14)
	title.Font.Weight = xfont.WeightBold
	title.XAlign, title.YAlign = draw.XCenter, draw.YTop
	all.FillText(title, vg.Point{X: all.Center().X, Y: all.Max.Y - 10}, pictureTitle)

	costPanel(r).Draw(draw.Crop(all, 8, split-width, 6, -top))
	lostPanel(r).Draw(draw.Crop(all, split+14, -10, 6, -top))

	var svg bytes.Buffer
	_, _ = canvas.WriteTo(&svg) // writing to a buffer does not fail
	// The reader may not have the font that was used to measure the text. These have the same widths.
	named := strings.ReplaceAll(svg.String(), "font-family:Liberation Sans;", "font-family:Helvetica,Arial,sans-serif;")
	return strings.Replace(named, "<g ", "<title>"+html.EscapeString(pictureTitle)+"</title>\n<g ", 1)
}

// sans returns the text style of the picture.
func sans(size vg.Length) text.Style {
	return text.Style{Color: color.Black, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

// panel returns an empty plot.
func panel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		style.Font = sans(10).Font
	}
	p.Title.TextStyle.Font = sans(11).Font
	p.Title.Padding = 8
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.X.Label.Padding, p.Y.Label.Padding = 4, 4
	return p
}

// costPanel plots KB against Pods, both on logarithmic axes. The values are transformed here and the plot's axes are
// linear, because it places the label of an axis at the mean of its ends.
func costPanel(r results) *plot.Plot {
	p := panel(fmt.Sprintf("%s; lesson 1 polls every %s", costTitle, r.Interval), costX, costY)
	axis := newLogAxis(r)
	names := &names{}
	p.Add(gridLines(axis))
	for i, s := range r.Lessons {
		var line plotter.XYs
		for _, point := range s.Growth {
			line = append(line, plotter.XY{X: math.Log10(float64(point.Pods)), Y: axis.place(point.Rest.KB)})
		}
		if len(line) == 0 {
			continue
		}
		pen := penOf(i)
		p.Add(
			&plotter.Line{XYs: line, LineStyle: draw.LineStyle{Color: pen.line, Width: pen.width, Dashes: pen.dashes}},
			&plotter.Scatter{XYs: line, GlyphStyle: draw.GlyphStyle{Color: pen.line, Radius: 4, Shape: pen.glyph}},
		)
		text := fmt.Sprintf("%s: %s KB", s.Title, number(s.Growth[len(s.Growth)-1].Rest.KB))
		names.all = append(names.all, name{text: text, at: line[len(line)-1], color: pen.text})
	}
	p.Add(names)
	p.X.Padding, p.Y.Padding = 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks(points(r)), axis.ticks()
	const margin = 0.15 // beside the first and the last number of Pods, in powers of 10
	// Must come after Add, which sets the range to that of the points.
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -margin, 1, 0, 1
	if sizes := points(r); len(sizes) > 0 {
		p.X.Min = math.Log10(float64(sizes[0])) - margin
		p.X.Max = math.Log10(float64(sizes[len(sizes)-1])) + margin
	}
	return p
}

// lostPanel plots the lost changes as bars.
func lostPanel(r results) *plot.Plot {
	changes := 0
	for _, s := range r.Lessons {
		changes = max(changes, s.Changes)
	}
	p := panel(lostTitle, "", fmt.Sprintf("changes, of %d", changes))
	p.Y.Min, p.Y.Max = 0, float64(max(changes, 1))
	p.Y.Padding = 0
	p.Y.Tick.Marker = wholeNumbers{}
	var titles []string
	for i, s := range r.Lessons {
		bar, err := plotter.NewBarChart(plotter.Values{float64(s.Lost)}, 36)
		if err != nil {
			continue // happens only for NaN
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), penOf(i).line, 0
		p.Add(bar, &names{centered: true, all: []name{{
			text: strconv.Itoa(s.Lost), at: plotter.XY{X: float64(i), Y: float64(s.Lost)}, color: penOf(i).text,
		}}})
		number, _, _ := strings.Cut(s.Title, ".")
		titles = append(titles, "lesson "+number)
	}
	p.NominalX(titles...)
	p.X.Min, p.X.Max = -0.6, float64(len(titles))-0.4
	return p
}

// logAxis is a logarithmic axis with a separate place for 0 at its bottom.
type logAxis struct {
	bottom, top float64 // of the logarithmic part; bottom is a power of 10
	zero        bool    // whether there is a place for 0
}

// newLogAxis returns the axis for the KB of all lessons.
func newLogAxis(r results) logAxis {
	a := logAxis{}
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range r.Lessons {
		for _, p := range s.Growth {
			if p.Rest.KB <= 0 {
				a.zero = true
				continue
			}
			least, most = math.Min(least, p.Rest.KB), math.Max(most, p.Rest.KB)
		}
	}
	if least > most {
		least, most = 1, 10
	}
	a.bottom = math.Pow(10, math.Floor(math.Log10(least)))
	a.top = 3 * most // leaves room for a label above the line
	return a
}

// place returns the position of a value on the axis, from 0 to 1.
func (a logAxis) place(kb float64) float64 {
	begin := 0.0 // of the logarithmic part
	if a.zero {
		if kb <= 0 {
			return 0.03
		}
		begin = 0.2
	}
	return begin + (1-begin)*math.Log(kb/a.bottom)/math.Log(a.top/a.bottom)
}

// ticks marks 0 and the powers of 10.
func (a logAxis) ticks() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	mark := func(kb float64) {
		ticks = append(ticks, plot.Tick{Value: a.place(kb), Label: strconv.FormatFloat(kb, 'f', -1, 64)})
	}
	if a.zero {
		mark(0)
	}
	for power := math.Round(math.Log10(a.bottom)); math.Pow(10, power) <= a.top; power++ {
		mark(math.Pow(10, power))
	}
	return ticks
}

// sizeTicks marks the numbers of Pods that were measured.
func sizeTicks(sizes []int) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, size := range sizes {
		ticks = append(ticks, plot.Tick{Value: math.Log10(float64(size)), Label: strconv.Itoa(size)})
	}
	return ticks
}

// wholeNumbers marks about five whole numbers.
type wholeNumbers struct{}

// Ticks implements plot.Ticker.
func (wholeNumbers) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	step := math.Max(1, math.Ceil((most-least)/7))
	for value := least; value <= most; value += step {
		ticks = append(ticks, plot.Tick{Value: value, Label: strconv.Itoa(int(value))})
	}
	return ticks
}

// gridLines are faint lines at the labelled ticks of an axis.
type gridLines logAxis

// Plot implements plot.Plotter.
func (g gridLines) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, tick := range logAxis(g).ticks() {
		c.StrokeLine2(draw.LineStyle{Color: color.Gray{Y: 0xdd}, Width: 0.5}, c.Min.X, y(tick.Value), c.Max.X, y(tick.Value))
	}
}

// name is a text at a point.
type name struct {
	text  string
	at    plotter.XY
	color color.Color
}

// names are labels above points, moved up where they would overlap. They are right-aligned to their points, or centered
// on them.
type names struct {
	all      []name
	centered bool
}

// Plot implements plot.Plotter.
func (n *names) Plot(c draw.Canvas, p *plot.Plot) {
	const above, line vg.Length = 6, 14
	x, y := p.Transforms(&c)
	lowestFirst := slices.SortedStableFunc(slices.Values(n.all), func(a, b name) int { return cmp.Compare(a.at.Y, b.at.Y) })
	used := vg.Length(math.Inf(-1)) // height of the last text
	for _, name := range lowestFirst {
		style := sans(10)
		style.Color, style.XAlign, style.YAlign = name.color, draw.XRight, draw.YBottom
		if n.centered {
			style.XAlign = draw.XCenter
		}
		at := vg.Point{X: x(name.at.X), Y: max(y(name.at.Y)+above, used+line)}
		c.FillText(style, at, name.text)
		used = at.Y
	}
}
