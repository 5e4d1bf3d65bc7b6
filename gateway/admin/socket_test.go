package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// serve serves a gateway at a socket, and returns its path and what ends it.
func serve(t *testing.T, f *fake) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "run", "b.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	d := New(f)
	s := &http.Server{Handler: d.Local()}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	end = func() {
		d.Close()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-served
	}
	return path, end
}

// A program on this machine sees and does everything through the socket.
//
// Guarantees: G-0091.3, G-0091.6, G-0091.7
func TestAClientAtTheSocket(t *testing.T) {
	f := newFake(files(), ServerReport{Name: "a/b c", State: Backoff})
	path, end := serve(t, f)
	c, ctx := Dial(path), t.Context()
	if report, err := c.Report(ctx); err != nil || len(report.Servers) != 2 || report.Servers[0].Stderr == "" || !report.Applied.Equal(noon) {
		t.Errorf("report: %+v, %v", report, err)
	}
	if err := errors.Join(c.Do(ctx, "a/b c", Wake), c.Reload(ctx)); err != nil || !slices.Equal(f.did(), []string{"wake a/b c", "reload"}) {
		t.Errorf("did %v, %v", f.did(), err)
	}
	var refused *AnswerError
	if err := c.Do(ctx, "x", Stop); !errors.As(err, &refused) || refused.Status != 404 || err.Error() != "no such server: x" {
		t.Errorf("nobody: %v", err)
	}
	io.WriteString(&f.tail, "one\ntwo\n")
	var got []string
	if err := c.Stderr(ctx, "files", false, func(lines []string) error { got = append(got, lines...); return nil }); err != nil || !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("stderr: %q, %v", got, err)
	}
	if err := c.Stderr(ctx, "nobody", true, nil); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("stderr of nobody: %v", err)
	}
	seen := 0
	err := c.Watch(ctx, func(Report) error {
		if seen++; seen == 1 {
			f.set()
			return nil
		}
		return errBroken
	})
	if !errors.Is(err, errBroken) || seen != 2 {
		t.Errorf("watched %d, %v", seen, err)
	}
	ended := make(chan struct{})
	err = c.Watch(ctx, func(Report) error { go func() { defer close(ended); end() }(); return nil })
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "has ended the stream") {
		t.Errorf("the gateway ended: %v", err)
	}
	<-ended
	if _, err := c.Report(ctx); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), path) {
		t.Errorf("nobody there: %v", err)
	}
}

// A program gets the address of a page, or hears why there is none. What a gateway writes about a refusal is bounded.
//
// Guarantees: G-0091.3, G-0091.18
func TestAClientAsksForThePage(t *testing.T) {
	f := newFake(files())
	path, end := serve(t, f)
	defer end()
	c := Dial(path)
	var refused *AnswerError
	if _, err := c.Page(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusConflict || err.Error() != errNoPage.Error() {
		t.Errorf("without a page: %v", err)
	}
	f.mu.Lock()
	f.broken = errors.New(strings.Repeat("a", 2*maxForm))
	f.mu.Unlock()
	if err := c.Reload(t.Context()); !errors.As(err, &refused) || len(refused.Text) > maxForm || len(refused.Text) < maxForm-10 {
		t.Errorf("a refusal of many bytes: %.80v", err)
	}
	with := New(f)
	with.Web(Web{Token: "t0ken", URL: "http://localhost:8081/"})
	other := serveAt(t, with.Local())
	if address, err := Dial(other).Page(t.Context()); err != nil || !strings.HasPrefix(address, "http://localhost:8081/login/") {
		t.Errorf("with a page: %q, %v", address, err)
	}
}

// A client keeps no connection, also if the gateway goes on with an answer that was understood. Its answers have up to 64 MiB, and that to a request for
// a code less; what is no success is an error, and so is what its caller gives up.
//
// Guarantees: G-0091.3, G-0091.6
func TestAnswersThatAClientReads(t *testing.T) {
	var left sync.WaitGroup
	long := strings.Repeat("a", maxAnswer/8+1)
	path := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left.Add(1)
		defer left.Done()
		if !r.Close {
			t.Errorf("%s is not the last request of its connection", r.URL)
		}
		switch r.URL.Path {
		case "/v1/report":
			fmt.Fprintf(w, `{"file":"%s"}`, long)
		case "/v1/pins":
			fmt.Fprintf(w, `[{"tool":"%s"}]`, long)
		case "/v1/events":
			fmt.Fprintf(w, "data: {\"file\":\"%s\"}\n\n", long)
		case "/v1/code":
			fmt.Fprintf(w, `{"url":"%s"}`, long[:maxForm/2])
		default:
			w.WriteHeader(http.StatusMultipleChoices)
			return
		}
		http.NewResponseController(w).Flush()
		guard := time.NewTimer(30 * time.Second)
		defer guard.Stop()
		select {
		case <-r.Context().Done(): // the client has closed
		case <-guard.C:
			t.Errorf("%s: the client has kept the connection", r.URL)
		}
	}))
	c := Dial(path)
	if r, err := c.Report(t.Context()); err != nil || r.File != long {
		t.Errorf("a report of %d bytes: %v", len(r.File), err)
	}
	if pins, err := c.Pins(t.Context()); err != nil || len(pins) != 1 || pins[0].Tool != long {
		t.Errorf("pins: %v", err)
	}
	if err := c.Watch(t.Context(), func(r Report) error {
		if r.File != long {
			t.Errorf("an event of %d bytes", len(r.File))
		}
		return errBroken
	}); !errors.Is(err, errBroken) {
		t.Errorf("watched: %v", err)
	}
	if address, err := c.Page(t.Context()); err != nil || address != long[:maxForm/2] {
		t.Errorf("an address of %d bytes: %v", len(address), err)
	}
	left.Wait()
	var refused *AnswerError
	if err := c.Reload(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusMultipleChoices {
		t.Errorf("no success: %v", err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := c.Report(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("given up: %v", err)
	}
}

// Who watches hears how it has ended: by its own context, by a gateway that is lost in the middle of an event, or by one that writes something else.
//
// Guarantees: G-0091.6
func TestWatchSaysHowItEnded(t *testing.T) {
	path := serveAt(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			io.WriteString(w, ": still here\n\nevent: report\ndata: {}\n\n\n: a comment\ndata: {")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, "data: odd\n\n")
	}))
	reports := 0
	err := Dial(path).Watch(t.Context(), func(Report) error { reports++; return nil })
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), path+" has gone") || reports != 1 {
		t.Errorf("lost: %v after %d reports", err, reports)
	}
	var syntax *json.SyntaxError
	if err := Dial(path).Stderr(t.Context(), "files", false, nil); !errors.As(err, &syntax) || !strings.Contains(err.Error(), path) {
		t.Errorf("something else: %v", err)
	}
	path, end := serve(t, newFake(files()))
	defer end()
	ctx, leave := context.WithCancelCause(t.Context())
	if err := Dial(path).Watch(ctx, func(Report) error { leave(errBroken); return nil }); !errors.Is(err, errBroken) {
		t.Errorf("its own context: %v", err)
	}
}

