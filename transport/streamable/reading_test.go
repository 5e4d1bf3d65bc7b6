package streamable

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A dripBody is a body whose parts arrive at set times, and the response to it.
type dripBody struct {
	*httptest.ResponseRecorder
	parts    []dripPart
	deadline time.Time
}

type dripPart struct {
	text  string
	after time.Duration // time since the part before
}

func (b *dripBody) SetReadDeadline(deadline time.Time) error {
	b.deadline = deadline
	return nil
}

func (b *dripBody) Read(p []byte) (int, error) {
	if len(b.parts) == 0 {
		return 0, io.EOF
	}
	part := &b.parts[0]
	if wait := time.Until(b.deadline); part.after > wait {
		pass(wait)
		part.after -= wait
		return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded} // as net/http does
	}
	pass(part.after)
	part.after = 0
	n := copy(p, part.text)
	if part.text = part.text[n:]; part.text == "" {
		b.parts = b.parts[1:]
	}
	return n, nil
}

func drip(parts ...dripPart) *dripBody { return &dripBody{httptest.NewRecorder(), parts, time.Time{}} }

// A readingBudget is a bodyBudget that gets bodies of one client.
type readingBudget struct {
	*bodyBudget
	t      *testing.T
	server *http.Server
	length int64 // the announced length; -1: none
	proto  int
}

// inBudget runs a test with a budget of a quarter of 1 MiB for small and for large bodies.
func inBudget(t *testing.T, test func(m *readingBudget)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&readingBudget{bodyBudget: newBodyBudget(readingLimit, readingLimit, make(chan struct{})), t: t, length: -1, proto: 1})
	})
}

const readingLimit = 256 << 10

func (m *readingBudget) request(from *dripBody) *http.Request {
	r := httptest.NewRequest("POST", "http://mcp.example/", from)
	r.ContentLength, r.ProtoMajor = m.length, m.proto
	if m.server != nil {
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, m.server))
	}
	return r
}

// readingTexts are the beginnings of what a client hears whose body was not read.
var readingTexts = map[int]string{
	400: "", 408: "the body did not arrive in time", 413: "the body is above the limit of ", 503: "overloaded: too much is waiting to be served",
}

// read reads a body, and returns the status (200 if it was read) and the time it took.
func (m *readingBudget) read(from *dripBody, checks time.Duration) (b *body, status int, took time.Duration) {
	begun := time.Now()
	r := m.request(from)
	expected := expectBody(from, r)
	pass(checks)
	b, refused := m.bodyBudget.read(from, r, expected, &transport.Origin{RemoteAddr: "192.0.2.1:1"})
	if refused != nil {
		if text, known := readingTexts[refused.status]; !known || !strings.HasPrefix(refused.text, text) {
			m.t.Errorf("status %d says %q, want %q", refused.status, refused.text, text)
		}
		return nil, refused.status, time.Since(begun)
	}
	return b, 200, time.Since(begun)
}

func (m *readingBudget) want(from *dripBody, status int, after time.Duration) *body {
	m.t.Helper()
	b, got, took := m.read(from, 0)
	if got != status || took != after {
		m.t.Errorf("got %d after %v, want %d after %v", got, took, status, after)
	}
	return b
}

// wantHeld checks what is held.
func (m *readingBudget) wantHeld(small, large int) {
	m.t.Helper()
	if s, l := m.small.Held(), m.large.Held(); s != small || l != large {
		m.t.Errorf("got %d and %d bytes held, want %d and %d", s, l, small, large)
	}
}

// fill makes other clients hold so much of a pool, and returns a function that gives one client's part back.
func fill(t *testing.T, pool *share.Pool, n int) (give func()) {
	t.Helper()
	var held []int
	for i := 0; n > 0; i++ {
		held = append(held, min(n, web.SmallBody))
		if n -= held[i]; !pool.Take(share.Client{Identity: fmt.Sprint(i)}, held[i]) {
			t.Fatal("the pool is not free")
		}
	}
	return func() {
		last := len(held) - 1
		pool.Give(share.Client{Identity: fmt.Sprint(last)}, held[last])
		held = held[:last]
	}
}

// padded returns a notification of the given size.
func padded(size int) string {
	const head, tail = `{"jsonrpc":"2.0","method":"a","params":["`, `"]}`
	return head + strings.Repeat("x", size-len(head+tail)) + tail
}

const never = time.Hour

