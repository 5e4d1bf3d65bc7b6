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

// A body is limited whether its length was announced or not.
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

// A body that stops arriving is given up, and its memory is free again.
//
// Guarantees: G-0022.13
func TestBodyThatStopsComing(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	for s.handler.bodies.small.Held() == 0 && s.ctx.Err() == nil {
		s.do("PUT", "", nil)
	}
	conn.Close()
	for s.handler.bodies.small.Held() > 0 {
		if s.do("PUT", "", nil); s.ctx.Err() != nil {
			t.Fatal("the memory of the body is not free again, want it to be")
		}
	}
}

// Bodies that are announced and never sent leave memory for others.
//
// Guarantees: G-0022.13
func TestSilentBodiesHoldLittle(t *testing.T) {
	const clients, room = 16, 16 << 20
	s := newSite(t, HandlerOptions{MaxBody: room / clients, MaxHeld: room})
	for range clients {
		conn := s.dial()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", room/clients)
	}
	for s.handler.bodies.small.Held() < clients*web.SmallBody {
		if s.do("PUT", "", nil); s.ctx.Err() != nil {
			t.Fatal("the bodies hold no memory, want some")
		}
	}
	s.initialize("2025-11-25")
}

// dial connects without an HTTP client.
func (s *site) dial() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// A request that is refused without its body gets the response before the body has
// arrived.
//
// Guarantees: G-0022.13
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	conn := s.dial()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(web.BodyPatience / 2))
	status := make([]byte, len("HTTP/1.1 403"))
	if _, err := io.ReadFull(conn, status); err != nil || string(status) != "HTTP/1.1 403" {
		t.Errorf("got %q, %v, want %q", status, err, "HTTP/1.1 403")
	}
}

// Two bodies of unknown length for which there is not enough memory do not block each other: one is read
// after the other.
//
// Guarantees: G-0022.13, G-0038.4
func TestBodiesThatWaitForEachOther(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 4 * web.PieceSize}, false, func(t *testing.T, b *bench) {
		post := func() chan int {
			text := modernBody("echo", `"pad":"`+strings.Repeat("x", 5*web.PieceSize)+`",`)
			return b.serveBody(&steadyBody{text: text, pace: time.Second, isUnannounced: true})
		}
		first := post()
		pass(time.Second / 2)
		second := post()
		if one, other := <-first, <-second; one != 200 || other != 200 {
			t.Errorf("got %d and %d, want 200 twice", one, other)
		}
		if held := b.handler.bodies.held(); held > 0 {
			t.Errorf("%d bytes are held without a body", held)
		}
	})
}

// A body that arrives with at least 64 KiB per second may take any time. A slower one,
// or one that does not arrive, has half a minute.
//
// Guarantees: G-0022.13, G-0038.4
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
				t.Errorf("a piece each %v: got %d after %v, want %d after %v", pace, status, took, want.status, want.after)
			}
		})
	}
}

// A body that stalls after its beginning is ended soon, and its memory is free again.
//
// Guarantees: G-0022.13, G-0038.4
func TestStalledBody(t *testing.T) {
	inBubble(t, HandlerOptions{MaxBody: 16 << 20}, false, func(t *testing.T, b *bench) {
		text := modernBody("echo", `"pad":"`+strings.Repeat("x", 15<<20)+`",`)
		begun := time.Now()
		status := <-b.serveBody(&steadyBody{text: text, pace: time.Millisecond, stalls: 8 << 20})
		if took := time.Since(begun); status != 408 || took > 11*time.Second {
			t.Errorf("got %d after %v", status, took)
		}
	})
}

// The ReadTimeout of the program's http.Server also applies.
//
// Guarantees: G-0022.13
func TestReadTimeoutOfTheServerHolds(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		b.server = &http.Server{ReadTimeout: 5 * time.Second}
		text := modernBody("echo", `"pad":"`+strings.Repeat("x", 20*web.PieceSize)+`",`)
		begun := time.Now()
		status := <-b.serveBody(&steadyBody{text: text, pace: time.Second})
		if took := time.Since(begun); status != 408 || took != 5*time.Second {
			t.Errorf("got %d after %v", status, took)
		}
	})
}

// A client that sends large bodies and stalls uses no memory that others need.
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
		w, done := b.serve(t.Context(), "POST", large, append(modernHeader("echo"), userHeader("good"))...)
		if <-done; w.Code != 200 || time.Since(begun) != 0 {
			t.Errorf("another client: got %d after %v", w.Code, time.Since(begun))
		}
		for _, status := range stalled {
			if got := <-status; got != 408 && got != 503 {
				t.Errorf("a body that stalls: got %d", got)
			}
		}
		if held := b.handler.bodies.held(); held > 0 {
			t.Errorf("%d bytes are held without a body, want none", held)
		}
	})
}

