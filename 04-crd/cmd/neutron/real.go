package main

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Debian's Python and its packages. Another Python on the PATH would not find them.
const (
	python   = "/usr/bin/python3"
	packages = "/usr/lib/python3/dist-packages/neutron"
)

//go:embed real
var files embed.FS

// serveReal serves OpenStack's own Neutron, in a Python process, until ctx ends. It calls up once it accepts connections.
func serveReal(ctx context.Context, address string, up func(url string)) (err error) {
	if _, err := os.Stat(packages); err != nil {
		return errors.New("OpenStack's own Neutron is not installed; on Debian, run as root: apt-get install --no-install-recommends python3-neutron")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("serve at --address %s: %w", address, err)
	}
	dir, err := os.MkdirTemp("", "neutron-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, "real", name) }
	cmd := exec.CommandContext(ctx, python, "-W", "ignore", in("serve.py"), in("neutron.conf"), dir, host, port)
	cmd.Stderr = os.Stderr
	// It exits when its standard input closes, so it does not outlive this process, even if that is killed.
	alive, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = alive.Close
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		up(strings.TrimSpace(url))
	}
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the Neutron at --address %s exited: %w", address, err)
	}
	return nil
}
