package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rows are the rows of the table.
var rows = []struct {
	name string
	of   func(score) string
}{
	{"GET", func(s score) string { return strconv.Itoa(s.requests("get")) }},
	{"LIST", func(s score) string { return strconv.Itoa(s.requests("list")) }},
	{"WATCH", func(s score) string { return strconv.Itoa(s.requests("watch")) }},
	{"writes", func(s score) string { return strconv.Itoa(s.Writes) }},
	{"of these, no-op", func(s score) string { return strconv.Itoa(s.NoOps) }},
	{"of these, failed", func(s score) string { return strconv.Itoa(s.FailedWrites) }},
	{"writes of Events", func(s score) string { return strconv.Itoa(s.EventWrites) }},
	{"MB received", func(s score) string { return fmt.Sprintf("%.2f", float64(s.received())/1e6) }},
	{"requests a minute at rest", func(s score) string { return number(s.Rest.Requests) }},
	{"KB received a minute at rest", func(s score) string { return number(s.Rest.KB) }},
	{"from a change to the last Pod replaced, median", func(s score) string { return duration(s.Times, median) }},
	{"the same, worst", func(s score) string { return duration(s.Times, slices.Max[[]time.Duration]) }},
	{"Pods that had to be replaced", func(s score) string { return strconv.Itoa(s.Old) }},
	{"Pods that were", func(s score) string { return strconv.Itoa(s.Replaced) }},
	{"changes lost", func(s score) string { return fmt.Sprintf("%d of %d", s.Lost, s.Changes) }},
}

// markdown returns the page with the table.
func markdown(r results) string {
	var page strings.Builder
	say := func(format string, values ...any) { fmt.Fprintf(&page, format+"\n", values...) }
	line := func(cells ...string) { say("| %s |", strings.Join(cells, " | ")) }
	var titles []string
	for _, s := range r.Lessons {
		titles = append(titles, s.Title)
	}
	head := func(first string) {
		line(append([]string{first}, titles...)...)
		line("---" + strings.Repeat(" | ---:", len(titles)))
	}

	say("# The score of lessons 1 to 3\n")
	say("The same job, done three times. `make score` measures what each way costs and what it loses, and writes")
	say("this page and the picture.\n")
	say("![What a rest costs, and how many changes are lost](score.svg)\n")
	say("Kubernetes %s on %s, %d CPUs, %d Nodes. Each lesson has a frontend of its own, of %d Pods.",
		r.Kubernetes, r.System, r.CPUs, r.Nodes, r.Pods)
	say("All run at the same time on one control plane. Lesson 1 looks every %s.\n", r.Interval)
	say("The config is changed %d times, one change after the other. Then nothing happens for %s: a rest. Then the", r.Changes, short(r.Quiet))
	say("config is changed twice more: once the second deletion that comes is refused with 500, and once the")
	say("controller is down meanwhile and started again.\n")
	head("")
	for _, row := range rows {
		var cells []string
		interesting := row.name != "writes of Events"
		for _, s := range r.Lessons {
			cells = append(cells, row.of(s))
			interesting = interesting || s.EventWrites > 0
		}
		if interesting {
			line(append([]string{row.name}, cells...)...)
		}
	}
	say("\n- The numbers count all that a controller asked for and was sent, from its start to its end; only the two")
	say("  rows of the rest are of the rest. MB and KB are 1,000,000 and 1000 bytes, as they travelled.")
	say("- A Pod counts as replaced when it is being deleted. Lessons 1 and 3 do not begin before the second of the")
	say("  change is over, because they compare times in whole seconds. And each deletes with client-go's default")
	say("  limit, which is for all its requests: 10 at once, then 5 a second.")
	say("- A change is lost if Pods that are older than it remain, although the controller was sent the change, has")
	say("  had time to look at the Pods, and then has written nothing for 10 seconds.\n")

	say("## How the cost of a rest grows\n")
	say("Nothing happens for %s. Requests and KB received, a minute:\n", short(r.Window))
	head("Pods")
	for i, p := range points(r) {
		cells := []string{strconv.Itoa(p)}
		for _, s := range r.Lessons {
			cells = append(cells, fmt.Sprintf("%s, %s KB", number(s.Growth[i].Rest.Requests), number(s.Growth[i].Rest.KB)))
		}
		line(cells...)
	}
	say("\n- Lesson 1 fetches all Nodes and all Pods, four requests a pass. The API server compresses an answer of")
	say("  more than 128 KB, so more Pods may be fewer bytes on the wire, though not less work at its ends.")
	say("- Lessons 2 and 3 ask for nothing. What they are sent, however many Pods there are, is bookmarks: about")
	say("  once a minute, a watch is told how far it is.")
	return page.String()
}

// points returns the numbers of Pods of the growth.
func points(r results) (pods []int) {
	for _, p := range r.Lessons[0].Growth {
		pods = append(pods, p.Pods)
	}
	return pods
}

// number writes a number that is not negative with two digits at least, and 0 only for nothing at all.
func number(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 1:
		return fmt.Sprintf("%.2f", math.Max(n, 0.01))
	case n < 10:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// duration sums up durations; "–" if there is none.
func duration(all []time.Duration, sum func([]time.Duration) time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	return seconds(sum(all))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// short writes a duration without "0s" at its end: 1m, not 1m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

// median of an even count is halfway between the middle two.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
