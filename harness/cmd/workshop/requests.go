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

// selection says which requests of a recording are meant.
type selection struct {
	last                        time.Duration
	agent, verb, resource, name string
}

func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&s.last, "last", 0, "only what began in that long before now, such as 15s; 0 is all")
	flags.StringVar(&s.agent, "agent", "", "only the programs whose User-Agent begins so")
	flags.StringVar(&s.verb, "verb", "", "only this verb, such as delete")
	flags.StringVar(&s.resource, "resource", "", "only this resource, such as pods")
	flags.StringVar(&s.name, "name", "", "only objects of this name")
}

// read reads the part of a recording that is meant. It says so, on standard error, when that is nothing.
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
			from = all.Requests[0].Start // it had not begun before
		}
		h = h.Between(from, now)
	}
	if len(h.Requests) == 0 && len(h.Events) == 0 {
		fmt.Fprintf(os.Stderr, "workshop: there is nothing of that kind among the %d requests of %s\n", len(all.Requests), path)
	}
	return h, nil
}

func requestsCommand() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "requests FILE",
		Short: "List the requests of a recording",
		Long: `List the requests of a recording of "workshop proxy", one a line: when it began, counted
from the first that is listed, what it asked for, the HTTP status of the answer ("-" where
none came), and what was done to it on purpose.`,
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
