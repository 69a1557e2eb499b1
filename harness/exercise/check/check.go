// Package check is for the graders of exercises. A grader runs the participant's controller in a small world, lets
// things happen there, and says what went wrong.
//
//   - A failure says what went wrong in the world, in one or two sentences, and shows the timeline that led to it. It
//     never says which line to change.
//   - The world is an API server in memory (package inmemory), in virtual time (testing/synctest): an hour passes in
//     milliseconds, and the verdict does not depend on how fast the machine is.
//   - Some rules hold in every scene: see [World.requireReports] and [World.blindWrite].
//   - A grader ends with a verdict, whatever the participant's code does: it may panic, return early, ignore its context
//     or send requests without end.
//
// A grader is the file check_test.go of an exercise, and has one test:
//
//	func TestExercise(t *testing.T) {
//		check.Run(t,
//			check.Scene{Name: "a Pod is deleted", Play: func(w *check.World) {
//				w.Given(pod("web-0"))
//				w.Start(func(ctx context.Context, client kubernetes.Interface) error { return Run(ctx, client) })
//				w.Advance(time.Second)
//				w.Delete("pods", "shop", "web-0")
//				w.Advance(time.Minute)
//				if w.Exists("services", "shop", "web") {
//					w.Failf("Service shop/web is still there a minute after its last Pod was deleted.")
//				}
//			}},
//		)
//	}
package check

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"

	"example.com/controllers/harness/exercise/verdict"
	"example.com/controllers/harness/history"
)

// Scene is one part of a check. It gets a new World.
type Scene struct {
	Name string
	Play func(w *World)
}

// Run plays the scenes one after the other, up to the first that fails, and reports the verdict. A scene in which only the
// race detector found something does not end the check: a later one may say what follows from the race.
func Run(t *testing.T, scenes ...Scene) {
	t.Helper()
	out, err := verdict.NewWriter(func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	for _, scene := range scenes {
		out.Scene(scene.Name)
		var w *World
		if !t.Run(strings.ReplaceAll(scene.Name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w = newWorld(t, out)
				play(w, scene)
			})
		}) && w.hasFailed() {
			return
		}
	}
	if !t.Failed() {
		out.Pass()
	}
}

// play plays a scene in the bubble of its virtual time.
func play(w *World, scene Scene) {
	w.log()
	w.out.Record(history.Record{Step: &history.Step{Time: w.start, Name: scene.Name}})
	defer w.end()
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case brokenError:
			w.T.Fatal(cause)
		default:
			// A participant's function that the scene has called directly may panic, and so may the scene: the stack says which. A
			// panic of another goroutine ends the program as well.
			fmt.Fprintf(os.Stderr, "panic: %v\n\n%s", cause, debug.Stack())
			os.Exit(2)
		}
	}()
	scene.Play(w)
	w.check()
	w.requireReports()
}
