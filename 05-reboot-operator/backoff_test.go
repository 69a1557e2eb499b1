package reboot

import (
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// The second time that the controller's writes fail, after they have succeeded, it retries as soon as the first time, and not
// after the longest wait.
func TestTheBackoffBeginsAnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.addMachines(1)
		controller := w.startController(0)
		var fails atomic.Bool
		controller.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails.Load(), nil, apierrors.NewInternalError(errors.New("out of order"))
		})
		// The counts of failures that it has logged for each key, such as "1 2 3".
		logged := func() map[string]string {
			counts := map[string]string{}
			for _, line := range controller.errors() {
				if found := regexp.MustCompile(`key="([^"]*)" failures=(\d+)`).FindStringSubmatch(line); found != nil {
					counts[found[1]] += found[2] + " "
				}
			}
			return counts
		}
		for round := 1; round <= 2; round++ {
			fails.Store(true)
			w.request("node-00")
			advance(3 * time.Minute)
			fails.Store(false)
			advance(10 * time.Minute)
			w.requireDone(round, "node-00")
			for key, counts := range logged() {
				require.Equal(t, round, strings.Count(" "+counts, " 1 "), "%s: %s", key, counts)
			}
			require.NotEmpty(t, logged())
		}
	})
}
