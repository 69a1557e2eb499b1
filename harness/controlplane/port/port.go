// Package port gives a control plane a port that it can have again after it was killed.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// Ports are chosen from first up to, but not including, end. Below end, no system that the workshop runs on chooses ports by
// itself: on Linux, that is for outgoing connections, too, and on a busy machine one of these may take the port of a control
// plane while it is down.
const first, end = 20000, 30000

// Listen listens on the port of 127.0.0.1 that is stored in file, if it is free, so that kubeconfigs of an earlier run stay
// valid; otherwise on any free port. It stores the port in file.
func Listen(file string) (net.Listener, error) {
	const attempts = 100
	var ports []int
	if text, err := os.ReadFile(file); err == nil {
		if port, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			ports = append(ports, port)
		}
	}
	for range attempts {
		ports = append(ports, first+rand.IntN(end-first))
	}
	var failures []error
	for _, port := range append(ports, 0) { // 0 for whatever the system chooses
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		port = listener.Addr().(*net.TCPAddr).Port
		if err := os.WriteFile(file, []byte(strconv.Itoa(port)), 0o600); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		return listener, nil
	}
	return nil, fmt.Errorf("no port of 127.0.0.1 is free: %w", failures[len(failures)-1])
}
