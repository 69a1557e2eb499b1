package policy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const berlin = "Europe/Berlin"

// at parses a time with its offset from UTC, such as "2026-03-29 03:00 +0200".
func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse("2006-01-02 15:04 -0700", text)
	require.NoError(t, err)
	return parsed
}

// 2026-01-05 is a Monday. In Berlin, clocks skip from 2:00 to 3:00 on 2026-03-29 and go back from 3:00 to 2:00 on
// 2026-10-25; in New York, on 2026-03-08 and from 2:00 to 1:00 on 2026-11-01. All of these are Sundays.
func TestWindowContains(t *testing.T) {
	tests := map[string]struct {
		days             []string
		start, end, zone string
		in, out          []string
	}{
		"within a day": {
			start: "09:00", end: "17:30", zone: "UTC",
			in:  []string{"2026-01-05 09:00 +0000", "2026-01-05 17:29 +0000", "2026-01-05 18:29 +0100"},
			out: []string{"2026-01-05 08:59 +0000", "2026-01-05 17:30 +0000", "2026-01-05 09:00 +0100"},
		},
		"across midnight": {
			start: "22:00", end: "06:00", zone: "UTC",
			in:  []string{"2026-01-05 22:00 +0000", "2026-01-05 23:59 +0000", "2026-01-06 00:00 +0000", "2026-01-06 05:59 +0000"},
			out: []string{"2026-01-05 21:59 +0000", "2026-01-06 06:00 +0000", "2026-01-06 12:00 +0000"},
		},
		"until midnight": {
			start: "22:00", end: "24:00", zone: "UTC",
			in:  []string{"2026-01-05 22:00 +0000", "2026-01-05 23:59 +0000"},
			out: []string{"2026-01-05 21:59 +0000", "2026-01-06 00:00 +0000"},
		},
		"all day": {
			start: "00:00", end: "24:00", zone: "UTC",
			in: []string{"2026-01-05 00:00 +0000", "2026-01-05 12:00 +0000", "2026-01-05 23:59 +0000"},
		},
		"a day of the week": {
			days: []string{"mon"}, start: "09:00", end: "17:00", zone: "UTC",
			in:  []string{"2026-01-05 12:00 +0000", "2026-01-12 12:00 +0000"},
			out: []string{"2026-01-04 12:00 +0000", "2026-01-06 12:00 +0000"},
		},
		"across midnight, on the day on which it begins": {
			days: []string{"mon"}, start: "22:00", end: "06:00", zone: "UTC",
			in:  []string{"2026-01-05 22:00 +0000", "2026-01-06 05:59 +0000"},
			out: []string{"2026-01-05 05:59 +0000", "2026-01-06 22:00 +0000"},
		},
		"across the end of the week": {
			days: []string{"sat"}, start: "22:00", end: "06:00", zone: "UTC",
			in:  []string{"2026-01-10 22:00 +0000", "2026-01-11 05:59 +0000"},
			out: []string{"2026-01-10 05:59 +0000", "2026-01-11 22:00 +0000"},
		},
		"all of a day": {
			days: []string{"mon"}, start: "00:00", end: "24:00", zone: "UTC",
			in:  []string{"2026-01-05 00:00 +0000", "2026-01-05 23:59 +0000"},
			out: []string{"2026-01-04 23:59 +0000", "2026-01-06 00:00 +0000"},
		},
		"as long as a day, which begins in its middle": {
			days: []string{"mon"}, start: "12:00", end: "12:00", zone: "UTC",
			in:  []string{"2026-01-05 12:00 +0000", "2026-01-06 11:59 +0000"},
			out: []string{"2026-01-05 11:59 +0000", "2026-01-06 12:00 +0000"},
		},
		"the midnight at the end of a day": {
			days: []string{"mon"}, start: "24:00", end: "06:00", zone: "UTC",
			in:  []string{"2026-01-06 00:00 +0000", "2026-01-06 05:59 +0000"},
			out: []string{"2026-01-05 00:00 +0000", "2026-01-05 23:59 +0000", "2026-01-06 06:00 +0000"},
		},
		"the day is the one of the time zone": {
			days: []string{"mon"}, start: "00:00", end: "01:00", zone: berlin,
			in:  []string{"2026-01-04 23:30 +0000"},
			out: []string{"2026-01-05 00:30 +0000"},
		},
		"summer time begins within the window": {
			start: "22:00", end: "06:00", zone: berlin,
			in:  []string{"2026-03-28 22:00 +0100", "2026-03-29 01:59 +0100", "2026-03-29 03:00 +0200", "2026-03-29 05:59 +0200"},
			out: []string{"2026-03-28 21:59 +0100", "2026-03-29 06:00 +0200"},
		},
		"summer time ends within the window": {
			start: "22:00", end: "06:00", zone: berlin,
			in:  []string{"2026-10-24 22:00 +0200", "2026-10-25 02:59 +0200", "2026-10-25 02:00 +0100", "2026-10-25 05:59 +0100"},
			out: []string{"2026-10-24 21:59 +0200", "2026-10-25 06:00 +0100"},
		},
		"all day, when summer time begins": {
			start: "00:00", end: "24:00", zone: berlin,
			in: []string{"2026-03-29 00:00 +0100", "2026-03-29 01:59 +0100", "2026-03-29 03:00 +0200", "2026-03-29 23:59 +0200"},
		},
		"all day, when summer time ends": {
			days: []string{"sun"}, start: "00:00", end: "24:00", zone: berlin,
			in:  []string{"2026-10-25 00:00 +0200", "2026-10-25 02:30 +0200", "2026-10-25 02:30 +0100", "2026-10-25 23:59 +0100"},
			out: []string{"2026-10-24 23:59 +0200", "2026-10-26 00:00 +0100"},
		},
		"it begins in the hour that is skipped": {
			start: "02:30", end: "04:00", zone: berlin,
			in:  []string{"2026-03-29 03:00 +0200", "2026-03-29 03:59 +0200"},
			out: []string{"2026-03-29 01:59 +0100", "2026-03-29 04:00 +0200"},
		},
		"it begins in the hour that is skipped west of Greenwich": {
			start: "02:30", end: "04:00", zone: "America/New_York",
			in:  []string{"2026-03-08 03:00 -0400", "2026-03-08 03:59 -0400"},
			out: []string{"2026-03-08 01:30 -0500", "2026-03-08 01:59 -0500", "2026-03-08 04:00 -0400"},
		},
		"it ends in the hour that is skipped": {
			start: "01:00", end: "02:30", zone: berlin,
			in:  []string{"2026-03-29 01:00 +0100", "2026-03-29 01:59 +0100"},
			out: []string{"2026-03-29 03:00 +0200"},
		},
		"it lies in the hour that is skipped": {
			start: "02:00", end: "03:00", zone: berlin,
			in:  []string{"2026-03-28 02:30 +0100", "2026-03-30 02:30 +0200"},
			out: []string{"2026-03-29 01:59 +0100", "2026-03-29 03:00 +0200"},
		},
		"it lies in the hour that is repeated": {
			start: "02:00", end: "03:00", zone: berlin,
			in:  []string{"2026-10-25 02:00 +0200", "2026-10-25 02:59 +0200", "2026-10-25 02:00 +0100", "2026-10-25 02:59 +0100"},
			out: []string{"2026-10-25 01:59 +0200", "2026-10-25 03:00 +0100"},
		},
		"it begins in the hour that is repeated": {
			start: "02:30", end: "04:00", zone: berlin,
			in:  []string{"2026-10-25 02:30 +0200", "2026-10-25 02:30 +0100", "2026-10-25 03:59 +0100"},
			out: []string{"2026-10-25 02:29 +0200", "2026-10-25 02:29 +0100", "2026-10-25 04:00 +0100"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWindow(test.days, test.start, test.end, test.zone)
			require.NoError(t, err)
			for _, text := range test.in {
				require.True(t, w.Contains(at(t, text)), "%s is in the window", text)
			}
			for _, text := range test.out {
				require.False(t, w.Contains(at(t, text)), "%s is not in the window", text)
			}
		})
	}
}

