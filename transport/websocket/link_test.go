package websocket

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// A recorder is a receiver that keeps what it gets.
type recorder struct {
	peertest.Ignore
	frames chan string
	losses chan transport.Loss
}

func record(link transport.Link, credit int) *recorder {
	r := &recorder{frames: make(chan string, 100), losses: make(chan transport.Loss, 1)}
	link.Bind(r)
	link.Grant(transport.Main, credit)
	return r
}

func (r *recorder) Receive(in transport.Inbound) { r.frames <- string(in.Frame) }
func (r *recorder) Lost(loss transport.Loss)     { r.losses <- loss }

func (r *recorder) next(t *testing.T) string { return testenv.Receive(t, r.frames, "a frame") }
func (r *recorder) lost(t *testing.T) error  { return testenv.Receive(t, r.losses, "the loss").Reason }

// A plain peer is coder/websocket itself, without a link.
type plain struct {
	*testing.T
	*ws.Conn
}

func (p plain) send(kind ws.MessageType, text string) {
	p.Helper()
	if err := p.Write(p.T.Context(), kind, []byte(text)); err != nil {
		p.Fatal(err)
	}
}

// closed reads until the peer is told why the connection is closed.
func (p plain) closed() ws.StatusCode {
	ctx, cancel := context.WithTimeout(p.T.Context(), time.Minute)
	defer cancel()
	for {
		if _, _, err := p.Read(ctx); err != nil {
			return ws.CloseStatus(err)
		}
	}
}

// wantNormalEnd checks that the client is told of a normal end, and that Close of the link returns without an error.
func (p plain) wantNormalEnd(closed <-chan error) {
	p.Helper()
	if status := p.closed(); status != ws.StatusNormalClosure {
		p.Errorf("the client was told %d, want %d", status, ws.StatusNormalClosure)
	}
	if err := <-closed; err != nil {
		p.Error(err)
	}
}

// servedBy returns a link to a plain server, which is the other result.
func servedBy(t *testing.T, c *Client) (transport.Link, plain) {
	t.Helper()
	accepted, over := make(chan *ws.Conn, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := ws.Accept(w, r, &ws.AcceptOptions{Subprotocols: []string{subprotocol}})
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
		<-over
	}))
	c.URL = "ws" + strings.TrimPrefix(s.URL, "http")
	link, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := testenv.Receive(t, accepted, "the connection")
	t.Cleanup(func() {
		close(over)
		if err := link.Close(0); err != nil {
			t.Error(err)
		}
		conn.CloseNow()
		s.Close()
	})
	return link, plain{t, conn}
}

// Guarantees: G-0108.3
func TestTheEndIsNoticedWithoutCredit(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(plain)
		want func(error) bool
	}{
		"normal":     {func(p plain) { p.Close(ws.StatusNormalClosure, "") }, func(err error) bool { return err == transport.ErrPeerClosed }},
		"going away": {func(p plain) { p.Close(ws.StatusGoingAway, "") }, func(err error) bool { return err == transport.ErrPeerClosed }},
		"no status":  {func(p plain) { p.Close(ws.StatusNoStatusRcvd, "") }, func(err error) bool { return err == transport.ErrPeerClosed }},
		"another": {func(p plain) { p.Close(4001, "log\x1bin") }, func(err error) bool {
			var closed *CloseError
			return errors.As(err, &closed) && *closed == CloseError{4001, "log in"} && closed.Error() == "websocket: the peer closed the connection with status 4001: log in"
		}},
		"cut": {func(p plain) { p.CloseNow() }, func(err error) bool { return err != nil && !errors.Is(err, transport.ErrPeerClosed) }},
	} {
		t.Run(name, func(t *testing.T) {
			link, server := servedBy(t, &Client{})
			got := record(link, 0)
			c.end(server)
			if err := got.lost(t); !c.want(err) {
				t.Errorf("lost for %v (%T)", err, err)
			}
		})
	}
}

// Send refuses a message above the limit, and one for another stream.
//
// Guarantees: G-0008.2
func TestSendRefuses(t *testing.T) {
	link, _ := servedBy(t, &Client{MaxFrame: 8})
	var oversized *transport.OversizedError
	if err := link.Send(transport.Outbound{Frame: make([]byte, 9)}); !errors.As(err, &oversized) || oversized.Limit != 8 || oversized.Size != 9 {
		t.Errorf("got %v, want an OversizedError", err)
	}
	if err := link.Send(transport.Outbound{Stream: 7}); !errors.Is(err, transport.ErrNoRoute) {
		t.Errorf("got %v, want %v", err, transport.ErrNoRoute)
	}
}

