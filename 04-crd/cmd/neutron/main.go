// Program neutron is a small OpenStack Neutron in memory, for lesson 4. When it ends, all is forgotten.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
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
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("serve at --address %s: %w", *address, err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: &neutrontest.Server{}, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
