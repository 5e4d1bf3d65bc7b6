package sse

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A POST whose client gives up while it waits for its turn uses the link no more: the end of the link does not wait for it.
//
// Guarantees: G-0034.8
func TestAPostThatGivesUpItsTurnIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newServerLink(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sse", nil), "", share.Client{}, newUnread(), 1<<20)
		l.Bind(newRecorder())
		if refused := l.enter(t.Context()); refused != nil {
			t.Fatalf("the first POST is refused: %+v", refused)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if refused := l.enter(ctx); refused == nil {
				t.Error("a POST has its turn before the first one has ended")
			}
		})
		synctest.Wait()
		giveUp()
		waiting.Wait()
		l.next()
		l.leave()
		l.leave() // the GET request
		began := time.Now()
		if err := l.end(transport.ErrClosed, time.Minute); err != nil || time.Since(began) != 0 {
			t.Errorf("the link ended with %v after %v, want at once", err, time.Since(began))
		}
	})
}

// Send on either link refuses what it cannot carry, with the reason, and nothing else.
func TestSendRefuses(t *testing.T) {
	const limit = 1000
	for n := range 2 {
		s := newSite(t, HandlerOptions{MaxFrame: limit})
		link, _ := open(t, &Client{URL: s.url, MaxFrame: limit})
		server, _ := s.session(0)
		if server.Grant(transport.Main, 1); n == 1 {
			link = server
		}
		var oversized *transport.OversizedError
		if err := link.Send(transport.Outbound{Frame: make([]byte, limit+1)}); !errors.As(err, &oversized) || *oversized != (transport.OversizedError{Limit: limit, Size: limit + 1}) {
			t.Errorf("%T: a frame above the limit: got %v", link, err)
		}
		if err := link.Send(transport.Outbound{Stream: 7, Frame: []byte(ping)}); !errors.Is(err, transport.ErrNoRoute) || err.Error() != "sse: send on stream 7: "+transport.ErrNoRoute.Error() {
			t.Errorf("%T: another stream: got %v", link, err)
		}
		if err := link.Send(transport.Outbound{Frame: []byte("{" + strings.Repeat(" ", limit-2) + "}")}); err != nil {
			t.Errorf("%T: a frame just within the limit: got %v", link, err)
		}
		if err := link.Close(hangLimit); err != nil {
			t.Errorf("%T: %v", link, err)
		}
		if err := link.Send(notification(0)); err != transport.ErrClosed {
			t.Errorf("%T: after Close: got %v, want %v", link, err, transport.ErrClosed)
		}
	}
}

// A stream says nothing for KeepAlive, and then a comment. Each write begins that time anew. What was written is not
// unread any more.
//
// Guarantees: G-0087.6
func TestCommentsComeWhenTheStreamIsQuiet(t *testing.T) {
	for keepAlive, want := range map[time.Duration]time.Duration{0: 15 * time.Second, -1: 15 * time.Second, time.Minute: time.Minute} {
		virtually(t, HandlerOptions{KeepAlive: keepAlive}, func(t *testing.T, s *site) {
			response := s.do(s.ctx, "GET", s.url, "")
			next := func() (string, time.Duration) {
				began, text := time.Now(), make([]byte, 4096)
				n, err := response.Body.Read(text)
				if err != nil {
					t.Fatal(err)
				}
				return string(text[:n]), time.Since(began)
			}
			if text, after := next(); !strings.HasPrefix(text, "event: endpoint\n") || after != 0 {
				t.Errorf("at first got %q after %v, want the endpoint at once", text, after)
			}
			link, _ := s.session(0)
			for range 2 {
				if text, after := next(); text != web.Comment || after != want {
					t.Errorf("KeepAlive of %v: got %q after %v, want a comment after %v", keepAlive, text, after, want)
				}
				if held := s.handler.unread.Small.Held(); held != 0 {
					t.Errorf("%d bytes count as unread after they were written, want 0", held)
				}
				time.AfterFunc(want-time.Second, func() { link.Send(notification(0)) })
				if text, after := next(); !strings.HasPrefix(text, "data: {") || after != want-time.Second {
					t.Errorf("KeepAlive of %v: got %q after %v, want the message when it was sent", keepAlive, text, after)
				}
			}
		})
	}
}

