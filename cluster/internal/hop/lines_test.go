package hop

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A countingListener counts the connections that it accepts.
type countingListener struct {
	net.Listener
	accepted atomic.Int64
}

func (c *countingListener) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return accepted, err
}

// Many requests at once make as many connections as they need.
//
// Guarantees: G-0077.5
func TestManyRequestsMakeFewConnections(t *testing.T) {
	const requests = 500
	of := newTable()
	a, b := begin(t, of), newHop(t, of)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingListener{Listener: listener}
	if err := b.serve(counting); err != nil {
		t.Fatal(err)
	}
	of.set(peerOf("a", a))
	of.set(peerOf("b", &testHop{b, listener.Addr().String()}))
	var all sync.WaitGroup
	all.Add(requests)
	b.Mount(SessionPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait() // so that all are open at the same time
	}))
	var work sync.WaitGroup
	for range requests {
		r := request(t, "POST", "https://b/session/", strings.NewReader("{}"))
		work.Go(func() {
			response, err := a.RoundTripper("b").RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
		})
	}
	work.Wait()
	if most := int64((requests + maxOpen - 1) / maxOpen); counting.accepted.Load() > most {
		t.Errorf("%d requests have made %d connections, want at most %d", requests, counting.accepted.Load(), most)
	}
}

// A machine that accepts connections and says nothing delays all requests by one attempt.
//
// Guarantees: G-0077.2, G-0077.5
func TestSilentNodeDelaysAllOnce(t *testing.T) {
	t.Parallel() // it waits
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	of := newTable()
	a := begin(t, of)
	of.set(Peer{Node: "b", Address: silent.Addr().String(), SPKI: a.SPKI()})
	began := time.Now()
	var work sync.WaitGroup
	for range 50 {
		r := request(t, "POST", "https://b/session/", strings.NewReader("{}"))
		work.Go(func() {
			var dial *net.OpError
			if _, err := a.RoundTripper("b").RoundTrip(r); !errors.As(err, &dial) || dial.Op != "dial" {
				t.Errorf("got %v, want an error of a dial", err)
			}
		})
	}
	work.Wait()
	if took := time.Since(began); took < dialPatience || took > 2*dialPatience-time.Second/2 {
		t.Errorf("the requests have failed after %v, want %v", took, dialPatience)
	}
}

// While one request makes a connection, others wait. They go on when there is one, or when another
// request has ended; they fail if the attempt has.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		then func(s *lines, full *line, result chan<- error)
		want error
	}{
		"a connection":               {func(_ *lines, _ *line, result chan<- error) { result <- nil }, nil},
		"an attempt that has failed": {func(_ *lines, _ *line, result chan<- error) { result <- net.ErrClosed }, net.ErrClosed},
		"another one that has ended": {func(s *lines, full *line, _ chan<- error) { s.leave(full) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s lines
				full := &line{of: &s, open: maxOpen}
				s.all = []*line{full}
				result := make(chan error)
				connect := func(context.Context) (*line, error) { return &line{of: &s}, <-result }
				go s.enter(t.Context(), connect)
				synctest.Wait()
				ended := false
				var wait sync.WaitGroup
				wait.Go(func() {
					l, err := s.enter(t.Context(), func(context.Context) (*line, error) {
						t.Error("the second one makes another attempt")
						return nil, nil
					})
					if err != c.want || (l == nil) != (err != nil) {
						t.Errorf("the second one got %v, %v", l, err)
					}
					ended = true
				})
				synctest.Wait()
				if ended {
					t.Error("the second one does not wait")
				}
				c.then(&s, full, result)
				wait.Wait()
				close(result)
			})
		})
	}
	var s lines
	ctx, cancel := context.WithCancel(t.Context())
	connect := func(ctx context.Context) (*line, error) {
		cancel()
		return &line{of: &s}, ctx.Err()
	}
	if _, err := s.enter(ctx, connect); err != nil {
		t.Errorf("got %v of an attempt whose request has left, want that it goes on for the others", err)
	}
	s = lines{attempt: new(attempt)}
	if _, err := s.enter(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of one that leaves, want its end", err)
	}
}

