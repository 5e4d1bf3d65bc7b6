package websocket

import (
	"bytes"
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
	"github.com/bowline-mcp/bowline/transport/internal/web"
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

// serve serves a handler behind a real HTTP server over pipes, until the test is over.
func (p pipes) serve(t *testing.T, h http.Handler) *http.Server {
	server, served := &http.Server{Handler: h}, make(chan error, 1)
	go func() { served <- server.Serve(p) }()
	t.Cleanup(func() {
		server.Close()
		<-served
	})
	return server
}

// client returns a client of what is served over pipes.
func (p pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.dial}}
}

// accept serves connections without links, and returns them.
func (p pipes) accept(t *testing.T) <-chan plain {
	peers := make(chan plain, 1)
	p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, &ws.AcceptOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			t.Error(err)
			return
		}
		conn.SetReadLimit(-1)
		peers <- plain{t, conn}
	}))
	return peers
}

// virtually runs a test in virtual time, with a handler behind a real HTTP server whose connections are pipes.
func virtually(t *testing.T, o HandlerOptions, test func(t *testing.T, p pipes, links chan transport.Link)) {
	t.Helper()
	testenv.Bubble(t, func(t *testing.T) {
		p, links := make(pipes), make(chan transport.Link, 1)
		h := NewHandler(acceptFunc(func(link transport.Link) { links <- newLater(link) }), o)
		p.serve(t, h)
		defer func() {
			if err := h.Close(0); err != nil {
				t.Error(err)
			}
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
	conn.SetReadLimit(-1)
	return plain{t, conn}, below
}

// Nothing of a message but its beginning is read before there is credit for it.
//
// Guarantees: G-0108.3
func TestAMessageWaitsForCredit(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
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

// One message is delivered for each credit. While no message waits, pings are answered without credit.
//
// Guarantees: G-0108.3
func TestAMessageIsDeliveredForCredit(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		defer client.CloseNow()
		link := <-links
		got := record(link, 0)
		client.CloseRead(t.Context()) // for the pong
		if err := client.Ping(t.Context()); err != nil {
			t.Fatalf("a ping to a link without credit: %v", err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			client.send(ws.MessageText, "1")
			client.send(ws.MessageText, "2")
		}()
		for _, want := range []string{"", "1", "2"} {
			synctest.Wait()
			if want == "" && len(got.frames) > 0 || want != "" && (len(got.frames) != 1 || <-got.frames != want) {
				t.Fatalf("want %q alone for one credit", want)
			}
			link.Grant(transport.Main, 1)
		}
		<-sent
		<-time.NewTimer(time.Hour).C // a client may say nothing for as long as it likes
		if client.send(ws.MessageText, "3"); got.next(t) != "3" {
			t.Error("want the message that comes an hour later")
		}
	})
}

// A client that does not go on with a message, or does not read what it is sent, loses its connection.
//
// Guarantees: G-0108.5
func TestSlowClients(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
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
		loss := testenv.Receive(t, got.losses, "the loss")
		if loss.Reason.Error() != "websocket: the client does not read" || time.Since(begun) != 30*time.Second || len(loss.Unsent) != 1 {
			t.Errorf("lost for %+v after %v, and nothing was read", loss, time.Since(begun))
		}
		client.CloseNow()

		client, below = p.connect(t)
		link = <-links
		got = record(link, 1)
		if err := link.Send(transport.Outbound{Tag: 1, Frame: make([]byte, 4<<20)}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, below, 3<<20); err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		loss = testenv.Receive(t, got.losses, "the loss")
		if loss.Reason.Error() != "websocket: the client does not read" || time.Since(begun) != 30*time.Second || len(loss.Unsent) != 0 {
			t.Errorf("lost for %+v, %v after the client has stopped within a message", loss, time.Since(begun))
		}
		client.CloseNow()
	})
}

// While a link writes a long message to a client that reads it steadily, however slowly, pings are answered.
//
// Guarantees: G-0108.3, G-0108.5
func TestAPingWithinALongMessage(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		client, _ := p.connect(t)
		defer client.CloseNow()
		link := <-links
		got := record(link, 1)
		const size = 4 << 20
		if err := link.Send(transport.Outbound{Frame: bytes.Repeat([]byte("1"), size)}); err != nil {
			t.Fatal(err)
		}
		ponged := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ponged <- client.Ping(ctx)
		}()
		_, message, err := client.Reader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begun, read := time.Now(), int64(0)
		for err == nil {
			var n int64
			n, err = io.CopyN(io.Discard, message, 16<<10)
			read += n
			<-time.NewTimer(time.Second).C
		}
		if err != io.EOF || read != size || time.Since(begun) < 4*time.Minute || len(got.losses) > 0 {
			t.Errorf("%d bytes were read in %v: %v", read, time.Since(begun), err)
		}
		if err := <-ponged; err != nil {
			t.Errorf("the ping: %v", err)
		}
	})
}