// serveBody serves a request with the body, and sends its status.
func (b *bench) serveBody(body *steadyBody) chan int {
	body.ResponseRecorder = httptest.NewRecorder()
	r := httptest.NewRequest("POST", "http://mcp.example/", body)
	if r.ContentLength = int64(len(body.text)); body.isUnannounced {
		r.ContentLength = -1
	}
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

// A steadyBody is a body whose pieces arrive at a steady pace, and the response to it.
type steadyBody struct {
	*httptest.ResponseRecorder
	text     string
	pace     time.Duration
	deadline time.Time
	next     time.Time // when the next piece arrives
	here     int       // bytes of the present piece that were not read yet
	stalls   int       // after how many bytes the body stalls; 0: never
	came     int

	isUnannounced bool // its length is not announced
}

func (b *steadyBody) SetReadDeadline(deadline time.Time) error {
	b.deadline = deadline
	return nil
}

func (b *steadyBody) Read(p []byte) (int, error) {
	if b.text == "" {
		return 0, io.EOF
	}
	if !b.deadline.IsZero() && b.deadline.Before(time.Now()) {
		return 0, os.ErrDeadlineExceeded // as a connection does, whatever has arrived
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

// A message that was delivered is not kept while its response is pending.
func TestDeliveredMessageIsNotKept(t *testing.T) {
	p := &body{frame: []byte(echoBody)}
	if refused := p.decode(); refused != nil {
		t.Fatal(refused.text)
	}
	if in := p.take(); string(in.Frame) != echoBody || in.Message.Method != "echo" || p.frame != nil || p.Params != nil {
		t.Errorf("delivered %+v, kept %q and %q, want string(in.Frame) == %v, in.Message.Method == %q, p.frame == nil and p.Params == nil", in, p.frame, p.Params, echoBody, "echo")
	}
}

// A request is limited to 4 MiB by default. A response may be larger.
//
// Guarantees: G-0022.13
func TestARequestIsSmallerThanAResponse(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18") // a later revision would get events after a second
	padded := func(size int) string {
		const head, tail = `{"jsonrpc":"2.0","id":5,"method":"echo","params":["`, `"]}`
		return head + strings.Repeat("x", size-len(head+tail)) + tail
	}
	if r := s.post(padded(4<<20), session); r.status != 200 {
		t.Errorf("4 MiB: got status %d, want 200", r.status)
	}
	s.post(padded(4<<20+1), session).wantError(t, 413, -32600, "", "the body is above the limit of 4194304 bytes")
	p := s.peer(t, 0)
	held := s.pending(s.ctx, `{"jsonrpc":"2.0","id":6,"method":"hold"}`, session)
	p.awaitReceived(t, 3)
	answer := `{"jsonrpc":"2.0","id":6,"result":"` + strings.Repeat("x", 15<<20) + `"}`
	p.mustSend(t, answering(p.newest(), answer))
	if r := s.receive(held); r.status != 200 || r.body != answer {
		t.Errorf("15 MiB: got status %d, %d bytes, want r.status == 200 and r.body == %v", r.status, len(r.body), answer)
	}
}

// initialize is limited in size, because a session keeps its data.
//
// Guarantees: G-0022.12
func TestInitializeIsLimited(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	if r := s.post(paddedInitialize(64 << 10)); r.status != 200 {
		t.Errorf("64 KiB: got %+v, want 200", r)
	}
	s.post(paddedInitialize(64<<10+1)).wantError(t, 413, -32600, "1", "initialize is above the limit of 65536 bytes")
	if s.links() != 1 {
		t.Errorf("%d links were accepted", s.links())
	}
}

// Large bodies that stall leave memory for small ones.
//
// Guarantees: G-0022.13
func TestSmallBodiesDoNotWaitForLargeOnes(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 2 << 20}, false, func(t *testing.T, b *bench) {
		large := modernBody("echo", `"pad":"`+strings.Repeat("x", 3<<20)+`",`)
		var stalled []chan int
		for range 5 {
			stalled = append(stalled, b.serveBody(&steadyBody{text: large, pace: 2 * time.Second}))
		}
		pass(25 * time.Second) // the bodies need more than MaxHeld
		begun := time.Now()
		w, done := b.serve(t.Context(), "POST", initializeBody("2025-11-25"))
		<-done
		if took := time.Since(begun); w.Code != 200 || took != 0 {
			t.Errorf("initialize: got %d after %v", w.Code, took)
		}
		for _, status := range stalled {
			<-status
		}
	})
}

// Requests wait for memory for their bodies until they give up.
//
// Guarantees: G-0022.13
func TestBodiesHeldAreBounded(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 10_000}, true, func(t *testing.T, b *bench) {
		padded := modernBody("echo", `"pad":"`+strings.Repeat("x", 9800)+`",`)
		first, firstDone := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
		ctx, giveUp := context.WithCancel(t.Context())
		second, secondDone := b.serve(ctx, "POST", padded, modernHeader("echo")...)
		third, thirdDone := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...)
		p := b.peer(t, 0)
		if opened := p.count(func(p *peer) int { return len(p.opened) }); opened != 2 {
			t.Fatalf("%d streams are open, want 2: the small request takes what is too little for the large one", opened)
		}
		giveUp()
		<-secondDone
		synctest.Wait()
		fourth, fourthDone := b.serve(t.Context(), "POST", padded, modernHeader("echo")...)
		<-fourthDone // gives up after a time
		p.post(func() { p.link.Grant(1, 1); p.link.Grant(2, 1) })
		<-firstDone
		<-thirdDone
		if first.Code != 200 || second.Code != 503 || third.Code != 200 || fourth.Code != 503 {
			t.Errorf("got the statuses %d %d %d %d, want first.Code == 200, second.Code == 503, third.Code == 200 and fourth.Code == 503", first.Code, second.Code, third.Code, fourth.Code)
		}
		if held := b.handler.bodies.held(); held > 0 {
			t.Errorf("%d bytes are held without a body", held)
		}
	})
}

// Memory that is granted to a request that has just given up is not lost.
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
