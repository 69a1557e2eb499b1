package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/controllers/harness/machine"
)

func TestSizes(t *testing.T) {
	var s sizes
	if err := s.Set("100x400, 1x100000"); err != nil || s.String() != "100x400,1x100000" {
		t.Errorf("got %s, %v", s.String(), err)
	}
	for _, text := range []string{",", "100", "0x1", "1x0", "10001x1", "1x100001", "1x2x3", "ax1"} {
		if s.Set(text) == nil {
			t.Errorf("%q is accepted, as %s", text, s.String())
		}
	}
}

// server is a watch of Nodes. Each watch ends after two events, and the next one goes on from the version that is asked for.
type server struct {
	mu     sync.Mutex
	events []*corev1.Node
	more   chan struct{}
}

func (s *server) add(name string, ready corev1.ConditionStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(len(s.events) + 2)}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	s.events = append(s.events, node)
	close(s.more)
	s.more = make(chan struct{})
}

// version returns the version of the last event.
func (s *server) version(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(len(s.events) + 1), nil
}

func (s *server) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	var from int
	if _, err := fmt.Sscan(o.ResourceVersion, &from); err != nil {
		return nil, err
	}
	w := watch.NewRaceFreeFake()
	go func() {
		defer w.Stop()
		for i := from - 1; i < from+1; i++ {
			for {
				s.mu.Lock()
				var event *corev1.Node
				if len(s.events) > i {
					event = s.events[i]
				}
				more := s.more
				s.mu.Unlock()
				if event != nil {
					w.Modify(event)
					break
				}
				select {
				case <-more:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return w, nil
}

// Each Node counts once, when it is Ready, and a watch that ends is opened again.
func TestReach(t *testing.T) { synctest.Test(t, testReach) } // to open a watch again takes a second

func testReach(t *testing.T) {
	s := &server{more: make(chan struct{})}
	took, err := reach(t.Context(), "the Nodes are Ready", 5, s.version, s.watch, isReady, func(_ context.Context, i int) error {
		s.add(machine.Name(i), corev1.ConditionFalse)
		s.add(machine.Name(i), corev1.ConditionTrue)
		s.add(machine.Name(i), corev1.ConditionTrue)
		return nil
	})
	if err != nil || took <= 0 {
		t.Errorf("it took %s: %v", took, err)
	}
}

func TestReachFails(t *testing.T) { synctest.Test(t, testReachFails) }

func testReachFails(t *testing.T) {
	s := &server{more: make(chan struct{})}
	refused := errors.New("refused")
	if _, err := reach(t.Context(), "the Nodes are Ready", 2, s.version, s.watch, isReady, func(context.Context, int) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v, want what creating failed with", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it took too long"))
	defer cancel()
	s.add("from before", corev1.ConditionTrue)
	_, err := reach(ctx, "the Nodes are Ready", 2, s.version, s.watch, isReady, func(_ context.Context, i int) error {
		s.add(machine.Name(i), corev1.ConditionFalse)
		if i == 0 {
			s.add(machine.Name(i), corev1.ConditionTrue)
			s.add(machine.Name(i), corev1.ConditionTrue)
		}
		return nil
	})
	if want := "wait until the Nodes are Ready: it took too long (1 of 2 are)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