// A client has thirty seconds for each 64 KiB. One that is slower loses its session, and the frames that had not begun to
// be written are reported. One that just keeps up gets everything.
//
// Guarantees: G-0034.7
func TestASlowClientIsDisconnected(t *testing.T) {
	const piece = 64 << 10
	for name, test := range map[string]struct {
		reads []time.Duration // when the client reads a piece, after the one before
		lost  time.Duration   // when the session is lost; 0: it is not
	}{
		"reads nothing":            {nil, 30 * time.Second},
		"reads too slowly":         {[]time.Duration{31 * time.Second}, 30 * time.Second},
		"becomes too slow":         {[]time.Duration{20 * time.Second, 29 * time.Second, 31 * time.Second}, 79 * time.Second},
		"reads just in time":       {slices.Repeat([]time.Duration{29 * time.Second}, 4), 0},
		"reads all of it together": {[]time.Duration{29 * time.Second, 0, 0, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, HandlerOptions{KeepAlive: 24 * time.Hour}, func(t *testing.T, s *site) {
				response := s.do(s.ctx, "GET", s.url, "")
				if _, err := response.Body.Read(make([]byte, 4096)); err != nil {
					t.Fatal(err)
				}
				link, r := s.session(0)
				began := time.Now()
				for tag := range transport.Tag(3) {
					if err := link.Send(transport.Outbound{Tag: tag + 1, Frame: bytes.Repeat([]byte{'x'}, 4*piece-len("data: \n\n"))}); err != nil {
						t.Fatal(err)
					}
				}
				size := piece + 1 // so that the whole piece was taken, with what frames it
				for _, pause := range test.reads {
					sleep(pause)
					io.ReadFull(response.Body, make([]byte, size))
					size = piece
				}
				if test.lost == 0 {
					if synctest.Wait(); len(r.lost) > 0 {
						t.Fatalf("the session was lost after %v: %+v", r.lostAt.Sub(began), r.lost)
					}
					return
				}
				sleep(time.Hour)
				synctest.Wait()
				if loss, after := r.lost[0], r.lostAt.Sub(began); after != test.lost || !errors.Is(loss.Reason, transport.ErrPeerClosed) || !strings.HasPrefix(loss.Reason.Error(), "sse: write the stream: ") || !slices.Equal(loss.Unsent, []transport.Tag{2, 3}) {
					t.Errorf("lost after %v: %+v, want after %v that the peer has closed, and two unsent frames", after, loss, test.lost)
				}
			})
		})
	}
}

// A writesRecorder records how long each write was, and fails or panics at one of them.
type writesRecorder struct {
	*httptest.ResponseRecorder
	writes  []int
	flushes int
	status  int // as middleware sees it
	panics  bool
}

func (w *writesRecorder) Write(p []byte) (int, error) {
	if w.writes = append(w.writes, len(p)); w.panics {
		panic(http.ErrAbortHandler)
	}
	return w.ResponseRecorder.Write(p)
}

func (w *writesRecorder) Flush() { w.flushes++ }

func (w *writesRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseRecorder.WriteHeader(status)
}

// Frames go out together, up to 64 KiB of them, and in pieces of 64 KiB. Each piece is flushed.
func TestFramesAreWrittenTogether(t *testing.T) {
	const most = 64 << 10
	kilobytes := slices.Repeat([]int{1 << 10}, 130)
	for name, test := range map[string]struct{ frames, want []int }{
		"none":                    {nil, nil},
		"short ones":              {[]int{2, 10, 100}, []int{2 + 10 + 100 + 3*8}},
		"just as many as fit":     {kilobytes[:64], []int{most, 64 * 8}},
		"more than fit":           {kilobytes[:65], []int{most, 64 * 8, 1<<10 + 8}},
		"more than fit twice":     {kilobytes, []int{most, 64 * 8, most, 64 * 8, 2<<10 + 2*8}},
		"a long one and others":   {[]int{3*most + 1, 10, 20}, []int{most, most, most, 1 + 8, 30 + 2*8}},
		"a long one behind":       {[]int{10, most + 1, 20}, []int{10 + 8, most, 1 + 8, 20 + 8}},
		"the second just fits":    {[]int{10, most - 10}, []int{most, 2 * 8}},
		"the second does not fit": {[]int{10, most - 9}, []int{10 + 8, most - 9 + 8}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var sent []string
				h := NewHandler(acceptFunc(func(link transport.Link) {
					link.Bind(peertest.Ignore{})
					for n, size := range test.frames {
						sent = append(sent, strings.Repeat(string(rune('a'+n%26)), size))
						if err := link.Send(transport.Outbound{Frame: []byte(sent[n])}); err != nil {
							t.Fatal(err)
						}
					}
				}), HandlerOptions{})
				w := &writesRecorder{ResponseRecorder: httptest.NewRecorder()}
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					synctest.Wait()
					leave()
				}()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/sse", nil))
				if got := w.writes[1:]; !slices.Equal(got, test.want) || w.flushes != len(w.writes) || w.status != http.StatusOK {
					t.Errorf("got status %d, writes of %v bytes and %d flushes, want 200, %v and one for each", w.status, got, w.flushes, test.want)
				}
				events := eventstream.NewReader(w.Body, 1<<20)
				for n := range len(sent) + 1 {
					if e, err := events.Next(); err != nil || n > 0 && string(e.Data) != sent[n-1] {
						t.Errorf("event %d: got %.40q, %v", n, e.Data, err)
					}
				}
			})
		})
	}
}

