//go:build !linux

package torture

// processorTimes is not known here.
func processorTimes() map[int]processorTime { return nil }
