package hop

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// open sends a request and returns the response, whose body is not read yet.
func open(t *testing.T, r *http.Request) *http.Response {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// Each piece of a response reaches the client before the next one is written, and each piece of a
// body reaches the other node before the client sends the next one.
//
// Guarantees: G-0077.4
func TestPiecesArriveAtOnce(t *testing.T) {
	next := make(chan struct{})
	a, _, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Method == "GET" {
			if r.URL.Path == "/known" {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Length", "8")
			}
			for _, event := range []string{"one\n", "two\n"} {
				io.WriteString(w, event)
				http.NewResponseController(w).Flush()
				<-next
			}
			return
		}
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "got "+line)
			control.Flush()
		}
	})
	site := front(t, a)
	for _, path := range []string{"/events", "/known"} {
		lines := bufio.NewReader(open(t, request(t, "GET", site.URL+path, nil)).Body)
		for _, want := range []string{"one\n", "two\n"} {
			if got, err := lines.ReadString('\n'); got != want {
				t.Fatalf("%s: got %q, %v, want %q", path, got, err, want)
			}
			next <- struct{}{}
		}
	}
	from, to := io.Pipe()
	response := make(chan *http.Response, 1)
	r := request(t, "POST", site.URL, from)
	go func() {
		got, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
		if err != nil {
			t.Error(err)
		}
		response <- got
	}()
	io.WriteString(to, "first\n")
	got := testenv.Receive(t, response, "the response begins")
	defer got.Body.Close()
	lines := bufio.NewReader(got.Body)
	for _, piece := range []string{"first\n", "second\n"} {
		if line, err := lines.ReadString('\n'); line != "got "+piece {
			t.Fatalf("got %q, %v, want %q", line, err, "got "+piece)
		}
		if piece == "first\n" {
			io.WriteString(to, "second\n")
		}
	}
	to.Close()
}

// Nobody keeps a body or a response of 16 MiB in memory.
//
// Guarantees: G-0077.4
func TestLargeBodiesAreStreamed(t *testing.T) {
	const size = 16 << 20
	var most atomic.Uint64
	measure := func() {
		runtime.GC() // what nobody holds does not count
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapAlloc))
	}
	a, _, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, &watched{Reader: r.Body, each: measure}); n != size || err != nil {
			t.Errorf("the node has read %d bytes, %v", n, err)
		}
		io.Copy(w, io.LimitReader(zeros{}, size))
	})
	site := front(t, a)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	r := request(t, "POST", site.URL, io.LimitReader(zeros{}, size))
	r.ContentLength = size
	response := open(t, r)
	if n, err := io.Copy(io.Discard, &watched{Reader: response.Body, each: measure}); n != size || err != nil {
		t.Errorf("the client has read %d bytes, %v", n, err)
	}
	if grown := int64(most.Load()) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the heap has grown by %d KiB, want less than 8 MiB", grown>>10)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A watched reader calls a function after each mebibyte.
type watched struct {
	io.Reader
	read int
	each func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if before := w.read >> 20; (w.read+n)>>20 > before {
		w.each()
	}
	w.read += n
	return n, err
}

// If the client leaves, the other node learns of it, before and after the response has begun.
//
// Guarantees: G-0077.4
func TestClientThatLeaves(t *testing.T) {
	begun, left := make(chan struct{}), make(chan error)
	a, _, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
		}
		close(begun)
		<-r.Context().Done()
		left <- r.Context().Err()
	})
	site := front(t, a)
	for _, method := range []string{"POST", "GET"} {
		begun = make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader("{}")
		}
		r, err := http.NewRequestWithContext(ctx, method, site.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		var work sync.WaitGroup
		work.Go(func() {
			if response, err := site.Client().Do(r); err == nil {
				defer response.Body.Close()
				if _, err := io.ReadAll(response.Body); err == nil {
					t.Error("a client that has left got a whole response")
				}
			}
		})
		testenv.Receive(t, begun, "the node serves the request")
		leave()
		if err := testenv.Receive(t, left, "the context of the other node ends"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the context of the other node ends with %v", method, err)
		}
		work.Wait()
	}
	if s := a.Stats(); s.Unknown != 0 || s.Unsent != 0 {
		t.Errorf("got %+v; that the client has left is no failure of the node", s)
	}
	site.Close() // so that nothing is forwarded any more
	lines := &a.route("b").lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	for _, l := range lines.all {
		if l.open != 0 {
			t.Errorf("a connection counts %d requests, want none", l.open)
		}
	}
}