// A line that takes no more requests is closed and forgotten with its last one, and not before.
func TestALineGoesWithItsLastRequest(t *testing.T) {
	for name, c := range map[string]struct {
		making bool // it happens while the line is made
		stop   func(*lines, *line)
	}{
		"the line is retired":            {false, (*lines).retire},
		"the route is closed":            {false, func(s *lines, _ *line) { s.close() }},
		"the route is closed beforehand": {true, func(s *lines, _ *line) { s.close() }},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			var s lines
			h := &Hop{outgoing: make(map[*connection]struct{})}
			link := &connection{Conn: tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS13}), hop: h}
			link.line = newLine(&s, link)
			h.register(link)
			l, err := s.enter(t.Context(), func(context.Context) (*line, error) {
				if c.making {
					c.stop(&s, link.line)
				}
				return link.line, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !c.making {
				c.stop(&s, l)
			}
			if other, _, mine, _ := s.find(); other != nil || !mine || len(s.all) != 1 || len(h.outgoing) != 1 {
				t.Errorf("with a request, it takes another one: %t; there are %d lines and %d connections, want 1 and 1", other != nil, len(s.all), len(h.outgoing))
			}
			s.leave(l)
			if len(s.all) != 0 || len(h.outgoing) != 0 {
				t.Errorf("without one, there are %d lines and %d connections, want none", len(s.all), len(h.outgoing))
			}
		})
	}
}

// A line gives its connection to its Transport once. Whoever asks for another one just then waits,
// since the Transport then offers the first one; later, or if the connection has ended, that means
// that the line is of no use any more.
func TestLineGivesItsConnectionOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s lines
		link := new(connection)
		l := newLine(&s, link)
		if got, err := l.give(t.Context(), "", ""); got != link || err != nil {
			t.Errorf("got %v, %v, want the connection", got, err)
		}
		again := func() time.Duration {
			began := time.Now()
			if got, err := l.give(t.Context(), "", ""); got != nil || !errors.Is(err, errUnusable) {
				t.Errorf("got %v, %v, want that the line is of no use", got, err)
			}
			return time.Since(began)
		}
		if waited := again(); waited != settling {
			t.Errorf("it says so after %v, want %v", waited, settling)
		}
		if waited := again(); waited != 0 {
			t.Errorf("later it says so after %v, want at once", waited)
		}
		l = newLine(&s, link)
		l.given = true
		l.ended()
		if waited := again(); waited != 0 {
			t.Errorf("when the connection has ended, it says so after %v, want at once", waited)
		}
	})
}

// A listener for which there is no address to advertise is closed again.
func TestAnAddressThatNobodyReachesIsFreeAgain(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	if reachable, err := newHop(t, newTable()).Listen(address, "0.0.0.0"); err == nil {
		t.Errorf("it is reached at %s", reachable)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// Of too many connections that have not shown their key, each goes once, the oldest first.
//
// Guarantees: G-0077.5
func TestTheOldestStrangerGoesFirst(t *testing.T) {
	s := &strangers{all: make(map[*stranger]struct{})}
	for n := range uint64(maxStrangers + 9) {
		if _, oldest := s.add(nil); n < maxStrangers && oldest != nil || n >= maxStrangers && oldest.serial != n-maxStrangers+1 {
			t.Errorf("for connection %d there goes %+v", n+1, oldest)
		}
	}
	if len(s.all) != maxStrangers {
		t.Errorf("%d are kept", len(s.all))
	}
	near, far := net.Pipe()
	defer far.Close()
	last, _ := s.add(near)
	if err := last.Close(); err != nil || len(s.all) != maxStrangers-1 {
		t.Errorf("%v; of one that has ended there are still %d, want %d", err, len(s.all), maxStrangers-1)
	}
}

// The error of a request that somebody else would have got names the node that was asked for, and the key that was met there.
//
// Guarantees: G-0077.1
func TestTheErrorNamesTheKeyThatWasMet(t *testing.T) {
	of := newTable()
	a, other := begin(t, of), begin(t, of)
	of.set(Peer{Node: "b", Address: other.address, SPKI: a.SPKI()})
	_, err := a.RoundTripper("b").RoundTrip(request(t, "GET", "https://b/session/", nil))
	var met *KeyError
	if !errors.As(err, &met) || *met != (KeyError{SPKI: other.SPKI(), Node: "b"}) || !isUnsent(err) {
		t.Errorf("got %v, want that the key is not that of b", err)
	}
}

// Close ends what this node still asks others for.
func TestCloseEndsOwnRequests(t *testing.T) {
	of := newTable()
	a, b := begin(t, of), begin(t, of)
	of.set(peerOf("a", a))
	of.set(peerOf("b", b))
	b.Mount("/open", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the other side tells
		<-r.Context().Done()
	}))
	open := request(t, "GET", "http://b/open/", nil)
	response, err := a.RoundTripper("b").RoundTrip(open)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(response.Body); err == nil || open.Context().Err() != nil {
		t.Errorf("the response goes on, or has ended as if it was whole: %v", err)
	}
}
