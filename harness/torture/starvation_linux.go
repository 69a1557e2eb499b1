package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processorTimes returns the processor times, which are in nanoseconds, of the threads of this process and its descendants.
//
// Source: /proc/PID/task/TID/schedstat and children, see proc(5) and "Scheduler Statistics" in the kernel's documentation.
func processorTimes() map[int]processorTime {
	times := map[int]processorTime{}
	for pids := []string{"self"}; len(pids) > 0; pids = pids[1:] {
		threads, _ := filepath.Glob(filepath.Join("/proc", pids[0], "task", "*")) // none if it has ended
		for _, thread := range threads {
			children, _ := os.ReadFile(filepath.Join(thread, "children"))
			pids = append(pids, strings.Fields(string(children))...)
			text, _ := os.ReadFile(filepath.Join(thread, "schedstat"))
			var t processorTime
			id, err := strconv.Atoi(filepath.Base(thread))
			if n, _ := fmt.Sscan(string(text), (*int64)(&t.ran), (*int64)(&t.waited)); n == 2 && err == nil {
				times[id] = t
			}
		}
	}
	return times
}
