package apiproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// gate is a listener that can be shut for a time. While it is shut, its connections are broken and no client can connect.
type gate struct {
	address string
	ctx     context.Context // cancelled when the gate is closed for good
	end     context.CancelFunc

	mu          sync.Mutex
	listener    net.Listener          // nil while the gate is shut
	opens       chan struct{}         // closed when the gate opens again; valid while it is shut
	shuts       int                   // how often it was shut
	connections map[net.Conn]struct{} // all that are open
	work        sync.WaitGroup        // the goroutine that reopens the gate
}

func newGate(ctx context.Context, address string) (*gate, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	g := &gate{address: listener.Addr().String(), listener: listener, connections: map[net.Conn]struct{}{}}
	g.ctx, g.end = context.WithCancel(context.Background())
	return g, nil
}

// Addr implements [net.Listener].
func (g *gate) Addr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listener.Addr()
}

// Accept implements [net.Listener]. While the gate is shut, it waits.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		listener, opens := g.listener, g.opens
		g.mu.Unlock()
		if listener == nil {
			select {
			case <-opens:
				continue
			case <-g.ctx.Done():
				return nil, net.ErrClosed
			}
		}
		connection, err := listener.Accept()
		g.mu.Lock()
		shut := g.listener != listener
		if err == nil && !shut {
			tracked := &tracked{Conn: connection, gate: g}
			g.connections[tracked] = struct{}{}
			g.mu.Unlock()
			return tracked, nil
		}
		g.mu.Unlock()
		switch {
		case g.ctx.Err() != nil:
			return nil, net.ErrClosed
		case err == nil:
			connection.Close() // the gate was shut meanwhile
		case !shut:
			return nil, err
		}
	}
}

// Close implements [net.Listener].
func (g *gate) Close() error {
	g.end()
	g.mu.Lock()
	listener := g.listener
	g.mu.Unlock()
	var err error
	if listener != nil {
		err = listener.Close()
	}
	g.work.Wait()
	return err
}

// close shuts the gate for a time, and calls opened when that is over. It does nothing else if the gate is shut already.
func (g *gate) close(long time.Duration, opened func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener == nil || g.ctx.Err() != nil {
		opened()
		return
	}
	g.listener.Close()
	g.shuts++
	g.listener, g.opens = nil, make(chan struct{})
	for connection := range g.connections {
		go connection.Close() // closing a TLS connection may block
	}
	g.work.Go(func() {
		defer opened()
		wait := long
		for {
			select {
			case <-time.After(wait):
			case <-g.ctx.Done():
				return
			}
			listener, err := (&net.ListenConfig{}).Listen(g.ctx, "tcp", g.address)
			if err != nil {
				wait = 10 * time.Millisecond // another process has the port for the moment
				continue
			}
			g.mu.Lock()
			g.listener = listener
			close(g.opens)
			g.mu.Unlock()
			return
		}
	})
}

// count says how often the gate was shut, and whether it is.
func (g *gate) count() (shuts int, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shuts, g.listener == nil
}

// tracked is a connection that leaves its gate's connections when it is closed.
type tracked struct {
	net.Conn
	gate *gate
}

// Close implements [net.Conn].
func (t *tracked) Close() error {
	t.gate.mu.Lock()
	delete(t.gate.connections, t)
	t.gate.mu.Unlock()
	return t.Conn.Close()
}