func TestWindowNext(t *testing.T) {
	tests := map[string]struct {
		days             []string
		start, end, zone string
		from, want       string
	}{
		"later on the same day":                {nil, "22:00", "23:00", "UTC", "2026-01-05 12:00 +0000", "2026-01-05 22:00 +0000"},
		"on the next day":                      {nil, "22:00", "23:00", "UTC", "2026-01-05 23:00 +0000", "2026-01-06 22:00 +0000"},
		"while it is open":                     {nil, "22:00", "06:00", "UTC", "2026-01-06 05:59 +0000", "2026-01-06 05:59 +0000"},
		"when it closes":                       {nil, "22:00", "06:00", "UTC", "2026-01-06 06:00 +0000", "2026-01-06 22:00 +0000"},
		"on the next of the days":              {[]string{"mon", "thu"}, "09:00", "10:00", "UTC", "2026-01-05 10:00 +0000", "2026-01-08 09:00 +0000"},
		"in a week":                            {[]string{"mon"}, "09:00", "10:00", "UTC", "2026-01-05 10:00 +0000", "2026-01-12 09:00 +0000"},
		"in the time zone":                     {nil, "22:00", "23:00", berlin, "2026-01-05 12:00 +0000", "2026-01-05 22:00 +0100"},
		"after the change to summer time":      {nil, "22:00", "06:00", berlin, "2026-03-28 12:00 +0100", "2026-03-28 22:00 +0100"},
		"on the day of the change":             {nil, "22:00", "06:00", berlin, "2026-03-29 06:00 +0200", "2026-03-29 22:00 +0200"},
		"it begins in the hour that's skipped": {nil, "02:30", "04:00", berlin, "2026-03-29 00:00 +0100", "2026-03-29 03:00 +0200"},
		"the same west of Greenwich":           {nil, "02:30", "04:00", "America/New_York", "2026-03-08 00:00 -0500", "2026-03-08 03:00 -0400"},
		"it lies in the hour that's skipped":   {nil, "02:00", "03:00", berlin, "2026-03-29 00:00 +0100", "2026-03-30 02:00 +0200"},
		"the same, and it's weekly":            {[]string{"sun"}, "02:00", "03:00", berlin, "2026-03-22 03:00 +0100", "2026-04-05 02:00 +0200"},
		"the first of two repeated hours":      {nil, "02:00", "03:00", berlin, "2026-10-25 00:00 +0200", "2026-10-25 02:00 +0200"},
		"the second of two repeated hours":     {nil, "02:00", "02:30", berlin, "2026-10-25 02:30 +0200", "2026-10-25 02:00 +0100"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWindow(test.days, test.start, test.end, test.zone)
			require.NoError(t, err)
			next := w.Next(at(t, test.from))
			require.Equal(t, test.want, next.Format("2006-01-02 15:04 -0700"))
			require.True(t, w.Contains(next))
		})
	}

	t.Run("to the second, and within a minute", func(t *testing.T) {
		w, err := ParseWindow(nil, "22:00", "23:00", "UTC")
		require.NoError(t, err)
		opens := at(t, "2026-01-05 22:00 +0000")
		require.WithinDuration(t, opens, w.Next(opens.Add(-time.Second)), 0)
		require.False(t, w.Contains(opens.Add(-1)))
		require.True(t, w.Contains(opens.Add(time.Hour-1)))
	})
}

