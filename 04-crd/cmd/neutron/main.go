// Program neutron serves an OpenStack Neutron for lesson 4: a small one in memory or, with --real, OpenStack's own from
// Debian's python3-neutron. Either forgets everything when it ends.
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
	address := flag.String("address", "127.0.0.1:9696", "host:port to serve on; port 0 picks a free one")
	isReal := flag.Bool("real", os.Getenv("NEUTRON") == "real", "run OpenStack's own Neutron, from Debian's python3-neutron; NEUTRON=real in the environment does the same")
	requestIDs := flag.Bool("request-ids", false, "add the request's ID to the message of each error, so that no two are alike; not with --real")
	pageSize := flag.Int("page-size", 0, "how many objects a response to a list has at most; 0: all of them; not with --real")
	subnets := flag.Int("subnets", 0, "how many subnets a project may have; 0: Neutron's default, 100; not with --real")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: neutron [FLAG]... [COMMAND [ARGUMENT]...]\nPrints its URL and serves until it is interrupted. With a command, it runs that with NEUTRON_URL set, and serves until it ends.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *pageSize < 0 {
		return fmt.Errorf("--page-size must be 0 or more, not %d", *pageSize)
	}
	if *subnets < 0 {
		return fmt.Errorf("--subnets must be 0 or more, not %d", *subnets)
	}
	serve := func(ctx context.Context, address string, up func(url string)) error {
		return serveInMemory(ctx, address, &neutrontest.Server{RequestIDs: *requestIDs, PageSize: *pageSize, Subnets: *subnets}, up)
	}
	if *isReal {
		if *requestIDs || *pageSize != 0 || *subnets != 0 {
			return errors.New("--request-ids, --page-size and --subnets do not go with --real")
		}
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
				failed = runCommand(ctx, url, flag.Args())
			})
		}
	}
	err := serve(ctx, *address, up)
	stop() // for the command, if the Neutron ended first
	running.Wait()
	return errors.Join(err, failed)
}

// runCommand runs a command with NEUTRON_URL in its environment.
func runCommand(ctx context.Context, url string, args []string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "NEUTRON_URL="+url)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// serveInMemory serves until ctx ends. It calls up once it accepts connections.
func serveInMemory(ctx context.Context, address string, handler http.Handler, up func(url string)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve at --address %s: %w", address, err)
	}
	up("http://" + listener.Addr().String())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
