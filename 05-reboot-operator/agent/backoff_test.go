package agent

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/controllers/reboot/protocol"
)

// flaky is a machine whose boot ID cannot be read a few times, and which does not reboot.
type flaky struct {
	mu     sync.Mutex
	left   int         // reads that will fail
	failed []time.Time // when one has
}

func (f *flaky) Read(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return "boot-1", nil
	}
	f.left--
	f.failed = append(f.failed, time.Now())
	return "", errors.New("input/output error")
}

func (f *flaky) Reboot(context.Context) error { return nil }

// failures lets reads fail, and returns how long after each failure the next one was.
func (f *flaky) failures(t *testing.T, count int) (gaps []time.Duration) {
	f.mu.Lock()
	f.left, f.failed = count, nil
	f.mu.Unlock()
	time.Sleep(time.Hour)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Len(t, f.failed, count)
	for i, at := range f.failed[1:] {
		gaps = append(gaps, at.Sub(f.failed[i]))
	}
	return gaps
}

// The second time that something fails, after it has succeeded, the agent retries as soon as the first time.
func TestTheBackoffBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &flaky{}
		client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-00", Annotations: map[string]string{
			protocol.InProgressAnnotation: "boot-1", protocol.AdmittedAnnotation: protocol.FormatTime(time.Now()),
		}}})
		ctx, stop := context.WithCancel(t.Context())
		a, err := New(ctx, client, Options{NodeName: "node-00", RebootRetry: 2 * time.Minute, Backoff: time.Second, MaxBackoff: time.Minute, BootID: machine, Rebooter: machine})
		require.NoError(t, err)
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		for range 2 {
			const s = time.Second
			require.Equal(t, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}, machine.failures(t, 9))
		}
		stop()
		require.NoError(t, <-ended)
	})
}
