package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// pollInterval is the resolution of the measured times. With a shorter one, polling would slow down what is measured.
const pollInterval = 5 * time.Millisecond

// poll calls try every pollInterval until it succeeds or ctx is cancelled. doing says in the error what it is for.
func poll(ctx context.Context, doing string, try func() error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last try: %w)", doing, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// readyz waits until /readyz of the API server at address returns ok. It sends no credentials, because envtest provides
// them only once it is up.
func readyz(ctx context.Context, address string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	return poll(ctx, "wait for /readyz", func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return nil
	})
}

// memory returns the resident memory of all processes together, in bytes.
func memory(processes ...*process.Process) (uint64, error) {
	var sum uint64
	for _, p := range processes {
		info, err := p.MemoryInfo()
		if err != nil {
			return 0, fmt.Errorf("measure the memory of process %d: %w", p.Pid, err)
		}
		sum += info.RSS
	}
	return sum, nil
}

// exitError returns err, which cmd.Wait has returned, or an error that stands for exit status 0.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// withLogs adds the last lines of each log to an error. A nil error stays nil.
func withLogs(err error, logs ...*os.File) error {
	if err == nil {
		return nil
	}
	for _, log := range logs {
		text, readErr := os.ReadFile(log.Name())
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		const last = 10
		err = fmt.Errorf("%w\nthe last lines of %s:\n  %s", err, filepath.Base(log.Name()),
			strings.Join(lines[max(0, len(lines)-last):], "\n  "))
	}
	return err
}
