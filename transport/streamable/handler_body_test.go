package streamable

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A body is bounded whether or not its length was announced.
//
// Guarantees: G-0022.13
func TestBodyOfUnknownLengthIsBounded(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 1000})
	for size, status := range map[int]int{900: 400, 1000: 400, 1001: 413, 1 << 20: 413} {
		r := s.request(s.ctx, "POST", "", posting())
		r.Body, r.ContentLength = http.NoBody, -1
		r.Body = struct{ *chunked }{&chunked{strings.NewReader(strings.Repeat(" ", size))}}
		response, err := s.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		s.whole(response).wantError(t, status, map[int]int64{400: -32700, 413: -32600}[status], "")
	}
}

type chunked struct{ *strings.Reader }

func (*chunked) Close() error { return nil }

func (b *budget) amount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// A body that stops coming is given up, and what it held is free again.
//
// Guarantees: G-0022.13
func TestBodyThatStopsComing(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	for s.handler.room.small.amount() == 128<<20 && s.ctx.Err() == nil {
		s.do("PUT", "", nil)
	}
	conn.Close()
	for s.handler.room.small.amount() != 128<<20 {
		if s.do("PUT", "", nil); s.ctx.Err() != nil {
			t.Fatal("what the body held was never given back")
		}
	}
}

// Bodies that are announced and never sent leave room for others.
//
// Guarantees: G-0022.13
func TestSilentBodiesHoldLittle(t *testing.T) {
	const clients, room = 16, 16 << 20
	s := newSite(t, HandlerOptions{MaxBody: room / clients, MaxHeld: room})
	for range clients {
		conn := s.dial()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", room/clients)
	}
	for s.handler.room.small.amount() > room-clients*web.SmallBody {
		if s.do("PUT", "", nil); s.ctx.Err() != nil {
			t.Fatal("the bodies have taken no room")
		}
	}
	s.initialize("2025-11-25")
}

// dial connects without a client.
func (s *site) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// A request that is refused without its body is answered before it has come.
//
// Guarantees: G-0022.13
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	conn := s.dial()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(web.BodyPatience / 2))
	status := make([]byte, len("HTTP/1.1 403"))
	if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 403" {
		t.Errorf("%q, %v", status, err)
	}
}

// Two bodies that have come in part, and find no room for the rest, do not wait
// for each other for ever: one is refused, the other goes on.
//
// Guarantees: G-0022.13
func TestBodiesThatWaitForEachOther(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 3 * web.PieceSize}, false, func(t *testing.T, b *bench) {
		post := func() chan int {
			text := modernBody("echo", `"pad":"`+strings.Repeat("x", 3*web.PieceSize)+`",`)
			return b.serveBody(&steadyBody{text: text, pace: time.Second})
		}
		first := post()
		pass(time.Second / 2)
		second := post()
		if status := <-first; status != 503 {
			t.Errorf("the first: %d", status)
		}
		if status := <-second; status != 200 {
			t.Errorf("the second: %d", status)
		}
		if free := b.handler.room.large.amount(); free != 3*web.PieceSize {
			t.Errorf("%d bytes are free when nothing is held", free)
		}
	})
}

// A body that comes at 64 KiB each second may take as long as it needs; one
// that comes more slowly, or not at all, has half a minute.
//
// Guarantees: G-0022.13
func TestBodyThatComesSlowly(t *testing.T) {
	for pace, want := range map[time.Duration]struct {
		status int
		after  time.Duration
	}{
		time.Second:     {200, 101 * time.Second},
		2 * time.Second: {408, 59 * time.Second},
		time.Hour:       {408, 30 * time.Second},
	} {
		inBubble(t, HandlerOptions{MaxBody: 16 << 20}, false, func(t *testing.T, b *bench) {
			text := modernBody("echo", `"pad":"`+strings.Repeat("x", 100*web.PieceSize)+`",`)
			begun := time.Now()
			status := <-b.serveBody(&steadyBody{text: text, pace: pace})
			if took := time.Since(begun); status != want.status || took.Truncate(time.Second) != want.after {
				t.Errorf("a piece each %v: %d after %v, want %d after %v", pace, status, took, want.status, want.after)
			}
		})
	}
}

