package torture

import (
	"math"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/shirou/gopsutil/v4/mem"
)

// Runs is how many runs there are at a time: [Options.Parallel], or at most what the machine takes of this scenario's while its
// processors are busy.
func (o Options) Runs() int {
	switch {
	case o.Scenario.Namespace != "" && !o.Scenario.isCluster():
		return 1
	case o.Parallel > 0:
		return o.Parallel
	case o.Scenario.isCluster():
		return max(1, Capacity()/perControlPlane)
	}
	return Capacity()
}

// mostRuns is how many runs there are at most at a time while the processors have nothing to do.
func (o Options) mostRuns() int {
	idle := capacity(2*runtime.GOMAXPROCS(0), availableMemory())
	switch {
	case o.Scenario.isCluster():
		return max(o.Runs(), idle/perControlPlane)
	case o.Scenario.Namespace != "":
		return o.Runs()
	}
	return idle
}

// perControlPlane is how many runs on a shared control plane cost as much as one with its own: that takes memory, and
// mostly starting it takes processors.
const perControlPlane = 4

// Capacity is how many runs this machine surely takes at a time. A run mostly waits, so there may be several for each
// processor; each has a controller of its own, which needs memory.
func Capacity() int { return capacity(runtime.GOMAXPROCS(0), availableMemory()) }

// availableMemory returns how many bytes there are for runs.
func availableMemory() uint64 {
	memory := uint64(math.MaxUint64)
	if free, err := mem.VirtualMemory(); err == nil {
		memory = free.Available
	}
	if limit, err := memlimit.FromCgroup(); err == nil { // of a container
		memory = min(memory, limit)
	}
	return memory
}

// capacity is [Capacity] on so many processors, with so many bytes of memory.
func capacity(processors int, memory uint64) int {
	const perProcessor, perRun = 18, 200 << 20 // bytes
	return int(max(2, min(uint64(perProcessor*processors), memory/perRun)))
}
