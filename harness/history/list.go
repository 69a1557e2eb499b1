package history

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteRequests writes a list of the requests, one a line: when it began, in seconds since the first, what it
// asked for, the HTTP status of the answer ("-" where none came), and what was done to it on purpose.
func (h *History) WriteRequests(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TIME\tVERB\tRESOURCE\tOBJECT\tSTATUS\tFAULT")
	for _, r := range h.Requests {
		status := "-"
		if r.Status != 0 {
			status = fmt.Sprint(r.Status)
		}
		fmt.Fprintf(table, "%.3fs\t%s\t%s\t%s\t%s\t%s\n",
			r.Start.Sub(h.Requests[0].Start).Seconds(), r.Verb, r.What(), r.Object(), status, r.Injections())
	}
	return table.Flush()
}