// Close takes 70 % of its grace at most, and five seconds for a peer that takes the close frame and answers nothing. What was not written is reported.
//
// Guarantees: G-0108.6
func TestCloseTakesItsGrace(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{0: 0, time.Second: 700 * time.Millisecond, time.Minute: 5 * time.Second} {
		virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
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
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
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

// Close sends what is queued, also if a message of the client waits for credit or a place meanwhile, or breaks a limit.
//
// Guarantees: G-0108.6
func TestCloseSendsWhatIsQueued(t *testing.T) {
	for name, c := range map[string]struct {
		kind            ws.MessageType
		size            int
		credit          int
		isFull, isLater bool // all places are taken; the message comes after Close was called
	}{
		"no credit":        {kind: ws.MessageText, size: 1},
		"no credit, later": {kind: ws.MessageText, size: large, isLater: true},
		"no place":         {kind: ws.MessageText, size: large, credit: 1, isFull: true},
		"no place, later":  {kind: ws.MessageText, size: large, credit: 1, isFull: true, isLater: true},
		"binary":           {kind: ws.MessageBinary, size: 1, credit: 1, isLater: true},
		"above the limit":  {kind: ws.MessageText, size: 4*large + 1, credit: 1, isLater: true},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{MaxFrame: 4 * large}, func(t *testing.T, p pipes, links chan transport.Link) {
				if c.isFull {
					p.fill(t, links)
				}
				client, _ := p.connect(t)
				link := <-links
				got := record(link, c.credit)
				for range 3 {
					if err := link.Send(transport.Outbound{Tag: 1, Frame: []byte("1")}); err != nil {
						t.Fatal(err)
					}
				}
				sent, closed := make(chan error, 1), make(chan error, 1)
				send := func() { sent <- client.Write(t.Context(), c.kind, make([]byte, c.size)) }
				if !c.isLater {
					go send()
				}
				synctest.Wait()
				go func() { closed <- link.Close(time.Minute) }()
				synctest.Wait()
				if c.isLater {
					go send()
				}
				synctest.Wait()
				for range 3 {
					if _, text, err := client.Read(t.Context()); err != nil || string(text) != "1" {
						t.Errorf("the client has got %q, %v", text, err)
					}
				}
				client.wantNormalEnd(closed)
				if loss := <-got.losses; loss.Reason != transport.ErrClosed || len(loss.Unsent) > 0 {
					t.Errorf("got %+v", loss)
				}
				<-sent
			})
		})
	}
}

// Close sends what is queued also if the client does not go on with a message for longer than it would have to otherwise.
//
// Guarantees: G-0108.6
func TestCloseWithinAMessageThatStalls(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		client, below := p.connect(t)
		link := <-links
		record(link, 1)
		const begun, size = 5000, 60_000
		frame := append([]byte{0x81, 0x80 | 126, size >> 8, size & 0xff, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, size)...) // text, and a mask of zeros
		if _, err := below.Write(frame[:begun]); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(web.BodyPatience - 5*time.Second).C
		if err := link.Send(transport.Outbound{Tag: 1, Frame: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- link.Close(time.Minute) }()
		<-time.NewTimer(10 * time.Second).C
		go below.Write(append(frame[begun:], frame...))
		synctest.Wait()
		if _, text, err := client.Read(t.Context()); err != nil || string(text) != "1" {
			t.Errorf("the client has got %q, %v", text, err)
		}
		client.wantNormalEnd(closed)
	})
}
