// Program diagram draws the state machine of a Node's reboot, from the table of its transitions, as an SVG for the lesson's
// page. It prints it, or writes it to the file that is its argument.
package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"log"
	"os"

	"example.com/controllers/reboot/protocol"
)

//go:generate go run . ../../images/phases.svg

func main() {
	log.SetFlags(0)
	svg, err := draw(protocol.Transitions)
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) == 1 {
		_, err = os.Stdout.Write(svg)
	} else {
		err = os.WriteFile(os.Args[1], svg, 0o666)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// The size of the drawing and of its boxes, in pixels.
const (
	width             = 900
	boxWidth, boxHigh = 112, 44
	legendTop         = 428
	rowHeight         = 22
)

// point is a place on the drawing; y grows downwards.
type point struct{ x, y float64 }

// centers says where the box of each phase is.
var centers = map[protocol.Phase]point{
	protocol.Idle:       {86, 220},
	protocol.Needed:     {266, 220},
	protocol.Draining:   {446, 220},
	protocol.Approved:   {626, 220},
	protocol.InProgress: {806, 220},
	protocol.Cancelled:  {536, 356},
}

// arrow is a transition: its phases, and who makes it.
type arrow struct {
	from, to protocol.Phase
	by       string
}

// route is the way of an arrow, as a cubic Bézier curve: start, two control points, end.
type route struct {
	points [4]point
	badge  float64 // where the number is, as the curve's parameter, from 0 at the start to 1 at the end
}

// straight returns a route without a bend.
func straight(from, to point) route {
	third := func(n float64) point { return point{from.x + (to.x-from.x)*n/3, from.y + (to.y-from.y)*n/3} }
	return curve(from, third(1), third(2), to)
}

// arc returns a route that leaves and arrives vertically, and rises by three quarters of height; it sinks if that is negative.
func arc(from, to point, height float64) route {
	return curve(from, point{from.x, from.y - height}, point{to.x, to.y - height}, to)
}

func curve(points ...point) route { return route{points: [4]point(points), badge: 0.5} }

// badgeAt returns the same route with the number elsewhere.
func (r route) badgeAt(t float64) route {
	r.badge = t
	return r
}

// center returns where the number is.
func (r route) center() point {
	t, u := r.badge, 1-r.badge
	weights := [4]float64{u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t}
	var p point
	for i, w := range weights {
		p.x += w * r.points[i].x
		p.y += w * r.points[i].y
	}
	return p
}

// at returns a point on the edge of a phase's box, relative to its center.
func at(phase protocol.Phase, dx, dy float64) point {
	return point{centers[phase].x + dx, centers[phase].y + dy}
}

// routes has a route for each transition.
var routes = func() map[arrow]route {
	const admin, controller, agent = "administrator", "controller", "agent"
	const side, top, lane = boxWidth / 2, boxHigh / 2, 11 // lane: half the distance between two arrows side by side
	right := func(from, to protocol.Phase) route { return straight(at(from, side, -lane), at(to, -side, -lane)) }
	left := func(from, to protocol.Phase) route { return straight(at(from, -side, lane), at(to, side, lane)) }
	return map[arrow]route{
		{protocol.Idle, protocol.Needed, admin}:            right(protocol.Idle, protocol.Needed),
		{protocol.Needed, protocol.Idle, admin}:            left(protocol.Needed, protocol.Idle),
		{protocol.Needed, protocol.Draining, controller}:   right(protocol.Needed, protocol.Draining),
		{protocol.Draining, protocol.Needed, controller}:   left(protocol.Draining, protocol.Needed),
		{protocol.Draining, protocol.Approved, controller}: right(protocol.Draining, protocol.Approved),
		{protocol.Approved, protocol.Draining, controller}: left(protocol.Approved, protocol.Draining),
		{protocol.Approved, protocol.InProgress, agent}:    right(protocol.Approved, protocol.InProgress),

		// Above the row.
		{protocol.InProgress, protocol.Idle, agent}:     arc(at(protocol.InProgress, 34, -top), at(protocol.Idle, 0, -top), 216),
		{protocol.InProgress, protocol.Needed, agent}:   arc(at(protocol.InProgress, 6, -top), at(protocol.Needed, -20, -top), 160),
		{protocol.InProgress, protocol.Draining, admin}: arc(at(protocol.InProgress, -28, -top), at(protocol.Draining, 0, -top), 112),
		{protocol.Approved, protocol.Needed, controller}: arc(at(protocol.Approved, 0, -top), at(protocol.Needed, 20, -top), 76).
			badgeAt(0.7),

		// Below the row.
		{protocol.Approved, protocol.Draining, admin}:    arc(at(protocol.Approved, -34, top), at(protocol.Draining, 38, top), -44),
		{protocol.Draining, protocol.Cancelled, admin}:   straight(at(protocol.Draining, 10, top), at(protocol.Cancelled, -24, -top)).badgeAt(0.6),
		{protocol.Cancelled, protocol.Draining, admin}:   straight(at(protocol.Cancelled, -48, -top), at(protocol.Draining, -14, top)).badgeAt(0.4),
		{protocol.Approved, protocol.Cancelled, admin}:   straight(at(protocol.Approved, -6, top), at(protocol.Cancelled, 28, -top)).badgeAt(0.6),
		{protocol.InProgress, protocol.Cancelled, admin}: curve(at(protocol.InProgress, 0, top), at(protocol.InProgress, 0, 136), at(protocol.Cancelled, side+100, 0), at(protocol.Cancelled, side, 0)),
		{protocol.Cancelled, protocol.Idle, controller}:  curve(at(protocol.Cancelled, -side, 0), at(protocol.Cancelled, -side-200, 0), at(protocol.Idle, 0, 136), at(protocol.Idle, 0, top)),
	}
}()

// draw returns the diagram: the phases, an arrow with a number for each transition, and a list that explains the numbers.
func draw(transitions []protocol.Transition) ([]byte, error) {
	var svg bytes.Buffer
	height := legendTop + rowHeight*len(transitions) + 8
	fmt.Fprintf(&svg, head, width, height, width, height, width, height)
	for i, t := range transitions {
		r, ok := routes[arrow{t.From, t.To, t.By}]
		if !ok {
			return nil, fmt.Errorf("there is no route for the transition from %s to %s by the %s; add one to routes", t.From, t.To, t.By)
		}
		p := r.points
		fmt.Fprintf(&svg, `<path class="arrow %s" marker-end="url(#%s)" d="M%.0f,%.0f C%.0f,%.0f %.0f,%.0f %.0f,%.0f"/>`+"\n",
			t.By, t.By, p[0].x, p[0].y, p[1].x, p[1].y, p[2].x, p[2].y, p[3].x, p[3].y)
		badge(&svg, t.By, i+1, r.center())
	}
	for _, phase := range protocol.Phases {
		c, ok := centers[phase]
		if !ok {
			return nil, fmt.Errorf("there is no place for the phase %s; add one to centers", phase)
		}
		fmt.Fprintf(&svg, `<rect class="box" x="%.0f" y="%.0f" width="%d" height="%d" rx="8"/>`+"\n", c.x-boxWidth/2, c.y-boxHigh/2, boxWidth, boxHigh)
		fmt.Fprintf(&svg, `<text class="phase" x="%.0f" y="%.0f">%s</text>`+"\n", c.x, c.y+5, phase)
	}
	for i, t := range transitions {
		y := float64(legendTop + rowHeight*i)
		badge(&svg, t.By, i+1, point{24, y - 4})
		fmt.Fprintf(&svg, `<text x="44" y="%.0f">%s → %s</text>`+"\n", y, t.From, t.To)
		fmt.Fprintf(&svg, `<text class="by %s" x="208" y="%.0f">%s</text>`+"\n", t.By, y, t.By)
		fmt.Fprintf(&svg, `<text x="324" y="%.0f">`, y)
		if err := xml.EscapeText(&svg, []byte(t.When)); err != nil {
			return nil, err
		}
		svg.WriteString("</text>\n")
	}
	svg.WriteString("</svg>\n")
	return svg.Bytes(), nil
}

// badge draws the number of a transition, in the color of who makes it.
func badge(svg *bytes.Buffer, by string, number int, at point) {
	fmt.Fprintf(svg, `<circle class="badge %s" cx="%.0f" cy="%.0f" r="9"/>`+"\n", by, at.x, at.y)
	fmt.Fprintf(svg, `<text class="number" x="%.0f" y="%.0f">%d</text>`+"\n", at.x, at.y+4, number)
}

// head begins the drawing. The background is drawn too, since the page around the image may be dark while the reader's
// system prefers light, or the other way round.
const head = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
<title id="title">The phases of a Node, and who moves it from one to the next</title>
<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.background { fill: #ffffff }
.box { fill: #f3f4f6; stroke: #57606a; stroke-width: 1.5 }
.phase { font-weight: 600; font-size: 15px; text-anchor: middle }
.number { font-size: 11px; font-weight: 600; text-anchor: middle; fill: #ffffff }
.arrow { fill: none; stroke-width: 2 }
.by { font-weight: 600 }
.arrow.administrator { stroke: #9a5b00; stroke-dasharray: 5 4 }
.arrow.controller { stroke: #0b62c4 }
.arrow.agent { stroke: #1a7f37; stroke-width: 3 }
.badge.administrator, .by.administrator, .tip.administrator { fill: #9a5b00 }
.badge.controller, .by.controller, .tip.controller { fill: #0b62c4 }
.badge.agent, .by.agent, .tip.agent { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .background { fill: #0d1117 }
  .box { fill: #21262d; stroke: #8b949e }
  .number { fill: #0d1117 }
  .arrow.administrator { stroke: #e3a53b }
  .arrow.controller { stroke: #6cb2ff }
  .arrow.agent { stroke: #56d364 }
  .badge.administrator, .by.administrator, .tip.administrator { fill: #e3a53b }
  .badge.controller, .by.controller, .tip.controller { fill: #6cb2ff }
  .badge.agent, .by.agent, .tip.agent { fill: #56d364 }
}
</style>
<defs>
<marker id="administrator" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="10" refX="10" refY="5" orient="auto"><path class="tip administrator" d="M0,0 L11,5 L0,10 Z"/></marker>
<marker id="controller" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="10" refX="10" refY="5" orient="auto"><path class="tip controller" d="M0,0 L11,5 L0,10 Z"/></marker>
<marker id="agent" markerUnits="userSpaceOnUse" markerWidth="11" markerHeight="10" refX="10" refY="5" orient="auto"><path class="tip agent" d="M0,0 L11,5 L0,10 Z"/></marker>
</defs>
<rect class="background" width="%d" height="%d" rx="8"/>
`
