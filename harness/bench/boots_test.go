package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

func TestReportLeavesOutWhatIsNotMeasured(t *testing.T) {
	ours := []boot{{ready: 1 * time.Second, running: 2 * time.Second, usage: usage{resident: 100 << 20}}, {ready: 3 * time.Second, running: 4 * time.Second, usage: usage{resident: 100 << 20}}}
	other := []boot{{ready: 4 * time.Second, usage: usage{resident: 400 << 20}}}
	var out strings.Builder
	if err := report(&out, side{name: "ours", boots: ours}, side{name: "envtest", boots: other}); err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(out.String(), "\n\n")
	want := strings.TrimSpace(`
median (range)                         ours                          envtest                       ratio
start to /readyz ok                    2.00 s (1.00 s – 3.00 s)      4.00 s (4.00 s – 4.00 s)      0.50
start to 20 Pods Running on 20 nodes   3.00 s (2.00 s – 4.00 s)      –                             –
resident memory                        100 MiB (100 MiB – 100 MiB)   400 MiB (400 MiB – 400 MiB)   0.25
`)
	if table != want {
		t.Errorf("got\n%s\nwant\n%s", table, want)
	}
}

func TestAnonymousMemoryIsPartOfTheResidentMemory(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("only Linux tells it")
	}
	ballast := make([]byte, 64<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	self := &process.Process{Pid: int32(os.Getpid())}
	info, err := self.MemoryInfo()
	if err != nil {
		t.Fatal(err)
	}
	got := anonymous(self.Pid)
	if got < uint64(len(ballast)) || got >= info.RSS { // which has the program's own pages, too
		t.Errorf("anonymous memory is %d bytes; want at least the %d that this test uses, and less than the resident %d", got, len(ballast), info.RSS)
	}
	runtime.KeepAlive(ballast)
}
