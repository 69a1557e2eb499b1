package reboot

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is a time of day on certain days of the week. One that ends before it begins ends on the day after.
type Window struct {
	days       [7]bool // by time.Weekday; of the beginning
	start, end clock
	location   *time.Location
}

// clock is a time of day, in minutes since midnight.
type clock int

// ParseWindow parses days such as "mon" or "monday", none for all; times of day such as "22:00", of which the end is not in
// the window; and the name of a time zone, such as "Europe/Berlin".
func ParseWindow(days []string, start, end, zone string) (*Window, error) {
	w := &Window{}
	var err error
	if w.start, err = parseClock(start); err != nil {
		return nil, fmt.Errorf("--start-time: %w", err)
	}
	if w.end, err = parseClock(end); err != nil {
		return nil, fmt.Errorf("--end-time: %w", err)
	}
	if w.location, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("--time-zone: %w; use a name such as Europe/Berlin", err)
	}
	for _, name := range days {
		day := slices.IndexFunc(weekdays, func(full string) bool {
			return len(name) >= 2 && strings.HasPrefix(full, strings.ToLower(name))
		})
		if day < 0 {
			return nil, fmt.Errorf("--reboot-days: %q is no day of the week; use mon, tue, wed, thu, fri, sat, sun", name)
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
		return 0, fmt.Errorf("%q is no time of day, such as 22:00", text)
	}
	return clock(t.Hour()*60 + t.Minute()), nil
}

// Contains reports whether a time is in the window.
func (w *Window) Contains(t time.Time) bool {
	for _, days := range []int{0, -1} { // it may have begun yesterday
		if begin, end, ok := w.on(t, days); ok && !t.Before(begin) && t.Before(end) {
			return true
		}
	}
	return false
}

// Next returns when the window begins next, after a time.
func (w *Window) Next(t time.Time) time.Time {
	for days := range 9 {
		if begin, _, ok := w.on(t, days); ok && begin.After(t) {
			return begin
		}
	}
	return time.Time{} // no day of the week is set, which ParseWindow does not return
}

// on returns the window that begins some days after the day of t, if there is one. Clock times that a change to summer
// time leaves out are an hour later.
func (w *Window) on(t time.Time, days int) (begin, end time.Time, ok bool) {
	year, month, day := t.In(w.location).Date()
	day += days
	at := func(day int, c clock) time.Time { return time.Date(year, month, day, 0, int(c), 0, 0, w.location) }
	begin = at(day, w.start)
	last := day
	if w.end <= w.start {
		last++
	}
	return begin, at(last, w.end), w.days[time.Date(year, month, day, 12, 0, 0, 0, w.location).Weekday()]
}
