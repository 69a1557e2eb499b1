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
	"strconv"
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

// measure measures the processes when they have just started everything, and again when they have settled.
func (b *boot) measure(ctx context.Context, idle time.Duration, processes ...*process.Process) error {
	var err error
	if b.cpu, err = processorTime(processes); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	for _, p := range processes {
		info, err := p.MemoryInfo()
		if err != nil {
			return fmt.Errorf("measure the memory of process %d: %w", p.Pid, err)
		}
		b.resident += info.RSS
		b.anonymous += anonymous(p.Pid)
	}
	if idle == 0 {
		return nil
	}
	before, err := processorTime(processes)
	if err != nil {
		return err
	}
	if err := pause(ctx, idle); err != nil {
		return err
	}
	after, err := processorTime(processes)
	b.idle = time.Duration(float64(after-before) * float64(time.Minute) / float64(idle))
	return err
}

// anonymous returns the anonymous memory of a process in bytes, or 0 where the system has no /proc to tell it.
func anonymous(pid int32) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kibibytes, _ := strconv.ParseUint(number, 10, 64)
	return kibibytes << 10
}

// processorTime returns the processor time that all processes together have used.
func processorTime(processes []*process.Process) (sum time.Duration, err error) {
	for _, p := range processes {
		times, err := p.Times()
		if err != nil {
			return 0, fmt.Errorf("measure the processor time of process %d: %w", p.Pid, err)
		}
		sum += time.Duration((times.User + times.System) * float64(time.Second))
	}
	return sum, nil
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
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
