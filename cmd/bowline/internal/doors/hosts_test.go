//go:build unix

package doors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// TestHostsAreToldApart checks that all calls of a host are of one identity, and those of another host of another, in each era.
//
// Guarantees: G-0092.2
func TestHostsAreToldApart(t *testing.T) {
	dir := atHome(t)
	hosts, err := ListenForHosts(dir+"/a.json", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, server.RequestFrom(ctx).Origin.Identity)
		return len(seen), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	hosts.Serve(ctx, func(link transport.Link) { _ = s.ServeLink(context.WithoutCancel(ctx), link) }, 0, nil)
	for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
		session, err := client.New(protocol.Implementation{Name: "h", Version: "1"}, client.Options{ProtocolVersion: version}).Connect(t.Context(), socketOn(dir+"/s"+hostsEnd))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := client.Call[int](t.Context(), session, "who", struct{}{}); err != nil {
				t.Error(err)
			}
		}
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	cancel()
	_ = s.Close(context.Background())
	hosts.Close()
	if len(seen) != 4 || seen[0] != seen[1] || seen[2] != seen[3] || seen[0] == seen[2] || slices.Contains(seen, "") {
		t.Errorf("the callers are %q", seen)
	}
}

// TestTooManyHosts checks that a host for which there is no place is refused at once, and that the next one is served when another has left.
//
// Guarantees: G-0092.5
func TestTooManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		h := &Hosts{listener: l, places: make(chan struct{}, 1)}
		served, leave := 0, make(chan struct{})
		h.Serve(ctx, func(link transport.Link) {
			served++
			<-leave
			_ = link.Close(0)
		}, 0, nil)
		come := func() net.Conn {
			ours, theirs := net.Pipe()
			l.conns <- theirs
			synctest.Wait()
			return ours
		}
		first, second := come(), come()
		if _, err := second.Read(make([]byte, 1)); err != io.EOF || served != 1 {
			t.Errorf("a second host: %v; %d are served", err, served)
		}
		leave <- struct{}{}
		synctest.Wait()
		third := come()
		if served != 2 {
			t.Error("there is no place after a host has left")
		}
		leave <- struct{}{}
		cancel()
		h.Close()
		_ = errors.Join(first.Close(), second.Close(), third.Close())
	})
}

// TestAGatewayLingers checks that a gateway is idle once its last host has left for as long as it lingers, and not while one is connected.
//
// Guarantees: G-0092.4
func TestAGatewayLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		h := &Hosts{listener: l, places: make(chan struct{}, mostHosts)}
		idle, leave, began := make(chan time.Duration, 1), make(chan struct{}), time.Now()
		h.Serve(ctx, func(link transport.Link) {
			<-leave
			_ = link.Close(0)
		}, time.Minute, func() { idle <- time.Since(began) })
		ours, theirs := net.Pipe()
		l.conns <- theirs
		synctest.Wait()
		<-time.NewTimer(time.Hour).C
		close(leave)
		if at := <-idle; at != time.Hour+time.Minute {
			t.Errorf("it was idle after %v", at)
		}
		cancel()
		h.Close()
		ours.Close()
	})
}

// pipes is a listener of pipes.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return nil }

func socketOn(path string) transport.Transport {
	return &stdio.Streams{Dial: func(ctx context.Context) (io.ReadCloser, io.WriteCloser, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, nil, fmt.Errorf("dial: %w", err)
		}
		return c, c, nil
	}}
}