// A body holds memory for the bytes that have arrived, until it is delivered.
func TestReadingHoldsWhatHasCome(t *testing.T) {
	inBudget(t, func(m *readingBudget) {
		first := m.want(drip(dripPart{padded(100), 0}), 200, 0)
		m.wantHeld(100, 0)
		if got := cap(first.frame); got > 2*100 {
			t.Errorf("a body of 100 bytes has an array of %d", got)
		}
		second := m.want(drip(dripPart{padded(web.SmallBody + 200), 0}), 200, 0)
		m.wantHeld(100+web.SmallBody, 200)
		if in := second.take(); len(in.Frame) != web.SmallBody+200 || in.Message.Method != "a" {
			t.Errorf("delivered %d bytes of %s, want len(in.Frame) == %v and in.Message.Method == %q", len(in.Frame), in.Message.Method, web.SmallBody+200, "a")
		}
		m.wantHeld(100, 0)
		first.keep(40)
		m.wantHeld(40, 0)
		first.release()
		first.release() // nothing is held any more
		m.wantHeld(0, 0)
		m.want(drip(dripPart{"{", 0}), 400, 0)
		m.wantHeld(0, 0)
	})
}

// A body of which nothing has arrived holds nothing, one that has begun 64 KiB, and one of which as much has
// arrived holds what was announced.
//
// Guarantees: G-0083.5
func TestReadingHoldsNothingBeforeTheFirstByte(t *testing.T) {
	for arrived, held := range map[int]int{0: 0, 1: web.SmallBody, web.SmallBody - 1: web.SmallBody, web.SmallBody: readingLimit + 1} {
		inBudget(t, func(m *readingBudget) {
			m.length = readingLimit
			from, done := drip(dripPart{padded(readingLimit)[:arrived], 0}, dripPart{"x", never}), make(chan struct{})
			if arrived == 0 {
				from.parts = from.parts[1:]
			}
			go func() {
				m.read(from, 0)
				close(done)
			}()
			synctest.Wait()
			if got := m.held(); got != held {
				t.Errorf("a body of which %d bytes have arrived holds %d, want %d", arrived, got, held)
			}
			<-done
			m.wantHeld(0, 0)
		})
	}
}

// A body may be as long as announced, and as the handler allows.
func TestReadingIsBounded(t *testing.T) {
	inBudget(t, func(m *readingBudget) {
		for size, status := range map[int]int{readingLimit: 200, readingLimit + 1: 413, 4 * readingLimit: 413} {
			b := m.want(drip(dripPart{padded(size), 0}), status, 0)
			if b != nil {
				b.release()
			}
		}
		m.length = 100
		m.want(drip(dripPart{padded(100), 0}), 200, 0).release()
		m.want(drip(dripPart{padded(101), 0}), 413, 0)
		for _, m.length = range []int64{readingLimit + 1, math.MaxInt64} {
			m.want(drip(dripPart{"{", never}), 413, 0)
		}
		m.length = 0
		m.want(drip(), 400, 0)
		m.wantHeld(0, 0)
	})
}

// A small body needs no memory for large bodies, however it arrives, and an empty body
// needs none for small bodies either.
func TestReadingOfASmallBodyWaitsForNoLargeOne(t *testing.T) {
	inBudget(t, func(m *readingBudget) {
		fill(t, m.large, readingLimit)
		m.large.Claim(share.Client{Identity: "waits"}, 1)
		var parts []dripPart
		for _, c := range padded(60) {
			parts = append(parts, dripPart{string(c), 0})
		}
		m.want(drip(parts...), 200, 0).release()
		fill(t, m.small, readingLimit)
		m.length = 0
		m.want(drip(), 400, 0)
	})
}

// The first byte must arrive within half a minute, or earlier if the server says so.
// The checks before may take any time, but at most a second of the client's time.
func TestReadingWaitsForTheFirstByte(t *testing.T) {
	for given, wait := range map[time.Duration]time.Duration{0: web.BodyPatience, 5 * time.Second: 5 * time.Second, time.Hour: web.BodyPatience} {
		inBudget(t, func(m *readingBudget) {
			m.server = &http.Server{ReadTimeout: given}
			from := drip(dripPart{"{", never})
			expectBody(from, m.request(from))
			if got := time.Until(from.deadline); got != wait {
				t.Errorf("with %v: %v are left", given, got)
			}
			m.want(drip(dripPart{"{", never}), 408, wait)
		})
	}
	inBudget(t, func(m *readingBudget) {
		for checks, wait := range map[time.Duration]time.Duration{
			time.Second - 1: web.BodyPatience, time.Second: web.BodyPatience + time.Second, time.Minute: web.BodyPatience + time.Minute,
		} {
			if _, status, took := m.read(drip(dripPart{"{", never}), checks); status != 408 || took != wait {
				t.Errorf("checks of %v: got %d after %v, want %v", checks, status, took, wait)
			}
		}
	})
}

