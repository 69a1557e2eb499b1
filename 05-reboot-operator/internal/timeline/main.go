// Program timeline watches the Nodes of a cluster while they reboot, and draws when each of them was in which phase, and
// when it was not ready, as an SVG. It begins with the first Node that is admitted, ends when all Nodes are idle and ready
// again, and writes the file that is its argument.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/controllers/reboot/protocol"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: timeline FILE.svg")
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	t, err := record(context.Background(), kubernetes.NewForConfigOrDie(config))
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], t.draw(), 0o666); err != nil {
		log.Fatal(err)
	}
	log.Printf("%s: at most %d of %d Nodes unavailable", os.Args[1], t.most(), len(t))
}

// state is what a Node looks like, as far as it is drawn.
type state struct {
	phase protocol.Phase
	ready bool
}

func (s state) unavailable() bool {
	return s != state{protocol.Idle, true} && s != state{protocol.Needed, true}
}

// change is a moment at which a state begins.
type change struct {
	after time.Duration // since the beginning of the timeline
	state state
}

// timeline holds the changes of each Node, in order. The last change of all is its end.
type timeline map[string][]change

func stateOf(node *corev1.Node) state {
	s := state{phase: protocol.PhaseOf(node)}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			s.ready = condition.Status == corev1.ConditionTrue
		}
	}
	return s
}

// record watches until all Nodes are idle and ready after at least one was not available.
func record(ctx context.Context, client kubernetes.Interface) (timeline, error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	current := map[string]state{}
	for i := range list.Items {
		current[list.Items[i].Name] = stateOf(&list.Items[i])
	}
	watch, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	fmt.Println("watching the Nodes")
	var begin time.Time
	t := timeline{}
	for event := range watch.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok || stateOf(node) == current[node.Name] {
			continue
		}
		s := stateOf(node)
		if begin.IsZero() && s.unavailable() {
			begin = time.Now()
			for name, before := range current {
				t[name] = []change{{0, before}}
			}
		}
		current[node.Name] = s
		if begin.IsZero() {
			continue
		}
		t[node.Name] = append(t[node.Name], change{time.Since(begin), s})
		done := true
		for _, s := range current {
			done = done && s == state{protocol.Idle, true}
		}
		if done {
			return t, nil
		}
	}
	return nil, fmt.Errorf("the watch has ended")
}

// end returns the time of the last change.
func (t timeline) end() time.Duration {
	var end time.Duration
	for _, changes := range t {
		end = max(end, changes[len(changes)-1].after)
	}
	return end
}

// most returns how many Nodes were unavailable at the same time, at most.
func (t timeline) most() int {
	type step struct {
		change
		node string
	}
	var steps []step
	for node, changes := range t {
		for _, c := range changes {
			steps = append(steps, step{c, node})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.after, b.after) })
	unavailable := map[string]bool{}
	most := 0
	for i, s := range steps {
		delete(unavailable, s.node)
		if s.state.unavailable() {
			unavailable[s.node] = true
		}
		if i == len(steps)-1 || steps[i+1].after > s.after { // what happens at the same moment counts together
			most = max(most, len(unavailable))
		}
	}
	return most
}

// The measures of the drawing, in pixels.
const (
	left, right = 70, 880
	top, row    = 56, 26
	bar         = 16
)

func (t timeline) draw() []byte {
	names := []string{}
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	end := t.end()
	x := func(d time.Duration) float64 { return left + float64(right-left)*float64(d)/float64(max(end, 1)) }
	height := top + row*len(names) + 40
	var svg bytes.Buffer
	fmt.Fprintf(&svg, head, height, height, height)
	for i, phase := range []struct{ class, text string }{
		{"Needed", "Needed"}, {"Draining", "Draining"}, {"Approved", "Approved"}, {"InProgress", "InProgress"}, {"down", "not ready"},
	} {
		fmt.Fprintf(&svg, `<rect class="%s" x="%d" y="16" width="18" height="%d"/><text x="%d" y="29">%s</text>`+"\n", phase.class, left+130*i, bar, left+24+130*i, phase.text)
	}
	bottom := top + row*len(names)
	step := time.Second
	for _, s := range []time.Duration{2, 5, 10, 30, 60, 300} {
		if end/step > 12 {
			step = s * time.Second
		}
	}
	for at := time.Duration(0); at <= end; at += step {
		fmt.Fprintf(&svg, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="tick" x="%.1f" y="%d">%s</text>`+"\n", x(at), top-6, x(at), bottom, x(at), bottom+18, at)
	}
	for i, name := range names {
		y := top + row*i
		fmt.Fprintf(&svg, `<text class="node" x="%d" y="%d">%s</text>`+"\n", left-10, y+13, name)
		changes := t[name]
		for j, c := range changes {
			until := end
			if j+1 < len(changes) {
				until = changes[j+1].after
			}
			if c.state.phase != protocol.Idle {
				fmt.Fprintf(&svg, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", c.state.phase, x(c.after), y, x(until)-x(c.after), bar)
			}
			if !c.state.ready {
				fmt.Fprintf(&svg, `<rect class="down" x="%.1f" y="%d" width="%.1f" height="5"/>`+"\n", x(c.after), y+bar-5, x(until)-x(c.after))
			}
		}
	}
	svg.WriteString("</svg>\n")
	return svg.Bytes()
}

const head = `<svg xmlns="http://www.w3.org/2000/svg" width="900" height="%d" viewBox="0 0 900 %d" role="img" aria-labelledby="title">
<title id="title">When each Node was in which phase, and when it was not ready</title>
<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.node { text-anchor: end }
.tick { text-anchor: middle; font-size: 11px }
.background { fill: #ffffff }
.grid { stroke: #d0d7de }
.Needed { fill: #dfe3e8 }
.Draining, .Cancelled { fill: #e3a53b }
.Approved { fill: #6cb2ff }
.InProgress { fill: #56b86b }
.down { fill: #b3261e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .background { fill: #0d1117 }
  .grid { stroke: #30363d }
  .Needed { fill: #30363d }
  .down { fill: #ff7b72 }
}
</style>
<rect class="background" width="900" height="%d" rx="8"/>
`