// A body that has come in part is cut off soon after it stalls, and gives its room
// back.
//
// Guarantees: G-0022.13
func TestStalledBody(t *testing.T) {
	inBubble(t, HandlerOptions{MaxBody: 16 << 20}, false, func(t *testing.T, b *bench) {
		text := modernBody("echo", `"pad":"`+strings.Repeat("x", 15<<20)+`",`)
		begun := time.Now()
		status := <-b.serveBody(&steadyBody{text: text, pace: time.Millisecond, stalls: 8 << 20})
		if took := time.Since(begun); status != 408 || took > 11*time.Second {
			t.Errorf("%d after %v", status, took)
		}
	})
}

// What the program has set for its http.Server holds, too.
//
// Guarantees: G-0022.13
func TestReadTimeoutOfTheServerHolds(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		b.server = &http.Server{ReadTimeout: 5 * time.Second}
		text := modernBody("echo", `"pad":"`+strings.Repeat("x", 20*web.PieceSize)+`",`)
		begun := time.Now()
		status := <-b.serveBody(&steadyBody{text: text, pace: time.Second})
		if took := time.Since(begun); status != 408 || took != 5*time.Second {
			t.Errorf("%d after %v", status, took)
		}
	})
}

// One client that sends large bodies, and stalls, takes no room from others.
//
// Guarantees: G-0038.4
func TestBodiesOfOneClientLeaveRoomForOthers(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 16 << 20, Identify: byUser}, false, func(t *testing.T, b *bench) {
		large := modernBody("echo", `"pad":"`+strings.Repeat("x", 3<<20)+`",`)
		var stalled []chan int
		for range 18 {
			stalled = append(stalled, b.serveBody(&steadyBody{text: large, pace: time.Millisecond, stalls: 2 << 20}))
		}
		pass(time.Second)
		begun := time.Now()
		w, done := b.serve(t.Context(), "POST", large, append(modernHeader("echo"), as("good"))...)
		if <-done; w.Code != 200 || time.Since(begun) != 0 {
			t.Errorf("another client is answered %d after %v", w.Code, time.Since(begun))
		}
		for _, status := range stalled {
			if got := <-status; got != 408 && got != 503 {
				t.Errorf("a body that stalls is answered %d", got)
			}
		}
		if n := len(b.handler.room.of); n != 0 {
			t.Errorf("%d clients hold something when there is no body", n)
		}
	})
}

// serveBody has a request with that body answered, and tells its status.
func (b *bench) serveBody(body *steadyBody) chan int {
	body.ResponseRecorder = httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://mcp.example/", body)
	r.ContentLength = int64(len(body.text))
	for _, line := range append(posting(), modernHeader("echo")...) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	if b.server != nil {
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, b.server))
	}
	status := make(chan int, 1)
	go func() {
		serveHTTP(b.handler, body, r)
		status <- body.Code
	}()
	synctest.Wait()
	return status
}

// A steadyBody is a body of which a piece comes at each pace, and the response
// to it.
type steadyBody struct {
	*httptest.ResponseRecorder
	text     string
	pace     time.Duration
	deadline time.Time
	next     time.Time // when the piece comes that is not here yet
	here     int       // bytes of that piece that were not read yet
	stalls   int       // bytes behind which nothing comes any more; 0: it does not stall
	came     int
}

func (b *steadyBody) SetReadDeadline(deadline time.Time) error {
	b.deadline = deadline
	return nil
}

func (b *steadyBody) Read(p []byte) (int, error) {
	if b.text == "" {
		return 0, io.EOF
	}
	if b.here == 0 {
		if b.next.IsZero() {
			b.next = time.Now()
		}
		if b.next = b.next.Add(b.pace); b.stalls > 0 && b.came >= b.stalls {
			b.next = b.next.Add(time.Hour)
		}
		if b.deadline.Before(b.next) {
			pass(time.Until(b.deadline))
			return 0, os.ErrDeadlineExceeded
		}
		pass(time.Until(b.next))
		b.here = min(web.PieceSize, len(b.text))
	}
	n := copy(p, b.text[:b.here])
	b.text, b.here, b.came = b.text[n:], b.here-n, b.came+n
	return n, nil
}

// What was handed over is not held for as long as its answer takes.
func TestDeliveredMessageIsNotKept(t *testing.T) {
	p := &body{frame: []byte(echoBody), small: holding{from: new(budget), own: new(budget)}, large: holding{from: new(budget), own: new(budget)}}
	if refused := p.decode(); refused != nil {
		t.Fatal(refused.text)
	}
	if in := p.take(); string(in.Frame) != echoBody || in.Message.Method != "echo" || p.frame != nil || p.Params != nil {
		t.Errorf("took %+v, kept %q and %q", in, p.frame, p.Params)
	}
}