func newUnread() *web.Unread {
	return &web.Unread{Small: share.NewLasting(1<<20, 64<<10), Large: share.NewLasting(1<<20, 256<<10)}
}

// What a client leaves unread on all its sessions is limited. A long answer beyond that is refused, a short frame waits,
// another client has its part, and all is given back when the sessions end.
//
// Guarantees: G-0087.6
func TestUnreadMessagesAreShared(t *testing.T) {
	unread := newUnread()
	var links []*serverLink
	session := func(client string) *serverLink {
		l := newServerLink(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sse", nil), client, share.Client{Identity: client}, unread, 1<<20)
		l.Bind(newRecorder())
		links = append(links, l)
		return l
	}
	for range 10 {
		if err := session("greedy").Send(transport.Outbound{Frame: make([]byte, 100<<10)}); err != nil && err != transport.ErrNoRoom {
			t.Fatal(err)
		}
	}
	if held := unread.Large.Held(); held < 200<<10 || held > 400<<10 {
		t.Errorf("one client has %d bytes unread, want 38 %% of 1 MiB at most", held)
	}
	if err := session("other").Send(transport.Outbound{Frame: make([]byte, 100<<10)}); err != nil {
		t.Errorf("another client: got %v", err)
	}
	greedy := session("greedy")
	for err := error(nil); err == nil; err = greedy.Send(transport.Outbound{Frame: make([]byte, 10<<10)}) {
		if unread.Small.Held() > 400<<10 {
			t.Fatalf("one client has %d bytes of short messages unread", unread.Small.Held())
		}
	}
	for unread.Small.Take(share.Client{Identity: "greedy"}, 100) { // until nothing is left for it
	}
	if long, short := greedy.Send(transport.Outbound{Frame: make([]byte, 10<<10)}), greedy.Send(transport.Outbound{Frame: make([]byte, 1<<10)}); long != transport.ErrNoRoom || short != transport.ErrBusy {
		t.Errorf("without room: got %v and %v, want %v and %v", long, short, transport.ErrNoRoom, transport.ErrBusy)
	}
	taken := unread.Small.Held() - greedy.small
	for _, l := range links {
		l.leave()
		l.end(transport.ErrClosed, 0)
	}
	if small, large := unread.Small.Held(), unread.Large.Held(); small != taken || large != 0 {
		t.Errorf("%d and %d bytes are held after the sessions have ended, want %d and 0", small, large, taken)
	}
}

// Clients leave 64 MiB of short messages unread, and as much of longer ones. A client may have one short message, or 256 KiB of
// longer ones, whenever that is free. A message that its queue refuses counts for nothing.
//
// Guarantees: G-0087.6
func TestWhatIsFreeForMessages(t *testing.T) {
	virtually(t, HandlerOptions{Identify: func(r *http.Request) string { return r.Header.Get("X-User") }}, func(t *testing.T, s *site) {
		s.visit("X-User: ada") // it reads nothing, and so does the next
		s.visit("X-User: bob")
		small, large, others := s.handler.unread.Small, s.handler.unread.Large, share.Client{Identity: "others"}
		send := func(session, size int, want error) {
			t.Helper()
			link, _ := s.session(session)
			if err := link.Send(transport.Outbound{Frame: make([]byte, size)}); err != want {
				t.Errorf("a message of %d bytes: got %v, want %v", size, err, want)
			}
			synctest.Wait()
		}
		send(0, 64<<10, nil) // is being written
		for range 256 {
			send(0, 1, nil)
		}
		held := small.Held()
		send(0, 1, transport.ErrBusy)
		if small.Held() != held {
			t.Errorf("a message that was refused takes %d bytes", small.Held()-held)
		}
		small.Extend(others, 64<<20-held-(64<<10+web.FrameOverhead))
		send(1, 64<<10, nil)
		send(1, 2<<10, transport.ErrNoRoom)
		large.Extend(others, 64<<20-256<<10)
		send(1, 256<<10-web.FrameOverhead, nil)
		send(1, 64<<10+1, transport.ErrNoRoom)
		large.Give(others, 1<<20)
		send(1, 600<<10, transport.ErrNoRoom)
	})
}
