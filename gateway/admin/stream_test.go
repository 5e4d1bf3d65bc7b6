package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A viewer gets a report at once, and another 100 ms after a change, but not more than four in a second: many changes
// are one event. It ends when the door closes.
//
// Guarantees: G-0091.5
func TestAViewerSeesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		d := New(f)
		v := look(t, d.Local(), "/v1/events")
		v.sees(t, 1, `"name":"files"`)
		pass(time.Second)
		f.set(ServerReport{Name: "one"})
		f.set(ServerReport{Name: "two"})
		v.sees(t, 1, "")
		pass(settle)
		v.sees(t, 2, `"name":"two"`)
		f.set(ServerReport{Name: "three"})
		pass(pace - time.Millisecond)
		v.sees(t, 2, "")
		pass(time.Millisecond)
		v.sees(t, 3, `"name":"three"`)
		if f.reports != 3 {
			t.Errorf("%d reports were made for 3 events", f.reports)
		}
		pass(idlePing)
		v.sees(t, 3, ": still here")
		f.set()
		pass(pace)
		v.sees(t, 4, "")
		d.Close()
		d.Close()
		<-v.gone
		late := look(t, d.Local(), "/v1/events")
		<-late.gone
		late.sees(t, 1, "report")
	})
}

// Of 64 viewers each has a seat, the next is refused, and one that leaves makes room. Who comes in by another door is not
// kept out, and who has the token is not by those who have none.
//
// Guarantees: G-0091.5
func TestViewersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		d := New(f)
		defer d.Close()
		web, local := d.Web(Web{Open: true, Token: "t0ken"}), d.Local()
		var viewers []*viewer
		for range MaxViewers {
			viewers = append(viewers, look(t, web, "/v1/events"))
		}
		synctest.Wait()
		if got := ask(web, "GET", "/v1/events"); got.Code != 503 || got.Result().Header.Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "64 viewers") {
			t.Errorf("one more: %d %s", got.Code, got.Body)
		}
		if got := ask(web, "GET", "/page/events"); got.Code != 503 {
			t.Errorf("one more at the page: %d %s", got.Code, got.Body)
		}
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if got := ask(web, "GET", "/v1/events", token, func(r *http.Request) { *r = *r.WithContext(ctx) }); got.Code != 200 || got.Result().Header.Get("Content-Type") != "text/event-stream" || got.Result().Header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("one with the token: %d %s %v", got.Code, got.Body, got.Result().Header)
		}
		for range MaxViewers {
			viewers = append(viewers, look(t, local, "/v1/stderr/files?follow"))
		}
		synctest.Wait()
		for n, v := range viewers {
			if strings.Contains(v.text(), "viewers") {
				t.Errorf("viewer %d is refused: %s", n, v.text())
			}
		}
		if got := ask(local, "GET", "/v1/stderr/files"); got.Code != 503 || strings.Contains(got.Body.String(), "event: ") {
			t.Errorf("one more at standard error: %d %s", got.Code, got.Body)
		}
		local = d.Local() // which has its own seats
		viewers[0].leave()
		<-viewers[0].gone
		next := look(t, web, "/page/events")
		next.sees(t, 1, "page")
		next.leave()
		<-next.gone
		look(t, web, "/v1/events").sees(t, 1, "report")
		look(t, local, "/v1/events").sees(t, 1, "report")
	})
}

// A viewer that does not read is dropped, and has its seat for no longer.
//
// Guarantees: G-0091.5
func TestAViewerThatDoesNotRead(t *testing.T) {
	f := newFake(files())
	d := New(f)
	defer d.Close()
	e := d.entrance(guard{local: true})
	w := &stuck{ResponseRecorder: httptest.NewRecorder()}
	e.routes().ServeHTTP(w, httptest.NewRequest("GET", "/v1/events", nil)) // returns
	if until := time.Until(w.deadline); until <= 0 || until > writeTime || len(e.seats) != 0 {
		t.Errorf("the deadline is in %v, and %d seats are taken", until, len(e.seats))
	}
}