// A request may be 4 MiB by default, whatever its server may answer.
//
// Guarantees: G-0022.13
func TestARequestIsSmallerThanAResponse(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18") // a later one gets a stream of events after a second
	padded := func(size int) string {
		const head, tail = `{"jsonrpc":"2.0","id":5,"method":"echo","params":["`, `"]}`
		return head + strings.Repeat("x", size-len(head+tail)) + tail
	}
	if r := s.post(padded(4<<20), session); r.status != 200 {
		t.Errorf("4 MiB: %d", r.status)
	}
	s.post(padded(4<<20+1), session).wantError(t, 413, -32600, "")
	p := s.peer(t, 0)
	held := s.pending(s.ctx, `{"jsonrpc":"2.0","id":6,"method":"hold"}`, session)
	p.awaitReceived(t, 3)
	answer := `{"jsonrpc":"2.0","id":6,"result":"` + strings.Repeat("x", 15<<20) + `"}`
	p.mustSend(t, answering(p.newest(), answer))
	if r := s.receive(held); r.status != 200 || r.body != answer {
		t.Errorf("15 MiB: %d, %d bytes", r.status, len(r.body))
	}
}

// What a session keeps of its client is bounded by the size of its initialize.
//
// Guarantees: G-0022.12
func TestInitializeIsSmall(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	if r := s.post(paddedInitialize(64 << 10)); r.status != 200 {
		t.Errorf("64 KiB: %+v", r)
	}
	s.post(paddedInitialize(64<<10+1)).wantError(t, 413, -32600, "1")
	if s.links() != 1 {
		t.Errorf("%d links were accepted", s.links())
	}
}

// Large bodies that stall leave room for small ones.
//
// Guarantees: G-0022.13
func TestSmallBodiesDoNotWaitForLargeOnes(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 2 << 20}, false, func(t *testing.T, b *bench) {
		large := modernBody("echo", `"pad":"`+strings.Repeat("x", 3<<20)+`",`)
		var stalled []chan int
		for range 5 {
			stalled = append(stalled, b.serveBody(&steadyBody{text: large, pace: 2 * time.Second}))
		}
		pass(25 * time.Second) // more than MaxHeld was asked for
		begun := time.Now()
		w, done := b.serve(t.Context(), "POST", initializeBody("2025-11-25"))
		<-done
		if took := time.Since(begun); w.Code != 200 || took != 0 {
			t.Errorf("initialize is answered %d after %v", w.Code, took)
		}
		for _, status := range stalled {
			<-status
		}
	})
}

// POSTs wait for room for their bodies, in order, until they give up.
//
// Guarantees: G-0022.13
func TestBodiesHeldAreBounded(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 400}, true, func(t *testing.T, b *bench) {
		padded := modernBody("echo", `"pad":"`+strings.Repeat("x", 200)+`",`)
		first, firstDone := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
		ctx, giveUp := context.WithCancel(t.Context())
		second, secondDone := b.serve(ctx, "POST", padded, modernHeader("echo")...)
		third, thirdDone := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
		p := b.peer(t, 0)
		if opened := p.count(func(p *peer) int { return len(p.opened) }); opened != 1 {
			t.Fatalf("%d streams are open", opened)
		}
		giveUp()
		<-secondDone
		synctest.Wait()
		fourth, fourthDone := b.serve(t.Context(), "POST", padded, modernHeader("echo")...)
		<-fourthDone // after a time
		p.post(func() { p.link.Grant(1, 1); p.link.Grant(2, 1) })
		<-firstDone
		<-thirdDone
		if first.Code != 200 || second.Code != 503 || third.Code != 200 || fourth.Code != 503 {
			t.Errorf("statuses %d %d %d %d", first.Code, second.Code, third.Code, fourth.Code)
		}
		if free := b.handler.room.small.amount(); free != 400 {
			t.Errorf("%d bytes are free when nothing is held", free)
		}
	})
}

// What is granted to one who has just given up is not lost.
func TestBudgetKeepsWhatIsGivenUp(t *testing.T) {
	given, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		var b budget
		c := b.claim(3)
		b.give(3)
		want := 0
		if !b.wait(given, nil, c) {
			want = 3
		}
		if b.amount() != want {
			t.Fatalf("%d are free, want %d", b.amount(), want)
		}
	}
}
