package torture

import "time"

// clock tells for how long something could have been done: it leaves out the time in which the machine stalled, in which our processes
// waited for a processor, and in which faults kept programs waiting.
type clock struct {
	stalls    *stalls // of the machine; nil if nobody watches for them
	holdUps   holdUps // by faults, of any program
	recovered recovery
}

// elapsed returns how long it is since a time, without the time in which the machine stalled, our processes waited for a
// processor, or faults kept the controller waiting.
func (c *clock) elapsed(since time.Time) time.Duration {
	return c.awake(since) - c.holdUps.since(since, c.recovered)
}

// awake returns how long it is since a time, without the time in which the machine stalled or our processes waited for a
// processor.
func (c *clock) awake(since time.Time) time.Duration {
	return time.Since(since) - c.starvedSince(since)
}

// unslowed is like awake, but without all of the time in which our processes waited for a processor, even if they got one for
// most of it. Patience would be too long with it; a program that others are to overtake must wait for as long.
func (c *clock) unslowed(since time.Time) time.Duration {
	return time.Since(since) - c.stalls.slowedSince(since)
}

// starvedSince returns for how much of the time since begin the machine stalled or our processes waited for a processor.
func (c *clock) starvedSince(begin time.Time) time.Duration {
	return c.stalls.starvedSince(begin)
}
