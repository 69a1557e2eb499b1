package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/controllers/harness/history"
)

// selection chooses among the requests of a recording.
type selection struct {
	last                        time.Duration
	agent, verb, resource, name string
}

func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&s.last, "last", 0, "only requests that are at most this old, such as 15s (default 0: all)")
	flags.StringVar(&s.agent, "agent", "", "only requests whose User-Agent begins with this")
	flags.StringVar(&s.verb, "verb", "", "only requests with this verb, such as delete")
	flags.StringVar(&s.resource, "resource", "", "only requests for this resource, such as pods")
	flags.StringVar(&s.name, "name", "", "only requests for objects with this name")
}

// read reads a recording and returns the selected part. If that is empty, it prints a warning on standard error.
func (s *selection) read(path string) (*history.History, error) {
	if s.last < 0 {
		return nil, fmt.Errorf("--last is %s; it must not be negative", s.last)
	}
	all, err := history.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h := all.Where(func(r history.Request) bool {
		return strings.HasPrefix(r.Agent, s.agent) && (s.verb == "" || r.Verb == s.verb) &&
			(s.resource == "" || r.Resource == s.resource) && (s.name == "" || r.Name == s.name)
	})
	if s.last > 0 {
		now := time.Now()
		from := now.Add(-s.last)
		if len(all.Requests) > 0 && all.Requests[0].Start.After(from) {
			from = all.Requests[0].Start // rates are per minute of the recording, not of the time before it
		}
		h = h.Between(from, now)
	}
	if len(h.Requests) == 0 && len(h.Events) == 0 {
		fmt.Fprintf(os.Stderr, "workshop: none of the %d requests in %s match\n", len(all.Requests), path)
	}
	return h, nil
}

func requestsCommand() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "requests FILE",
		Short: "List the requests of a recording",
		Long: `List the requests in a recording of "workshop proxy", one per line: when it arrived, in
seconds after the first one listed, what it asked for, the HTTP status of the response
("-" if there was none), and the faults that were injected into it.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := s.read(args[0])
			if err != nil {
				return err
			}
			return h.WriteRequests(os.Stdout)
		},
	}
	s.addFlags(cmd.Flags())
	return cmd
}
