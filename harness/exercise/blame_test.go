package exercise

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlame(t *testing.T) {
	const (
		dir    = "/src/exercises/my/31-lost-reply"
		mine   = "example.com/controllers/exercises/my/31-lost-reply.(*Controller).reconcile(0x1)\n\t/src/exercises/my/31-lost-reply/controller.go:42 +0x1d\n"
		check  = "example.com/controllers/exercises/my/31-lost-reply.TestExercise.func1(0x1)\n\t/src/exercises/my/31-lost-reply/check_test.go:20 +0x1d\n"
		server = "example.com/controllers/harness/exercise/inmemory.(*Server).update(0x1)\n\t/src/harness/exercise/inmemory/write.go:90 +0x1d\n"
		play   = "example.com/controllers/harness/exercise/check.play(0x1)\n\t/src/harness/exercise/check/check.go:84 +0x1d\n"
		client = "k8s.io/client-go/rest.(*Request).Do(0x1)\n\t/go/pkg/mod/k8s.io/client-go@v0.37.1/rest/request.go:1 +0x1d\n"
		gopher = "runtime.gopanic(0x1)\n\t/usr/lib/go/src/runtime/panic.go:1 +0x1d\n"
		made   = "created by example.com/controllers/harness/exercise/check.(*World).StartNamed in goroutine 7\n\t/src/harness/exercise/check/world.go:190 +0x1d\n"
	)
	for name, test := range map[string]struct {
		stack string
		want  blame
	}{
		"the controller":                           {gopher + mine + made, learners},
		"the controller, called by the check":      {gopher + mine + check + play, learners},
		"a library that the controller has called": {gopher + client + mine + made, learners},
		"the check":                                       {play + gopher + check + play, graders},
		"a library that the check has called":             {client + check + play, graders},
		"the API server of the check":                     {server + client + mine + made, graders},
		"a goroutine of a library":                        {gopher + client, nobodys},
		"a goroutine of the controller's that is running": {"\tgoroutine running on other thread; stack unavailable\n" + made, nobodys},
	} {
		t.Run(name, func(t *testing.T) {
			trace := "goroutine 1 gp=0x1 m=1 mp=0x2 [running]:\n" + test.stack + "\nexit status 2\n"
			require.Len(t, goroutines(trace), 1)
			require.Equal(t, test.want, judgeStack(goroutines(trace)[0], dir))
			require.Equal(t, test.want == learners, busyGoroutine(trace, dir) != "")
			require.Equal(t, test.want == graders, isGradersHang(trace, dir))
			require.False(t, isGradersHang(trace+"\ngoroutine 9 [running, synctest bubble 1]:\n"+mine, dir), "one that runs is at fault")
			idle := trace + "\ngoroutine 9 [select (durable), synctest bubble 1]:\n" + mine + "\ngoroutine 10 [sleep, synctest bubble 1]:\n" + mine
			require.Equal(t, test.want == graders, isGradersHang(idle, dir), "others that wait are not")
		})
	}
}

func TestAboutLeak(t *testing.T) {
	const (
		panicked = "goroutine 9 [running]:\ntesting/synctest.Test(0x1, 0x2)\n\t/usr/lib/go/src/testing/synctest/synctest.go:290 +0x90\n"
		queues   = "\ngoroutine 13 [select (durable), synctest bubble 1]:\nk8s.io/client-go/util/workqueue.(*delayingType[...]).waitingLoop(0x1)\n\t/go/pkg/mod/k8s.io/client-go@v0.37.1/util/workqueue/delaying_queue.go:320 +0x448\n"
		mine     = "\ngoroutine 14 [sync.Cond.Wait (durable), synctest bubble 1]:\nexample.com/controllers/exercises/my/18-left-behind.(*Controller).processNextWorkItem(0x1)\n\t/src/exercises/my/18-left-behind/controller.go:70 +0x1d\n"
	)
	require.Contains(t, aboutLeak(panicked+queues), "ShutDownWithDrain alone does not")
	require.Empty(t, aboutLeak(panicked+queues+mine), "the queue has not been shut down at all")
	require.Empty(t, aboutLeak(panicked+mine))
	require.Empty(t, aboutLeak(panicked))
}
