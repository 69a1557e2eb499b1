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
	{"requests per minute while idle", func(s score) string { return number(s.Rest.Requests) }},
	{"KB received per minute while idle", func(s score) string { return number(s.Rest.KB) }},
	{"from a change to the last Pod replaced, median", func(s score) string { return duration(s.Times, median) }},
	{"the same, worst", func(s score) string { return duration(s.Times, slices.Max[[]time.Duration]) }},
	{"Pods to replace", func(s score) string { return strconv.Itoa(s.Old) }},
	{"Pods replaced", func(s score) string { return strconv.Itoa(s.Replaced) }},
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
	say("Three controllers do the same job. `make score` measures what each costs and which changes it loses, and writes")
	say("this page and the chart.\n")
	say("![What idle controllers cost, and how many changes are lost](score.svg)\n")
	say("Kubernetes %s on %s, %d CPUs, %d Nodes. Each lesson has its own frontend of %d Pods.",
		r.Kubernetes, r.System, r.CPUs, r.Nodes, r.Pods)
	say("All lessons run at the same time on one control plane. Lesson 1 polls every %s.\n", r.Interval)
	say("The config is changed %d times in a row. Then nothing happens for %s, and the controllers are idle. Then the", r.Changes, short(r.Quiet))
	say("config is changed twice more: once the second deletion is refused with 500, and once the controller is down")
	say("during the change and started afterwards.\n")
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
	say("\n- The numbers count all requests and responses of a controller from its start to its exit, except for the two")
	say("  rows \"while idle\". MB and KB are 1,000,000 and 1000 bytes on the wire.")
	say("- A Pod counts as replaced when it is being deleted. Lessons 1 and 3 wait until the second of the change is")
	say("  over, because they compare timestamps in whole seconds. All lessons have client-go's default rate limit")
	say("  for all their requests: a burst of 10, then 5 per second.")
	say("- A change is lost if Pods older than the change remain although the controller received it, has had time to")
	say("  read the Pods, and then has made no write for 10 seconds.\n")

	say("## What idle controllers cost with more Pods\n")
	say("Nothing happens for %s. Requests and KB received, per minute:\n", short(r.Window))
	head("Pods")
	for i, p := range points(r) {
		cells := []string{strconv.Itoa(p)}
		for _, s := range r.Lessons {
			cells = append(cells, fmt.Sprintf("%s, %s KB", number(s.Growth[i].Rest.Requests), number(s.Growth[i].Rest.KB)))
		}
		line(cells...)
	}
	say("\n- Lesson 1 makes four requests per iteration, which return all Nodes and all Pods. The API server compresses a")
	say("  response of more than 128 KB, so more Pods may be fewer bytes on the wire, but not less work.")
	say("- Lessons 2 and 3 make no requests. All they receive, with any number of Pods, is bookmarks: about once a")
	say("  minute, a watch delivers the current resourceVersion.")
	return page.String()
}

// points returns the sizes of growth.
func points(r results) (pods []int) {
	for _, p := range r.Lessons[0].Growth {
		pods = append(pods, p.Pods)
	}
	return pods
}

// number formats a non-negative number with at least two digits. Only zero is "0".
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

// duration formats a summary of durations; "–" if there are none.
func duration(all []time.Duration, sum func([]time.Duration) time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	return seconds(sum(all))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// short formats a duration without a trailing "0s": 1m, not 1m0s.
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
