package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a time of day on certain days of the week. One that ends before it begins, or at the same time of day, ends on
// the next day.
//
// A moment is in the window if a clock in its time zone shows a time in it. So when the change to summer time skips an
// hour, a window within that hour does not open on that day, and when the change back repeats an hour, it opens twice.
type Window struct {
	days       [7]bool // by time.Weekday: those on which the window begins
	start, end clock
	location   *time.Location
}

// clock is a time of day, in minutes since midnight.
type clock int

// ParseWindow parses the days of the week on which a window begins, such as "mon" or "Monday", none for all; the times of
// day at which it begins and ends, such as "22:00", the end exclusive; and the name of a time zone, such as "Europe/Berlin".
func ParseWindow(days []string, start, end, zone string) (*Window, error) {
	w := &Window{}
	var err error
	if w.start, err = parseClock(start); err != nil {
		return nil, fmt.Errorf("--start-time: %w", err)
	}
	if w.end, err = parseClock(end); err != nil {
		return nil, fmt.Errorf("--end-time: %w", err)
	}
	if w.start == 24*60 && w.end == 0 {
		return nil, errors.New("--start-time 24:00 and --end-time 00:00 are the same midnight, so the window never opens; for a whole day, use 00:00 and 24:00")
	}
	if w.location, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("--time-zone: %w; use a name such as Europe/Berlin", err)
	}
	for _, name := range days {
		day := slices.IndexFunc(weekdays, func(full string) bool {
			return len(name) >= 2 && strings.HasPrefix(full, strings.ToLower(name))
		})
		if day < 0 {
			return nil, fmt.Errorf("--reboot-days: %q is not a day of the week; use mon, tue, wed, thu, fri, sat, sun", name)
		}
		w.days[day] = true
	}
	if len(days) == 0 {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}
	return w, nil
}

var weekdays = []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}

func parseClock(text string) (clock, error) {
	if text == "24:00" {
		return 24 * 60, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time of day, such as 22:00", text)
	}
	return clock(t.Hour()*60 + t.Minute()), nil
}

// Contains reports whether a time is in the window.
func (w *Window) Contains(t time.Time) bool {
	local := t.In(w.location)
	now := clock(local.Hour()*60 + local.Minute())
	today := local.Weekday()
	yesterday := (today + 6) % 7
	if w.start < w.end {
		return w.days[today] && w.start <= now && now < w.end
	}
	return w.days[today] && w.start <= now || w.days[yesterday] && now < w.end
}

// Next returns when the window opens next; t itself if it is open.
func (w *Window) Next(t time.Time) time.Time {
	const most = 15 * 24 * time.Hour // a weekly window that a change to summer time skips opens two weeks after the last one
	for next := t; next.Sub(t) < most; next = next.Truncate(time.Minute).Add(time.Minute) {
		if w.Contains(next) {
			return next.In(w.location)
		}
	}
	return time.Time{} // not reached: every window opens at least every other week
}