// A node that ends while it serves leaves a request without a response, of which nobody knows how
// far it got, or a response that breaks off. The next request is not sent.
//
// Guarantees: G-0077.2, G-0077.4
func TestNodeThatEndsWhileItServes(t *testing.T) {
	begun := make(chan struct{})
	a, b, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			io.WriteString(w, "some")
			http.NewResponseController(w).Flush()
		}
		close(begun)
		<-r.Context().Done()
	})
	site := front(t, a)
	results, arrived := make(chan string, 2), make(chan struct{})
	for _, path := range []string{"/silent", "/begins"} {
		begun = make(chan struct{})
		r := request(t, "POST", site.URL+path, strings.NewReader("{}"))
		go func() {
			response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
			if err != nil {
				results <- err.Error()
				return
			}
			defer response.Body.Close()
			body := make([]byte, len("some"))
			if n, _ := io.ReadFull(response.Body, body); n == len(body) && path == "/begins" {
				close(arrived)
			}
			rest, err := io.ReadAll(response.Body)
			results <- strings.Join([]string{response.Status, string(body) + string(rest), errorText(err)}, "|")
		}()
		testenv.Receive(t, begun, "the node serves the request")
	}
	testenv.Receive(t, arrived, "half of a response arrives")
	b.server.Close()
	got := []string{testenv.Receive(t, results, "a request ends"), testenv.Receive(t, results, "the other request ends")}
	if strings.HasPrefix(got[0], "200") {
		got[0], got[1] = got[1], got[0]
	}
	if !strings.HasPrefix(got[0], "502") || !strings.Contains(got[0], "unknown") {
		t.Errorf("without a response: got %q, want 502 and that the outcome is unknown", got[0])
	}
	if got[1] != "200 OK|some|unexpected EOF" {
		t.Errorf("with half a response: got %q, want that it breaks off", got[1])
	}
	if status, _ := do(t, request(t, "POST", site.URL, strings.NewReader("{}"))); status != http.StatusMisdirectedRequest {
		t.Errorf("got %d of a node that has ended, want 421", status)
	}
	if s := a.Stats(); s.Unknown != 1 || s.Unsent != 1 || s.Forwarded != 3 || s.Open != 0 {
		t.Errorf("got %+v, want 1 unknown and 1 unsent of 3", s)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// However many bodies the other node does not read, others arrive: each stream waits for itself.
//
// Guarantees: G-0077.5
func TestBodiesThatAreNotReadDelayNoOther(t *testing.T) {
	const stuck = 2*maxStreams + 5
	arrived, ended, goOn := make(chan struct{}, stuck), make(chan string, stuck), make(chan struct{})
	a, b, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			r.Body.Read(make([]byte, 1)) // asks for the body
			arrived <- struct{}{}
			<-goOn
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		io.WriteString(w, http.StatusText(int(n)/(1<<20)*100+100))
	})
	site := front(t, a)
	var work sync.WaitGroup
	for range stuck { // one after the other, since all at once would delay each other's handshakes
		r := request(t, "POST", site.URL+"/stuck", bytes.NewReader(make([]byte, 1<<20))).WithContext(t.Context())
		work.Go(func() {
			response, err := site.Client().Do(r)
			if err != nil {
				ended <- err.Error()
				return
			}
			response.Body.Close()
			ended <- response.Status
		})
		select {
		case <-arrived:
		case how := <-ended:
			close(goOn)
			t.Fatalf("a request ended before its body was asked for: %s", how)
		}
	}
	for range 10 {
		r := request(t, "POST", site.URL+"/fast", bytes.NewReader(make([]byte, 1<<20)))
		if status, body := do(t, r); status != http.StatusOK || body != "OK" {
			t.Fatalf("got %d %q, want 200", status, body)
		}
	}
	close(goOn)
	work.Wait()
	if s := b.Stats(); s.Received != stuck+10 {
		t.Errorf("the node has received %d requests, want %d", s.Received, stuck+10)
	}
}

// However many clients do not read their responses, others get theirs.
//
// Guarantees: G-0077.5
func TestResponsesThatAreNotReadDelayNoOther(t *testing.T) {
	const stuck = maxOpen - 1 // on the same connection
	goOn := make(chan struct{})
	a, _, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			for r.Context().Err() == nil {
				w.Write(make([]byte, 64<<10))
			}
			return
		}
		w.Write(make([]byte, 1<<20))
	})
	var begun sync.WaitGroup
	begun.Add(stuck)
	var work sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	for range stuck {
		work.Go(func() {
			w := &stuckWriter{begun: &begun, goOn: goOn}
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			r := httptest.NewRequestWithContext(ctx, "GET", "/endless", nil)
			a.To("b").ServeHTTP(w, r)
		})
	}
	begun.Wait()
	site := front(t, a)
	for range 3 {
		response := open(t, request(t, "GET", site.URL, nil))
		if n, err := io.Copy(io.Discard, response.Body); n != 1<<20 || err != nil {
			t.Fatalf("got %d bytes, %v, want 1 MiB", n, err)
		}
	}
	end()
	close(goOn)
	work.Wait()
}

// A stuckWriter blocks in its first Write.
type stuckWriter struct {
	httptest.ResponseRecorder
	once  sync.Once
	begun *sync.WaitGroup
	goOn  chan struct{}
}

func (w *stuckWriter) Header() http.Header { return make(http.Header) }
func (w *stuckWriter) Flush()              {}
func (w *stuckWriter) WriteHeader(int)     {}

func (w *stuckWriter) Write(p []byte) (int, error) {
	w.once.Do(w.begun.Done)
	<-w.goOn
	return len(p), nil
}

