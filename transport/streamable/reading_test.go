package streamable

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A dripBody is a body whose parts come at their times, and the response to it.
type dripBody struct {
	*httptest.ResponseRecorder
	parts    []dripPart
	deadline time.Time
}

type dripPart struct {
	text  string
	after time.Duration // behind the part before
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
		return 0, os.ErrDeadlineExceeded
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

// A readingRoom is a room whose bodies come from one client.
type readingRoom struct {
	*room
	t      *testing.T
	server *http.Server
	length int64 // that is announced; -1: none
	proto  int
}

// inRoom runs a test of a room with a quarter of 1 MiB in either budget.
func inRoom(t *testing.T, test func(m *readingRoom)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&readingRoom{room: newRoom(readingLimit, readingLimit, make(chan struct{})), t: t, length: -1, proto: 1})
	})
}

const readingLimit = 256 << 10

func (m *readingRoom) request(from *dripBody) *http.Request {
	r := httptest.NewRequest("POST", "http://mcp.example/", from)
	r.ContentLength, r.ProtoMajor = m.length, m.proto
	if m.server != nil {
		r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, m.server))
	}
	return r
}

// read reads a body, and reports the status (200 if it was read) and how long that took.
func (m *readingRoom) read(from *dripBody, checks time.Duration) (b *body, status int, took time.Duration) {
	begun := time.Now()
	r := m.request(from)
	expected := expectBody(from, r)
	pass(checks)
	b, refused := m.room.read(from, r, expected, &transport.Origin{RemoteAddr: "192.0.2.1:1"})
	if refused != nil {
		return nil, refused.status, time.Since(begun)
	}
	return b, 200, time.Since(begun)
}

func (m *readingRoom) want(from *dripBody, status int, after time.Duration) *body {
	m.t.Helper()
	b, got, took := m.read(from, 0)
	if got != status || took != after {
		m.t.Errorf("%d after %v, want %d after %v", got, took, status, after)
	}
	return b
}

// free is what is left of the room, and of its client's part if the client has one.
func (m *readingRoom) free() (small, large int, own [2]int) {
	for _, of := range m.of {
		own = [2]int{of.small.amount(), of.large.amount()}
	}
	return m.small.amount(), m.large.amount(), own
}

func (m *readingRoom) wantFree(small, large int, own [2]int) {
	m.t.Helper()
	if s, l, o := m.free(); s != small || l != large || o != own {
		m.t.Errorf("%d, %d and %v are free; want %d, %d and %v", s, l, o, small, large, own)
	}
}

// padded is a notification of so many bytes.
func padded(size int) string {
	const head, tail = `{"jsonrpc":"2.0","method":"a","params":["`, `"]}`
	return head + strings.Repeat("x", size-len(head+tail)) + tail
}

const never = time.Hour

// A body holds what it has brought until it is handed over, and no more.
func TestReadingHoldsWhatHasCome(t *testing.T) {
	inRoom(t, func(m *readingRoom) {
		first := m.want(drip(dripPart{padded(100), 0}), 200, 0)
		m.wantFree(readingLimit-100, readingLimit, [2]int{readingLimit - 100, readingLimit})
		second := m.want(drip(dripPart{padded(web.SmallBody + 200), 0}), 200, 0)
		left, large := readingLimit-100-web.SmallBody, readingLimit-200
		m.wantFree(left, large, [2]int{left, large})
		if in := second.take(); len(in.Frame) != web.SmallBody+200 || in.Message.Method != "a" {
			t.Errorf("took %d bytes of %s", len(in.Frame), in.Message.Method)
		}
		m.wantFree(readingLimit-100, readingLimit, [2]int{readingLimit - 100, readingLimit})
		first.keep(40)
		m.wantFree(readingLimit-40, readingLimit, [2]int{readingLimit - 40, readingLimit})
		first.release()
		first.release() // there is nothing left
		m.wantFree(readingLimit, readingLimit, [2]int{})
		m.want(drip(dripPart{"{", 0}), 400, 0)
		m.wantFree(readingLimit, readingLimit, [2]int{})
	})
}

// A body may have as many bytes as were announced, and as the handler allows.
func TestReadingIsBounded(t *testing.T) {
	inRoom(t, func(m *readingRoom) {
		for size, status := range map[int]int{readingLimit: 200, readingLimit + 1: 413, 4 * readingLimit: 413} {
			b := m.want(drip(dripPart{padded(size), 0}), status, 0)
			if b != nil {
				b.release()
			}
		}
		m.length = 100
		m.want(drip(dripPart{padded(100), 0}), 200, 0).release()
		m.want(drip(dripPart{padded(101), 0}), 413, 0)
		m.length = 0
		m.want(drip(), 400, 0)
		m.wantFree(readingLimit, readingLimit, [2]int{})
	})
}

// Nothing is asked of the large room for a small body, however it comes, and nothing of
// the small one for a body without bytes.
func TestReadingOfASmallBodyWaitsForNoLargeOne(t *testing.T) {
	inRoom(t, func(m *readingRoom) {
		m.large.claim(readingLimit)
		m.large.claim(1) // it waits
		var parts []dripPart
		for _, c := range padded(60) {
			parts = append(parts, dripPart{string(c), 0})
		}
		m.want(drip(parts...), 200, 0).release()
		m.small.claim(readingLimit - 1)
		m.length = 0
		m.want(drip(), 400, 0)
	})
}

