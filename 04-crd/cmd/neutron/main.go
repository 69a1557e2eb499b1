// Program neutron is an OpenStack Neutron for lesson 4: a small one in memory or, where Debian's python3-neutron is
// installed, the real one. When it ends, all is forgotten.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"example.com/controllers/crd/neutrontest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "neutron:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := flag.String("address", "127.0.0.1:9696", "where to serve; port 0 for any")
	isReal := flag.Bool("real", os.Getenv("NEUTRON") == "real", "be OpenStack's own, from Debian's python3-neutron; NEUTRON=real says the same")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: neutron [FLAG]... [COMMAND [ARGUMENT]...]\nWith a command, it serves until that ends. NEUTRON_URL says where, to the command.")
		flag.PrintDefaults()
	}
	flag.Parse()
	serve := serveSmall
	if *isReal {
		serve = serveReal
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	up := func(url string) { fmt.Println(url) }
	var running sync.WaitGroup
	var failed error
	if flag.NArg() > 0 {
		up = func(url string) {
			running.Go(func() {
				defer stop()
				failed = with(ctx, url, flag.Args())
			})
		}
	}
	err := serve(ctx, *address, up)
	stop() // it may have ended by itself
	running.Wait()
	return errors.Join(err, failed)
}

// with runs a command that uses the Neutron.
func with(ctx context.Context, url string, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "NEUTRON_URL="+url)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// serveSmall serves until ctx ends, and calls up when it has begun.
func serveSmall(ctx context.Context, address string, up func(url string)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve at --address %s: %w", address, err)
	}
	up("http://" + listener.Addr().String())
	server := &http.Server{Handler: &neutrontest.Server{}, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