// A message that a peer sends in many pieces, with pings between, is one frame.
//
// Guarantees: G-0108.3
func TestAMessageInPieces(t *testing.T) {
	link, server := servedBy(t, &Client{})
	got := record(link, 1)
	server.CloseRead(t.Context()) // for the pong
	w, err := server.Writer(t.Context(), ws.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("0123456789", 20_000)
	for piece := range slices.Chunk([]byte(want), 9_999) {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
		if err := server.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if frame := got.next(t); frame != want {
		t.Errorf("got %d bytes, want %d", len(frame), len(want))
	}
	if last := transport.LinkTraitsOf(link).LastRead; time.Since(last) > time.Minute {
		t.Errorf("bytes last came in at %v", last)
	}
}

// Close sends what is queued and a close frame. It takes no longer than its grace, even if the peer answers nothing, and nothing is left of the
// connection then.
//
// Guarantees: G-0108.6
func TestCloseIsBounded(t *testing.T) {
	link, server := servedBy(t, &Client{}) // which reads nothing
	record(link, 0)
	if err := link.Send(transport.Outbound{Frame: bytes.Repeat([]byte("1"), 8<<20)}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := link.Close(200 * time.Millisecond); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("Close took %v", took)
	}
	server.SetReadLimit(-1)
	if status := server.closed(); status != -1 {
		t.Errorf("the peer was told %d, and a message was under way", status)
	}
	link, server = servedBy(t, &Client{})
	record(link, 0)
	if err := link.Send(transport.Outbound{Frame: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	read := make(chan ws.StatusCode, 1)
	go func() { read <- server.closed() }()
	if err := link.Close(time.Minute); err != nil {
		t.Error(err)
	}
	if status := testenv.Receive(t, read, "the close frame"); status != ws.StatusNormalClosure {
		t.Errorf("the peer was told %d, want %d", status, ws.StatusNormalClosure)
	}
}

// A roomRecorder also counts how often there was room again.
type roomRecorder struct {
	*recorder
	room atomic.Int64
}

func (r *roomRecorder) Writable() { r.room.Add(1) }

// A sender that is refused, and tries again while the link writes, loses no message, and is told that there is room.
func TestRefusedWhileTheLinkWrites(t *testing.T) {
	virtually(t, HandlerOptions{}, func(t *testing.T, p pipes, links chan transport.Link) {
		reader, _ := p.connect(t)
		link, got := <-links, &roomRecorder{recorder: &recorder{losses: make(chan transport.Loss, 1)}}
		link.Bind(got)
		const frames = 2000
		refused := make(chan struct{})
		go func() {
			first := true
			for n := range frames {
				for link.Send(transport.Outbound{Frame: strconv.AppendInt(nil, int64(n), 10)}) == transport.ErrBusy {
					if first {
						first = false
						close(refused)
					}
					runtime.Gosched()
				}
			}
		}()
		<-refused // before anything is read
		for n := range frames {
			if _, frame, err := reader.Read(t.Context()); err != nil || string(frame) != strconv.Itoa(n) {
				t.Fatalf("message %d is %q: %v", n, frame, err)
			}
		}
		reader.CloseNow()
		<-got.losses
		if got.room.Load() == 0 {
			t.Error("it was not told that there was room")
		}
	})
}

// A message above the limit and a binary one lose the link. The error has a type, and the peer is told the status.
//
// Guarantees: G-0108.4
func TestWhatBreaksTheProtocol(t *testing.T) {
	isOversized := func(err error) bool {
		var oversized *transport.OversizedError
		return errors.As(err, &oversized) && oversized.Limit == 8 && oversized.Size > 8
	}
	for name, c := range map[string]struct {
		kind   ws.MessageType
		text   string
		status ws.StatusCode
		want   func(error) bool
	}{
		"at the limit":    {ws.MessageText, "12345678", ws.StatusNormalClosure, func(err error) bool { return err == transport.ErrClosed }},
		"above the limit": {ws.MessageText, "123456789", ws.StatusMessageTooBig, isOversized},
		"far above":       {ws.MessageText, strings.Repeat("1", 1<<20), ws.StatusMessageTooBig, isOversized},
		"binary":          {ws.MessageBinary, "1", ws.StatusUnsupportedData, func(err error) bool { return err != nil }},
	} {
		check := func(t *testing.T, peer plain, link transport.Link) {
			got, written, told := record(link, 1), make(chan error, 1), make(chan ws.StatusCode, 1)
			go func() { written <- peer.Write(t.Context(), c.kind, []byte(c.text)) }()
			go func() { told <- peer.closed() }()
			synctest.Wait()
			if c.status == ws.StatusNormalClosure && (len(got.frames) != 1 || <-got.frames != c.text) {
				t.Errorf("%q was not delivered", c.text)
			}
			if len(got.frames) > 0 {
				t.Error("it was delivered")
			}
			if err := link.Close(time.Minute); err != nil {
				t.Error(err)
			}
			if status, err := <-told, got.lost(t); status != c.status || !c.want(err) {
				t.Errorf("the peer was told %d, want %d; lost for %v", status, c.status, err)
			}
			<-written
			peer.CloseNow()
		}
		t.Run(name+" to a client", func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				p := make(pipes)
				peers := p.accept(t)
				link, err := (&Client{URL: "ws://localhost/mcp", HTTP: p.client(), MaxFrame: 8}).Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				check(t, <-peers, link)
			})
		})
		t.Run(name+" to a server", func(t *testing.T) {
			virtually(t, HandlerOptions{MaxFrame: 8}, func(t *testing.T, p pipes, links chan transport.Link) {
				peer, _ := p.connect(t)
				check(t, peer, <-links)
			})
		})
	}
}