// serveAt serves a handler at a socket until the test ends.
func serveAt(t *testing.T, h http.Handler) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return path
}

// Only the user can open the socket, one gateway has it, and what a killed one has left is replaced.
//
// Guarantees: G-0091.7
func TestTheSocket(t *testing.T) {
	path, end := serve(t, newFake())
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode()&os.ModeSocket == 0 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	var taken *SocketError
	if _, err := Listen(path); !errors.As(err, &taken) || !taken.Running || !strings.Contains(err.Error(), "another gateway runs") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := Dial(path).Report(t.Context()); err != nil {
		t.Errorf("after the second one: %v", err)
	}
	end()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.sock")); left != nil {
		t.Errorf("left: %v", left)
	}
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	killed.Close()
	if _, err := Dial(path).Report(context.Background()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a killed one: %v", err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close()); err != nil || l.Close() == nil {
		t.Errorf("closed twice: %v", err)
	}
	if l, err = Listen(path); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := l.Close(); err != nil {
		t.Errorf("somebody has removed it before: %v", err)
	}
	if l, err = Listen(path); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err == nil {
		t.Error("what cannot be removed is not told of")
	}
	if _, err := Listen(path); !errors.As(err, &taken) || taken.Running {
		t.Errorf("where something else is: %v", err)
	}
	os.RemoveAll(path)
	if l, err = Listen(path); err != nil { // the attempt before has left nothing
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.As(err, &taken) || taken.Running {
		t.Errorf("in a folder of others: %v", err)
	}
	if _, err := Listen(filepath.Join(t.TempDir(), strings.Repeat("a", 120))); err == nil || !strings.Contains(err.Error(), "at most 90") {
		t.Errorf("a long path: %v", err)
	}
}

// The socket is private from the moment it is there, also when it takes the place of an earlier one.
//
// Guarantees: G-0091.7
func TestTheSocketIsNeverOpenToOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.sock")
	made := make(chan struct{})
	defer func() { <-made }()
	go func() {
		defer close(made)
		for range 300 {
			l, err := Listen(path)
			if err != nil {
				t.Error(err)
				return
			}
			s := l.(*socket)
			if err := errors.Join(s.UnixListener.Close(), s.lock.Close()); err != nil { // as if it had been killed
				t.Error(err)
			}
		}
	}()
	for seen := 0; ; {
		select {
		case <-made:
			if seen == 0 {
				t.Error("the socket was never looked at")
			}
			return
		default:
		}
		switch at, err := os.Lstat(path); {
		case err == nil && at.Mode().Perm() != 0o600:
			t.Fatalf("it has the mode %v", at.Mode())
		case err == nil:
			seen++
		case seen > 0:
			t.Fatalf("for a moment there is none: %v", err)
		}
	}
}
