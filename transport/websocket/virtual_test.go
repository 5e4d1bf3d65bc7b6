package websocket

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// A pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial returns the client's end of a connection. A pipe has no buffer: what nobody reads is not written.
func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// virtually runs a test in virtual time, with a handler behind a real HTTP server whose connections are pipes.
func virtually(t *testing.T, test func(t *testing.T, p pipes, links chan transport.Link)) {
	t.Helper()
	testenv.Bubble(t, func(t *testing.T) {
		p, links := make(pipes), make(chan transport.Link, 1)
		h := NewHandler(acceptFunc(func(link transport.Link) { links <- newLater(link) }), HandlerOptions{})
		server := &http.Server{Handler: h}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		defer func() {
			if err := h.Close(0); err != nil {
				t.Error(err)
			}
			server.Close()
			<-served
		}()
		test(t, p, links)
	})
}

// connect returns a plain client of the handler, and the connection below it.
func (p pipes) connect(t *testing.T) (plain, net.Conn) {
	t.Helper()
	var below net.Conn
	pool := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := p.dial(ctx, network, address)
		below = c
		return c, err
	}}
	conn, _, err := ws.Dial(t.Context(), "ws://localhost/mcp", &ws.DialOptions{HTTPClient: &http.Client{Transport: pool}, Subprotocols: []string{subprotocol}})
	if err != nil {
		t.Fatal(err)
	}
	return plain{t, conn}, below
}

// Nothing of a message but its beginning is read before there is credit for it.
//
// Guarantees: G-0108.3
func TestAMessageWaitsForCredit(t *testing.T) {
	virtually(t, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		got := record(<-links, 0)
		large := strings.Repeat("1", 64<<10)
		written := make(chan error, 1)
		go func() { written <- client.Write(t.Context(), ws.MessageText, []byte(large)) }()
		<-time.NewTimer(time.Hour).C
		if len(written) > 0 || len(got.frames) > 0 || len(got.losses) > 0 {
			t.Fatal("the message was read or delivered, or the link lost, without credit")
		}
		client.CloseNow()
		<-written
	})
}

// A client that does not go on with a message, or does not read what it is sent, loses its connection.
//
// Guarantees: G-0108.5
func TestSlowClients(t *testing.T) {
	virtually(t, func(t *testing.T, p pipes, links chan transport.Link) {
		client, below := p.connect(t)
		link := <-links
		got := record(link, 1)
		begun := time.Now()
		if _, err := below.Write([]byte{0x81, 0x80 | 10, 0, 0, 0, 0, '1'}); err != nil { // the first byte of ten
			t.Fatal(err)
		}
		if err := got.lost(t); !strings.Contains(err.Error(), "did not arrive in time") || time.Since(begun) > 32*time.Second {
			t.Errorf("lost for %v after %v", err, time.Since(begun))
		}
		client.CloseNow()

		client, _ = p.connect(t)
		link = <-links
		got, begun = record(link, 1), time.Now()
		if err := link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		if err := got.lost(t); err.Error() != "websocket: the client does not read" || time.Since(begun) != 30*time.Second {
			t.Errorf("lost for %v after %v", err, time.Since(begun))
		}
		client.CloseNow()
	})
}

// Close takes 70 % of its grace at most, and five seconds for a peer that takes the close frame and answers nothing. What was not written is reported.
//
// Guarantees: G-0108.6
func TestCloseTakesItsGrace(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{0: 0, time.Second: 700 * time.Millisecond, time.Minute: 5 * time.Second} {
		virtually(t, func(t *testing.T, p pipes, links chan transport.Link) {
			client, below := p.connect(t)
			link := <-links
			got := record(link, 1)
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				_, _ = io.Copy(io.Discard, below) // it takes everything, and answers nothing
			}()
			begun := time.Now()
			if err := link.Close(grace); err != nil || time.Since(begun) != want || got.lost(t) != transport.ErrClosed {
				t.Errorf("Close with a grace of %v: %v after %v, want %v", grace, err, time.Since(begun), want)
			}
			client.CloseNow()
			<-drained
		})
	}
	virtually(t, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		link := <-links
		got := record(link, 1)
		for tag := range 3 {
			if err := link.Send(transport.Outbound{Tag: transport.Tag(tag + 1), Frame: []byte("1")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := link.Close(time.Second); err != nil {
			t.Error(err)
		}
		if loss := <-got.losses; len(loss.Unsent) != 3 {
			t.Errorf("%v are unsent, and none was read", loss.Unsent)
		}
		client.CloseNow()
	})
}
