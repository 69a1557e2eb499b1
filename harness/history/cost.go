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

// Cost is what the requests with one verb for one resource cost.
type Cost struct {
	Verb, Resource string // Resource as in [Request.What]
	Requests       int
	Failed         int   // see [Request.Failed]
	NoOps          int   // see [Request.NoOp]
	Events         int   // delivered by watches
	Sent, Received int64 // bytes on the wire; Received includes events
}

func (c *Cost) add(o Cost) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.NoOps += o.NoOps
	c.Events += o.Events
	c.Sent += o.Sent
	c.Received += o.Received
}

// Cost returns the cost of the requests, sorted by resource and verb. A watch that began before the history counts with
// its events only.
func (h *History) Cost() []Cost {
	var costs []Cost
	for _, row := range h.rows(func(Request) string { return "" }) {
		costs = append(costs, row.Cost)
	}
	return costs
}

// Agents returns the names of the programs that made the requests, as [Request.ShortAgent] has them, sorted.
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

// rows adds up costs by payer, resource and verb, and returns the sums in this order.
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

// BillOptions choose the columns and the unit of a bill.
type BillOptions struct {
	ByAgent   bool // a line for each program, by [Request.ShortAgent]
	ByWho     bool // a line for each user
	PerMinute bool // averages per minute of [History.Span]
}

// WriteBill writes a table of what the requests cost, and a total. KB is kilobytes of 1000 bytes, sent and received.
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
			return errors.New("the recording is too short for averages per minute")
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