// However many connections say nothing, a node gets through, and each of them is closed after a
// time.
//
// Guarantees: G-0077.5
func TestStrangersKeepNobodyOut(t *testing.T) {
	t.Parallel() // it waits
	a, b, _ := pair(t, func(http.ResponseWriter, *http.Request) {})
	var silent []net.Conn
	for range maxStrangers + 20 {
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	if status, body := do(t, request(t, "GET", front(t, a).URL, nil)); status != http.StatusOK {
		t.Errorf("got %d %q, want 200", status, body)
	}
	began := time.Now()
	for i, c := range silent {
		c.SetReadDeadline(began.Add(guard))
		io.Copy(io.Discard, c)
		switch took := time.Since(began); {
		case i < 20 && took > handshakePatience/2:
			t.Fatalf("connection %d was closed after %v, want that the oldest ones make room", i, took)
		case took > 3*handshakePatience:
			t.Fatalf("connection %d was closed after %v, want %v", i, took, handshakePatience)
		}
	}
}

// A body that the other node has refused to look at, since it was closing the connection, is sent
// again on another connection: a short one, and a longer one that was not asked for.
//
// Guarantees: G-0077.2
func TestBodyIsSentAgain(t *testing.T) {
	for name, text := range map[string]string{"short": "hello", "long": strings.Repeat("hello", maxKept)} {
		t.Run(name, func(t *testing.T) { sendAgain(t, text) })
	}
}

// sendAgain sends a body to a node that refuses the first connection.
func sendAgain(t *testing.T, text string) {
	of := newTable()
	a, b := begin(t, of), begin(t, of)
	of.set(peerOf("a", a))
	served := make(chan string, 1)
	b.Mount(SessionPath, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		served <- string(body)
	}))
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	of.set(Peer{Node: "b", Address: relay.Addr().String(), SPKI: b.SPKI()})
	var work sync.WaitGroup
	work.Go(func() {
		c, err := relay.Accept()
		if err != nil {
			return
		}
		refuseStreams(t, b, c) // the first connection
		for {
			c, err := relay.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", b.address)
			if err != nil {
				t.Error(err)
				return
			}
			work.Go(func() { io.Copy(onward, c); onward.Close() })
			work.Go(func() { io.Copy(c, onward); c.Close() })
		}
	})
	status, body := do(t, request(t, "POST", front(t, a).URL, strings.NewReader(text)))
	if status != http.StatusOK {
		t.Fatalf("got %d %q, want 200", status, body)
	}
	if got := <-served; got != text {
		t.Errorf("the node has received %d bytes, want %d", len(got), len(text))
	}
	relay.Close()
	a.cutOff()
	work.Wait()
}

// refuseStreams is the end of a connection that refuses its first request: it sends a GOAWAY that
// names no stream.
func refuseStreams(t *testing.T, as *testHop, raw net.Conn) {
	c := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{as.certificate}, NextProtos: []string{protocolName},
		ClientAuth: tls.RequireAnyClientCert,
	})
	defer raw.Close()
	c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS
	io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
	for header := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, header); err != nil {
			t.Error(err)
			return
		}
		io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(append([]byte{0}, header[:3]...))))
		if header[3] == 1 { // HEADERS
			break
		}
	}
	c.Write([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // GOAWAY
	io.Copy(io.Discard, c)
}

// A request whose body does not arrive is not sent, if the body is short. A longer one ends the
// request of the other node.
func TestBodyThatBreaksOff(t *testing.T) {
	got := make(chan error, 1)
	a, _, _ := pair(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		got <- err
	})
	for _, length := range []int64{maxKept, maxKept + 1} {
		r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("some"), failing{}))
		r.ContentLength = length
		w := httptest.NewRecorder()
		a.To("b").ServeHTTP(w, r)
		if short := length == maxKept; short && w.Code != http.StatusBadRequest || !short && w.Code != http.StatusBadGateway {
			t.Errorf("%d bytes: got %d %s", length, w.Code, w.Body)
		}
	}
	if err := <-got; err == nil {
		t.Error("the other node has read a whole body")
	}
	if s := a.Stats(); s.Unsent != 1 || s.Unknown != 1 {
		t.Errorf("got %+v, want one unsent and one unknown", s)
	}
}

// A request of a node's own stays as the caller has made it. Its body is closed with the response, also if the other node has not asked for
// it, and a response that is closed twice counts once.
func TestOwnRequestStaysAsItIs(t *testing.T) {
	a, _, _ := pair(t, func(http.ResponseWriter, *http.Request) {})
	body := &closing{Reader: zeros{}}
	r := request(t, "POST", "https://b/session/x", body)
	r.ContentLength = maxKept + 1
	response, err := a.RoundTripper("b").RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	response.Body.Close()
	if !body.closed || a.Stats().Open != 0 {
		t.Errorf("the body is closed: %t; the node counts %d open responses, want none", body.closed, a.Stats().Open)
	}
	if r.URL.String() != "https://b/session/x" || len(r.Header) != 0 || !r.Close {
		t.Errorf("the request has become %v %v, closing: %t", r.URL, r.Header, r.Close)
	}
}

// A failing reader is that of a client whose connection has broken.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