// The first byte has half a minute, and no more than the server gives. What checks the
// request beforehand may take as long as it needs, but a second of it is the client's.
func TestReadingWaitsForTheFirstByte(t *testing.T) {
	for given, wait := range map[time.Duration]time.Duration{0: web.BodyPatience, 5 * time.Second: 5 * time.Second, time.Hour: web.BodyPatience} {
		inRoom(t, func(m *readingRoom) {
			m.server = &http.Server{ReadTimeout: given}
			from := drip(dripPart{"{", never})
			expectBody(from, m.request(from))
			if got := time.Until(from.deadline); got != wait {
				t.Errorf("with %v: %v to come", given, got)
			}
			m.want(drip(dripPart{"{", never}), 408, wait)
		})
	}
	inRoom(t, func(m *readingRoom) {
		for checks, wait := range map[time.Duration]time.Duration{
			time.Second - 1: web.BodyPatience, time.Second: web.BodyPatience + time.Second, time.Minute: web.BodyPatience + time.Minute,
		} {
			if _, status, took := m.read(drip(dripPart{"{", never}), checks); status != 408 || took != wait {
				t.Errorf("checks of %v: %d after %v, want %v", checks, status, took, wait)
			}
		}
	})
}

// Until a body has come, its connection is one that is closed. Then no deadline is left.
func TestReadingLeavesTheConnection(t *testing.T) {
	inRoom(t, func(m *readingRoom) {
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
				t.Errorf("%+v: %q, %v", test, got, from.deadline)
			}
		}
		m.length, m.proto = 60, 1
		from := drip(dripPart{padded(60), 0})
		m.want(from, 200, 0).release()
		if got := from.Header().Get("Connection"); got != "" || !from.deadline.IsZero() {
			t.Errorf("a body that has come leaves %q, %v", got, from.deadline)
		}
	})
}

// Each 64 KiB give a second more, and ten seconds for the next. Less gives nothing.
func TestReadingGivesTimeForPieces(t *testing.T) {
	whole := padded(3 * web.PieceSize)
	for name, test := range map[string]struct {
		parts  []dripPart
		status int
		after  time.Duration
		server time.Duration
	}{
		"as soon as it may":            {[]dripPart{{whole[:web.PieceSize], web.BodyPatience}, {whole[web.PieceSize:], time.Second}}, 200, 31 * time.Second, 0},
		"too late":                     {[]dripPart{{whole[:web.PieceSize], web.BodyPatience}, {whole[web.PieceSize:], time.Second + 1}}, 408, 31 * time.Second, 0},
		"stalled":                      {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 10*time.Second + 1}}, 408, 11 * time.Second, 0},
		"just not stalled":             {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 10 * time.Second}}, 200, 11 * time.Second, 0},
		"byte by byte":                 {[]dripPart{{whole[:web.PieceSize], 0}, {"x", 9 * time.Second}, {"x", 9 * time.Second}}, 408, 10 * time.Second, 0},
		"longer than the server gives": {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], 5 * time.Second}}, 408, 5 * time.Second, 5 * time.Second},
		"a server that gives much":     {[]dripPart{{whole[:web.PieceSize], time.Second}, {whole[web.PieceSize:], never}}, 408, 11 * time.Second, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, func(m *readingRoom) {
				m.server = &http.Server{ReadTimeout: test.server}
				if b := m.want(drip(test.parts...), test.status, test.after); b != nil {
					b.release()
				}
			})
		})
	}
}

// A body waits half a minute for room, whichever room it waits for and how often. That
// does not count as its own time.
func TestReadingWaitsForRoom(t *testing.T) {
	inRoom(t, func(m *readingRoom) {
		m.want(drip(dripPart{padded(100), 0}), 200, 0) // so that the client's part stays
		m.small.claim(readingLimit - 100)
		from := drip(dripPart{padded(60), 0})
		done := make(chan int, 1)
		begun := time.Now()
		go func() {
			_, status, _ := m.read(from, 0)
			done <- status
		}()
		synctest.Wait()
		if got := from.deadline.Sub(begun); got != roomPatience+web.BodyPatience {
			t.Errorf("while it waits, it has %v to come", got)
		}
		if status := <-done; status != 503 || time.Since(begun) != roomPatience {
			t.Errorf("%d after %v", status, time.Since(begun))
		}
		m.wantFree(0, readingLimit, [2]int{readingLimit - 100, readingLimit})
	})
	inRoom(t, func(m *readingRoom) { // its client has no room left
		m.want(drip(dripPart{padded(100), 0}), 200, 0)
		for _, own := range m.of {
			own.small.claim(readingLimit - 100)
		}
		m.want(drip(dripPart{padded(60), 0}), 503, roomPatience)
		m.wantFree(readingLimit-100, readingLimit, [2]int{0, readingLimit})
	})
	inRoom(t, func(m *readingRoom) { // it waits three times, and the last time in vain
		m.small.claim(readingLimit)
		m.large.claim(readingLimit)
		time.AfterFunc(10*time.Second, func() { m.small.give(web.SmallBody) })
		time.AfterFunc(20*time.Second, func() { m.large.give(web.SmallBody) })
		m.want(drip(dripPart{padded(readingLimit), 0}), 503, roomPatience)
		m.wantFree(web.SmallBody, web.SmallBody, [2]int{})
	})
	inRoom(t, func(m *readingRoom) { // when it has room, its time is what was left
		m.small.claim(readingLimit)
		time.AfterFunc(10*time.Second, func() { m.small.give(readingLimit) })
		m.want(drip(dripPart{"{", never}), 408, 10*time.Second+web.BodyPatience)
	})
}
