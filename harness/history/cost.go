package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Cost is what the requests of one kind cost.
type Cost struct {
	Verb, Resource string // Resource as in [Request.What]
	Requests       int
	Failed         int
	NoOps          int
	Events         int   // of watches
	Sent, Received int64 // bytes on the wire; Received with the events
}

func (c *Cost) add(o Cost) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.NoOps += o.NoOps
	c.Events += o.Events
	c.Sent += o.Sent
	c.Received += o.Received
}

// Cost returns what it all cost, by resource and verb, in this order. A watch that began before the
// history does is not among the requests; its events are.
func (h *History) Cost() []Cost {
	var costs []Cost
	for _, row := range h.rows(func(Request) string { return "" }) {
		costs = append(costs, row.Cost)
	}
	return costs
}

// Agents returns the short names of the programs that made the requests, sorted.
func (h *History) Agents() []string {
	agents := map[string]bool{}
	for _, r := range h.Requests {
		agents[r.ShortAgent()] = true
	}
	for _, r := range h.earlier {
		agents[r.ShortAgent()] = true
	}
	return slices.Sorted(maps.Keys(agents))
}

// row is a line of a bill.
type row struct {
	payer string
	Cost
}

// rows adds up by payer, resource and verb, and returns the sums in this order.
func (h *History) rows(payer func(Request) string) []row {
	type key struct{ payer, resource, verb string }
	sums := map[key]*Cost{}
	sum := func(payer, resource, verb string) *Cost {
		k := key{payer, resource, verb}
		if sums[k] == nil {
			sums[k] = &Cost{Verb: verb, Resource: resource}
		}
		return sums[k]
	}
	for _, r := range h.Requests {
		c := Cost{Requests: 1, Sent: r.Sent, Received: r.Received}
		if r.Failed() {
			c.Failed = 1
		}
		if r.NoOp {
			c.NoOps = 1
		}
		sum(payer(r), r.What(), r.Verb).add(c)
	}
	watches := h.watches()
	for _, e := range h.Events {
		sum(payer(watches[e.Request]), qualified(e.Group, e.Resource), "watch").
			add(Cost{Events: 1, Received: int64(e.Bytes)})
	}
	var rows []row
	for k, c := range sums {
		rows = append(rows, row{k.payer, *c})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.payer, b.payer), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return rows
}

// BillOptions say what a bill looks like.
type BillOptions struct {
	ByAgent   bool // a line for each program, by its short name, in the first column
	ByWho     bool // and for each user
	PerMinute bool // numbers for a minute, out of the time that [History.Span] says
}

// WriteBill writes a table of what the requests cost, with a total. KB are 1000 bytes, of both directions.
func (h *History) WriteBill(w io.Writer, o BillOptions) error {
	var heads []string
	var payers []func(Request) string
	if o.ByAgent {
		heads, payers = append(heads, "AGENT"), append(payers, Request.ShortAgent)
	}
	if o.ByWho {
		heads, payers = append(heads, "WHO"), append(payers, func(r Request) string { return r.Who })
	}
	rows := h.rows(func(r Request) string {
		var cells strings.Builder
		for _, payer := range payers {
			fmt.Fprintf(&cells, "%s\t", cmp.Or(payer(r), "-"))
		}
		return cells.String()
	})
	number := func(n float64) string { return fmt.Sprintf("%.0f", n) }
	scale := 1.0
	if o.PerMinute && len(rows) > 0 {
		span := h.Span()
		if span == 0 {
			return errors.New("the recording is too short for numbers per minute")
		}
		scale = float64(time.Minute) / float64(span)
		number = func(n float64) string { return fmt.Sprintf("%.1f", n*scale) }
	}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(first string, c Cost) {
		fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\t%s\t%.1f\n", first, c.Verb, c.Resource,
			number(float64(c.Requests)), number(float64(c.NoOps)), number(float64(c.Failed)), number(float64(c.Events)),
			float64(c.Sent+c.Received)/1000*scale)
	}
	fmt.Fprintln(table, strings.Join(append(heads, "VERB", "RESOURCE", "REQUESTS", "NO-OP", "FAILED", "EVENTS", "KB"), "\t"))
	total := Cost{Verb: "total"}
	for _, row := range rows {
		line(row.payer, row.Cost)
		total.add(row.Cost)
	}
	if len(heads) > 0 {
		line("total"+strings.Repeat("\t", len(heads)), Cost{Requests: total.Requests, NoOps: total.NoOps,
			Failed: total.Failed, Events: total.Events, Sent: total.Sent, Received: total.Received})
	} else {
		line("", total)
	}
	return table.Flush()
}