// stuck is a connection whose peer does not read: writes fail at the deadline.
type stuck struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }
func (s *stuck) Write([]byte) (int, error)          { return 0, errors.New("i/o timeout") }

// Lines of standard error come once each, without those that have gone, and the stream follows if it is asked to.
//
// Guarantees: G-0091.6
func TestStderrIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		d := New(f)
		defer d.Close()
		for i := range TailLines + 2 {
			fmt.Fprintf(&f.tail, "line %d\r\nopen", i)
			io.WriteString(&f.tail, "\n")
		}
		v := look(t, d.Local(), "/v1/stderr/files?follow")
		v.sees(t, 1, `"line 257","open"]`)
		if strings.Contains(v.text(), `"line 129"`) || !strings.Contains(v.text(), `"line 130"`) {
			t.Error("other lines are kept than the last")
		}
		io.WriteString(&f.tail, "event: forged\x1b\n"+strings.Repeat("x", TailLine+1)+"\n")
		pass(pace)
		v.sees(t, 2, `["event: forged\u001b","`+strings.Repeat("x", TailLine)+`"]`)
		once := ask(d.Local(), "GET", "/v1/stderr/files")
		if n := strings.Count(once.Body.String(), "event: lines"); n != 1 {
			t.Errorf("%d events without follow", n)
		}
	})
}

// Who begins to send a form and does not end it is not waited for.
//
// Guarantees: G-0091.2
func TestAFormThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(newFake(files()))
		defer d.Close()
		client, end := serveOne(d.Web(Web{Token: "t0ken"}))
		defer end()
		began := time.Now()
		io.WriteString(client, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\ntoken=t")
		got, err := http.ReadResponse(bufio.NewReader(client), nil)
		if took := time.Since(began); err != nil || got.StatusCode != 400 || !got.Close || took != writeTime {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
	})
}

// serveOne serves one connection, until end is called.
func serveOne(h http.Handler) (client net.Conn, end func()) {
	client, peer := net.Pipe()
	conns := make(chan net.Conn, 1)
	conns <- peer
	server := &http.Server{Handler: h}
	over := make(chan struct{})
	go func() {
		defer close(over)
		server.Serve(oneListener{conns})
	}()
	return client, func() {
		client.Close()
		close(conns)
		<-over
		server.Close()
	}
}

type oneListener struct{ conns chan net.Conn }

func (l oneListener) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneListener) Close() error   { return nil }
func (l oneListener) Addr() net.Addr { return &net.TCPAddr{} }

// A viewer is a request that goes on.
type viewer struct {
	mu    sync.Mutex
	all   strings.Builder
	head  http.Header
	leave context.CancelFunc
	gone  chan struct{}
}

func look(t *testing.T, h http.Handler, target string) *viewer {
	ctx, leave := context.WithCancel(t.Context())
	v := &viewer{head: http.Header{}, leave: leave, gone: make(chan struct{})}
	go func() {
		defer close(v.gone)
		h.ServeHTTP(v, httptest.NewRequest("GET", "http://localhost"+target, nil).WithContext(ctx))
	}()
	return v
}

func (v *viewer) Header() http.Header { return v.head }
func (v *viewer) WriteHeader(int)     {}
func (v *viewer) Flush()              {}
func (v *viewer) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all.Write(text)
}

func (v *viewer) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all.String()
}

// sees waits until nothing moves any more, and checks how many events there are.
func (v *viewer) sees(t *testing.T, events int, text string) {
	t.Helper()
	synctest.Wait()
	if got := v.text(); strings.Count(got, "event: ") != events+strings.Count(got, "event: forged") || !strings.Contains(got, text) {
		t.Errorf("%d events, want %d, with %.100s:\n%.2000s", strings.Count(got, "event: "), events, text, got)
	}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.NewTimer(d).C }