// Until a body has arrived, its connection will be closed after the response.
// Afterwards no deadline is left.
func TestReadingRestoresTheConnection(t *testing.T) {
	inBudget(t, func(m *readingBudget) {
		for _, test := range []struct {
			length    int64
			proto     int
			closes    string
			deadlines bool
		}{{60, 1, "close", true}, {60, 2, "", true}, {-1, 1, "close", true}, {0, 1, "", false}} {
			m.length, m.proto = test.length, test.proto
			from := drip(dripPart{padded(60), 0})
			expectBody(from, m.request(from))
			if got := from.Header().Get("Connection"); got != test.closes || from.deadline.IsZero() == test.deadlines {
				t.Errorf("%+v: got %q, %v", test, got, from.deadline)
			}
		}
		m.length, m.proto = 60, 1
		from := drip(dripPart{padded(60), 0})
		m.want(from, 200, 0).release()
		if got := from.Header().Get("Connection"); got != "" || !from.deadline.IsZero() {
			t.Errorf("after the body: got %q, %v", got, from.deadline)
		}
	})
}

// Each 64 KiB extend the deadline by a second, and the next piece has ten seconds. A
// smaller piece extends nothing.
func TestReadingGivesTimeForPieces(t *testing.T) {
	whole := padded(3 * web.PieceSize)
	for name, test := range map[string]struct {
		parts  []dripPart
		status int
		after  time.Duration
		server time.Duration
	}{
		"as early as possible":          {[]dripPart{{whole[:web.PieceSize], web.BodyPatience}, {whole[web.PieceSize:], time.Second}}, 200, 31 * time.Second, 0},
		"too late":                      {[]dripPart{{whole[:web.PieceSize], web.BodyPatience}, {whole[web.PieceSize:], time.Second + 1}}, 408, 31 * time.Second, 0},
		"stalled":                       {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 10*time.Second + 1}}, 408, 11 * time.Second, 0},
		"just not stalled":              {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 10 * time.Second}}, 200, 11 * time.Second, 0},
		"byte by byte":                  {[]dripPart{{whole[:web.PieceSize], 0}, {"x", 9 * time.Second}, {"x", 9 * time.Second}}, 408, 10 * time.Second, 0},
		"longer than the server allows": {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 5 * time.Second}}, 408, 5 * time.Second, 5 * time.Second},
		"a server that allows much":     {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], never}}, 408, 11 * time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBudget(t, func(m *readingBudget) {
				m.server = &http.Server{ReadTimeout: test.server}
				if b := m.want(drip(test.parts...), test.status, test.after); b != nil {
					b.release()
				}
			})
		})
	}
}

// A body waits half a minute for memory, however often. That does not count for its own
// deadline.
func TestReadingWaitsForRoom(t *testing.T) {
	inBudget(t, func(m *readingBudget) {
		fill(t, m.small, readingLimit)
		from := drip(dripPart{padded(60), 0})
		done := make(chan int, 1)
		begun := time.Now()
		go func() {
			_, status, _ := m.read(from, 0)
			done <- status
		}()
		synctest.Wait()
		if got := from.deadline.Sub(begun); got != roomPatience+web.BodyPatience {
			t.Errorf("while it waits, %v are left", got)
		}
		if status := <-done; status != 503 || time.Since(begun) != roomPatience {
			t.Errorf("got %d after %v", status, time.Since(begun))
		}
		m.wantHeld(readingLimit, 0)
	})
	inBudget(t, func(m *readingBudget) { // the client has its share
		for range 2 {
			m.small.Take(share.Client{Network: "192.0.2.1"}, web.SmallBody)
		}
		m.want(drip(dripPart{padded(60), 0}), 503, roomPatience)
		m.wantHeld(2*web.SmallBody, 0)
	})
	inBudget(t, func(m *readingBudget) { // waits three times, the last time without success
		small, large := fill(t, m.small, readingLimit), fill(t, m.large, readingLimit)
		time.AfterFunc(10*time.Second, small)
		time.AfterFunc(20*time.Second, large)
		m.want(drip(dripPart{padded(readingLimit), 0}), 503, roomPatience)
		m.wantHeld(readingLimit-web.SmallBody, readingLimit-web.SmallBody)
	})
	inBudget(t, func(m *readingBudget) { // with memory, it has the time that was left
		time.AfterFunc(10*time.Second, fill(t, m.small, readingLimit))
		m.want(drip(dripPart{"{", 0}, dripPart{"x", never}), 408, 10*time.Second+web.BodyPatience)
	})
}
