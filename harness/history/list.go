package history

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteRequests writes a table of the requests, one per line: when it started, in seconds after the first; what it asked
// for; the HTTP status of the response, "-" if there was none; and the faults that were injected, see [Request.Injections].
func (h *History) WriteRequests(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TIME\tVERB\tRESOURCE\tOBJECT\tSTATUS\tFAULT")
	// A recording has no monotonic clock readings. Without them here, its table is the same as that of a live history.
	since := func(t time.Time) time.Duration { return t.Round(0).Sub(h.Requests[0].Start.Round(0)) }
	for _, r := range h.Requests {
		status := "-"
		if r.Status != 0 {
			status = fmt.Sprint(r.Status)
		}
		fmt.Fprintf(table, "%.3fs\t%s\t%s\t%s\t%s\t%s\n",
			since(r.Start).Seconds(), r.Verb, r.What(), r.Object(), status, r.Injections())
	}
	return table.Flush()
}