func TestParseWindowDays(t *testing.T) {
	monday := at(t, "2026-01-05 12:00 +0000")
	all := []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday, time.Sunday}
	tests := map[string]struct {
		days []string
		want []time.Weekday
	}{
		"none":               {nil, all},
		"abbreviations":      {[]string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}, all},
		"two letters":        {[]string{"mo", "tu", "we", "th", "fr", "sa", "su"}, all},
		"full names":         {[]string{"tuesday", "thursday"}, []time.Weekday{time.Tuesday, time.Thursday}},
		"in any case":        {[]string{"Sat", "SUNDAY"}, []time.Weekday{time.Saturday, time.Sunday}},
		"more than once":     {[]string{"mon", "Monday", "mon"}, []time.Weekday{time.Monday}},
		"not in their order": {[]string{"fri", "mon"}, []time.Weekday{time.Monday, time.Friday}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWindow(test.days, "00:00", "24:00", "UTC")
			require.NoError(t, err)
			var got []time.Weekday
			for day := range 7 {
				if noon := monday.AddDate(0, 0, day); w.Contains(noon) {
					got = append(got, noon.Weekday())
				}
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseWindowErrors(t *testing.T) {
	tests := map[string]struct {
		days             []string
		start, end, zone string
		want             string
	}{
		"no start":            {nil, "", "06:00", "UTC", `--start-time: "" is not a time of day, such as 22:00`},
		"no end":              {nil, "22:00", "", "UTC", `--end-time: "" is not a time of day, such as 22:00`},
		"a word":              {nil, "noon", "06:00", "UTC", `--start-time: "noon" is not a time of day, such as 22:00`},
		"an hour alone":       {nil, "22", "06:00", "UTC", `--start-time: "22" is not a time of day, such as 22:00`},
		"an hour too many":    {nil, "22:00", "25:00", "UTC", `--end-time: "25:00" is not a time of day, such as 22:00`},
		"after midnight":      {nil, "22:00", "24:01", "UTC", `--end-time: "24:01" is not a time of day, such as 22:00`},
		"a minute too many":   {nil, "22:60", "06:00", "UTC", `--start-time: "22:60" is not a time of day, such as 22:00`},
		"from midnight to it": {nil, "24:00", "00:00", "UTC", "--start-time 24:00 and --end-time 00:00 are the same midnight, so the window never opens; for a whole day, use 00:00 and 24:00"},
		"with seconds":        {nil, "22:00:00", "06:00", "UTC", `--start-time: "22:00:00" is not a time of day, such as 22:00`},
		"twelve hours":        {nil, "10:00pm", "06:00", "UTC", `--start-time: "10:00pm" is not a time of day, such as 22:00`},
		"an unknown zone":     {nil, "22:00", "06:00", "Mars/Phobos", `--time-zone: unknown time zone Mars/Phobos; use a name such as Europe/Berlin`},
		"an offset":           {nil, "22:00", "06:00", "+01:00", `--time-zone: unknown time zone +01:00; use a name such as Europe/Berlin`},
		"an unknown day":      {[]string{"mon", "noday"}, "22:00", "06:00", "UTC", `--reboot-days: "noday" is not a day of the week; use mon, tue, wed, thu, fri, sat, sun`},
		"an ambiguous day":    {[]string{"t"}, "22:00", "06:00", "UTC", `--reboot-days: "t" is not a day of the week; use mon, tue, wed, thu, fri, sat, sun`},
		"no day":              {[]string{""}, "22:00", "06:00", "UTC", `--reboot-days: "" is not a day of the week; use mon, tue, wed, thu, fri, sat, sun`},
		"more than a day":     {[]string{"mondays"}, "22:00", "06:00", "UTC", `--reboot-days: "mondays" is not a day of the week; use mon, tue, wed, thu, fri, sat, sun`},
		"a number of the day": {[]string{"1"}, "22:00", "06:00", "UTC", `--reboot-days: "1" is not a day of the week; use mon, tue, wed, thu, fri, sat, sun`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseWindow(test.days, test.start, test.end, test.zone)
			require.EqualError(t, err, test.want)
		})
	}
}
