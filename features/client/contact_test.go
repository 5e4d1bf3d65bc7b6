package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// playCrash acts as a server that cannot start.
func playCrash() {
	fmt.Fprintln(os.Stderr, "loading the configuration")
	fmt.Fprintln(os.Stderr, "crash: no API key")
	os.Exit(3)
}

// playEcho acts as a program that prints something and exits, and is not a server.
func playEcho() { fmt.Println("hi there") }

func role(t *testing.T, name string) *stdio.Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &stdio.Command{Path: self, Env: []string{roleVariable + "=" + name}}
}

// responds answers every request in the same way.
func responds(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// A waiting is a way to wait for the first server.
type waiting func(*testing.T, context.Context, *client.Client, transport.Transport) error

func connects(_ *testing.T, ctx context.Context, c *client.Client, over transport.Transport) error {
	_, err := c.Connect(ctx, over)
	return err
}

// awaitsFirst waits for the first server of a session that goes on if there is none.
func awaitsFirst(t *testing.T, ctx context.Context, c *client.Client, over transport.Transport) error {
	session, err := c.Start(ctx, "started", over)
	if err != nil {
		t.Error(err)
		return err
	}
	err = session.AwaitFirst(ctx)
	if state := session.Status().State; state == conn.Closing || (err == nil) != (state == client.Ready) {
		t.Errorf("the session is %s after %v", state, err)
	}
	if err := session.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
	return err
}

// Connect fails immediately if waiting cannot help. Here its context has no deadline,
// and the backoff is an hour.
//
// Guarantees: G-0037.1, G-0037.3
func TestConnectFailsImmediatelyOnPermanentFailure(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	defer secure.Close()
	for name, test := range map[string]struct {
		over  transport.Transport
		serve http.HandlerFunc
		kind  client.ReasonKind
		is    func(error) bool
	}{
		"a child that exits": {over: role(t, "crash"), kind: conn.Exited, is: func(err error) bool {
			exit := new(transport.ExitError)
			return errors.As(err, &exit) && exit.Status == 3
		}},
		"not a server":               {over: role(t, "echo"), kind: conn.Exited},
		"a program that is missing":  {over: &stdio.Command{Path: "no-such-program"}, kind: conn.ExecutableMissing},
		"not a program":              {over: &stdio.Command{Path: text(t)}, kind: conn.OpenFailed},
		"an unknown certificate":     {over: &streamable.Client{URL: secure.URL}, kind: conn.HandshakeFailed, is: is(transport.ErrUntrusted)},
		"the same, by HTTP+SSE":      {over: &sse.Client{URL: secure.URL}, kind: conn.OpenFailed, is: is(transport.ErrUntrusted)},
		"https where http is spoken": {serve: responds(200, "text/html", "hello"), over: &streamable.Client{URL: "https"}, kind: conn.HandshakeFailed, is: is(transport.ErrUntrusted)},
		"401":                        {serve: responds(401, "text/plain", "who?"), kind: conn.AuthRequired, is: isStatus(401)},
		"403":                        {serve: responds(403, "text/plain", "no"), kind: conn.AuthRequired, is: isStatus(403)},
		"404":                        {serve: responds(404, "text/plain", "not found"), kind: conn.HandshakeFailed, is: isStatus(404)},
		"405":                        {serve: responds(405, "text/plain", ""), kind: conn.HandshakeFailed, is: isStatus(405)},
		"501":                        {serve: responds(501, "text/html", "Unsupported method"), kind: conn.HandshakeFailed, is: isStatus(501)},
		"a web page":                 {serve: responds(200, "text/html", "<html>"), kind: conn.HandshakeFailed, is: isStatus(200)},
		"JSON but not JSON-RPC":      {serve: responds(200, "application/json", `{"hello":"world"}`), kind: conn.HandshakeFailed},
		"a redirect":                 {serve: http.RedirectHandler("https://elsewhere.invalid/", http.StatusFound).ServeHTTP, kind: conn.HandshakeFailed, is: isStatus(302)},
		"another revision":           {serve: answersInitialize("1999-01-01"), kind: conn.Incompatible, is: is(conn.ErrIncompatible)},
	} {
		t.Run(name, func(t *testing.T) {
			over := test.over
			if test.serve != nil {
				site := httptest.NewServer(test.serve)
				defer site.Close()
				to := &streamable.Client{URL: site.URL}
				if over != nil {
					to.URL = strings.Replace(site.URL, "http:", "https:", 1)
				}
				over = to
			}
			ctx, cancel := context.WithCancel(t.Context()) // no deadline
			defer cancel()
			hang := time.AfterFunc(time.Minute, cancel)
			defer hang.Stop()
			_, err := client.New(clientInfo, client.Options{Conn: conn.Tuning{BackoffMin: time.Hour}}).Connect(ctx, over)
			failed := new(client.ConnectError)
			if !errors.As(err, &failed) || failed.Last.Kind != test.kind || failed.Attempts < 1 || failed.Since.IsZero() {
				t.Fatalf("Connect returned %v (%+v)", err, failed)
			}
			if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.Canceled) || test.is != nil && !test.is(err) {
				t.Errorf("Connect returned %v", err)
			}
		})
	}
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func isStatus(status int) func(error) bool {
	return func(err error) bool {
		refused := new(transport.StatusError)
		return errors.As(err, &refused) && refused.Status == status
	}
}

// text returns the path of an executable file that is not a program.
func text(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/text"
	if err := os.WriteFile(path, []byte{0, 1, 2, 3}, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// answersInitialize is a legacy server of one revision over HTTP.
func answersInitialize(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), protocol.MethodInitialize) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		id := strings.Split(strings.SplitN(string(body), `"id":`, 2)[1], ",")[0]
		responds(200, "application/json", `{"jsonrpc":"2.0","id":`+id+`,"result":{"protocolVersion":"`+version+`","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)(w, r)
	}
}

// Connect tries again after temporary failures: a refused connection, a server error,
// an overloaded server.
//
// Guarantees: G-0037.2
func TestConnectWaitsAfterTemporaryFailure(t *testing.T) {
	real := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{})
	defer real.Close(0)
	var asked atomic.Int64
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			responds(502, "text/html", "bad gateway")(w, r)
		case 2:
			responds(503, "text/plain", "starting")(w, r)
		case 3:
			responds(429, "text/plain", "slowly")(w, r)
		default:
			real.ServeHTTP(w, r)
		}
	}))
	defer site.Close()
	site.Listener.Close()
	alone := listenAlone(t)
	address := alone.Addr().String()
	alone.Close() // refused at first
	var refusals int
	hooks := telemetry.Hooks{Transition: func(e telemetry.Transition) {
		if e.To != string(conn.Backoff) || refusals > 1 {
			return
		}
		if refusals++; refusals == 2 {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			site.Listener = listener
			site.Start()
		}
	}}
	o := client.Options{Conn: conn.Tuning{BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond, Hooks: hooks}}
	session, err := client.New(clientInfo, o).Connect(timeoutContext(t), specification.WatchClient(t, &streamable.Client{URL: "http://" + address}))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	if epoch := session.Status().Epoch; epoch < 4 { // two attempts were refused, and the others try twice each
		t.Errorf("ready in attempt %d, want at least 4", epoch)
	}
}

// fails is a transport whose attempts fail with each of these errors, and then always with the
// last one.
func fails(each ...error) transport.Transport {
	return openFunc(func(context.Context) (transport.Link, error) {
		err := each[0]
		if len(each) > 1 {
			each = each[1:]
		}
		return nil, err
	})
}

// asChild makes another transport look like one that starts a process.
type asChild struct{ transport.Transport }

func (asChild) Traits() transport.Traits { return transport.Traits{StartsProcess: true} }

// Connect waits until its context ends. If the context has no deadline, it waits as long as the
// kind of failure suggests. So does AwaitFirst.
//
// Guarantees: G-0037.2, G-0037.3, G-0037.4
func TestConnectGivesUp(t *testing.T) {
	mute := func() transport.Transport { return &fakeServer{answer: func(frame) []string { return nil }} }
	refused := func() transport.Transport { return fails(syscall.ECONNREFUSED) }
	busy := &transport.StatusError{Status: 503}
	for name, test := range map[string]struct {
		deadline, init, want time.Duration
		over                 func() transport.Transport
		text                 string
	}{
		"refused": {want: 5 * time.Second, over: refused, text: "connection refused; gave up after 3 attempts since 00:00:00: no server within 5s"},
		"no such host": {
			want: 5 * time.Second, text: "no such host",
			over: func() transport.Transport {
				return fails(&net.DNSError{Name: "nowhere", Err: "no such host", IsNotFound: true})
			},
		},
		"silence":                     {want: 15 * time.Second, over: mute, text: "gave up after 2 attempts since 00:00:00: no server within 15s"},
		"503":                         {want: 15 * time.Second, over: func() transport.Transport { return fails(busy) }, text: "HTTP status 503"},
		"503, then refused":           {want: 15 * time.Second, over: func() transport.Transport { return fails(busy, syscall.ECONNREFUSED) }},
		"InitTimeout":                 {want: 6 * time.Minute, init: 3 * time.Minute, over: refused, text: "no server within 6m0s"},
		"InitTimeout, silence":        {want: 24 * time.Second, init: 12 * time.Second, over: mute, text: "no server within 24s"},
		"a child that is silent":      {want: time.Minute, over: func() transport.Transport { return asChild{mute()} }, text: "no server within 1m0s"},
		"a child that sends only one": {want: 15 * time.Second, over: func() transport.Transport { return asChild{refusesToDiscover()} }, text: "no server within 15s"},
		"a child that cannot be started now": {want: 15 * time.Second, over: func() transport.Transport {
			return asChild{fails(&transport.StartError{Err: passingError{}})}
		}, text: "no server within 15s"},
		"a child that cannot connect":     {want: 5 * time.Second, over: func() transport.Transport { return asChild{refused()} }, text: "no server within 5s"},
		"a deadline":                      {want: 7 * time.Second, deadline: 7 * time.Second, over: refused, text: "since 00:00:00: context deadline exceeded"},
		"a deadline, with a silent child": {want: 2 * time.Second, deadline: 2 * time.Second, over: func() transport.Transport { return asChild{mute()} }},
		"no failure yet": {
			want: time.Second, deadline: time.Second, over: mute,
			text: "client: connect: the server has not answered; gave up after 1 attempt since 00:00:00: context deadline exceeded",
		},
	} {
		givesUp := func(t *testing.T, wait waiting) {
			synctest.Test(t, func(t *testing.T) {
				over := test.over()
				child, _ := over.(asChild)
				for _, silent := range []transport.Transport{over, child.Transport} {
					if silent, ok := silent.(*fakeServer); ok {
						defer silent.close()
					}
				}
				ctx, cancel, began := t.Context(), context.CancelFunc(func() {}), time.Now()
				if test.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
				}
				defer cancel()
				err := wait(t, ctx, client.New(clientInfo, client.Options{Conn: conn.Tuning{InitTimeout: test.init}}), over)
				if took := time.Since(began); took != test.want {
					t.Errorf("Connect took %v, want %v", took, test.want)
				}
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), test.text) {
					t.Errorf("Connect returned %v, want the error %v and %v in it", err, context.DeadlineExceeded, test.text)
				}
				failed := new(client.ConnectError)
				if !errors.As(err, &failed) || !failed.Since.Equal(began) || failed.Attempts == 0 {
					t.Errorf("Connect returned %+v, want a *client.ConnectError since %v", failed, began)
				}
			})
		}
		t.Run(name, func(t *testing.T) { givesUp(t, connects) })
		t.Run(name+", AwaitFirst", func(t *testing.T) { givesUp(t, awaitsFirst) })
	}
}

// refusesToDiscover is a server that answers server/discover, and then nothing.
func refusesToDiscover() *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		if f.Method != protocol.MethodDiscover {
			return nil
		}
		return []string{`{"jsonrpc":"2.0","id":` + string(f.ID) + `,"error":{"code":-32601,"message":"no"}}`}
	}}
}

// A child that downloads and installs itself for 42 s is not killed meanwhile. So it is ready in
// its first incarnation, for Connect and for Start.
//
// Guarantees: G-0001.21, G-0037.2
func TestChildMayInstallItselfFirst(t *testing.T) {
	connecting := map[string]func(*testing.T, *client.Client, transport.Transport) (*client.Session, error){
		"Connect": func(t *testing.T, c *client.Client, over transport.Transport) (*client.Session, error) {
			return c.Connect(t.Context(), over)
		},
		"Start": func(t *testing.T, c *client.Client, over transport.Transport) (*client.Session, error) {
			session, err := c.Start(t.Context(), "slow", over)
			if err == nil {
				err = session.AwaitReady(t.Context())
			}
			return session, err
		},
		"AwaitFirst": func(t *testing.T, c *client.Client, over transport.Transport) (*client.Session, error) {
			session, err := c.Start(t.Context(), "slow", over)
			if err == nil {
				err = session.AwaitFirst(t.Context())
			}
			return session, err
		},
	}
	for name, connect := range connecting {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				slow := answering(nil)
				answer := slow.answer
				slow.answer = func(f frame) []string {
					pass(time.Until(began.Add(42 * time.Second)))
					return answer(f)
				}
				defer slow.close()
				session, err := connect(t, client.New(clientInfo, client.Options{}), asChild{slow})
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close(t.Context())
				if status := session.Conn().Status(); status.Epoch != 1 || !status.Heard {
					t.Errorf("after 42 s got %+v, want the first incarnation", status)
				}
			})
		})
	}
}

// Connect tries again if descriptors are missing, and fails immediately if the system
// refuses the program itself.
//
// Guarantees: G-0037.1, G-0037.2
func TestConnectWaitsForResources(t *testing.T) {
	for failure, hopeless := range map[error]bool{syscall.EMFILE: false, syscall.EAGAIN: false, syscall.ENOEXEC: true} {
		synctest.Test(t, func(t *testing.T) {
			_, err := client.New(clientInfo, client.Options{}).Connect(t.Context(), openFunc(func(context.Context) (transport.Link, error) {
				return nil, &transport.StartError{Command: "x", Err: failure}
			}))
			if errors.Is(err, context.DeadlineExceeded) == hopeless || !errors.Is(err, failure) {
				t.Errorf("%v: Connect returned %v", failure, err)
			}
		})
	}
}

// A session that was given no name is named after its command or its host, with a
// suffix if the name is taken.
func TestSessionsAreNamedByTheirTransport(t *testing.T) {
	w := newSite(t, newServer(server.Options{}))
	c := client.New(clientInfo, client.Options{})
	t.Cleanup(func() { c.Close(context.Background()) })
	names := make(chan string, 8)
	var connecting sync.WaitGroup
	for range cap(names) {
		connecting.Go(func() {
			session, err := c.Connect(timeoutContext(t), &streamable.Client{URL: "http://user:secret@" + w.address + "/mcp?key=secret"})
			if err != nil {
				t.Error(err)
				names <- ""
				return
			}
			names <- session.Name()
		})
	}
	connecting.Wait()
	close(names)
	given := make(map[string]bool)
	for name := range names {
		given[name] = true
		if name != w.address && !strings.HasPrefix(name, w.address+"-") {
			t.Errorf("got a session named %q", name)
		}
	}
	if len(given) != cap(names) || !given[w.address] {
		t.Errorf("got the sessions %v", given)
	}
	if _, ok := c.Session(w.address); !ok {
		t.Error("the session is not found by its name, want it")
	}

	_, err := c.Connect(timeoutContext(t), role(t, "crash"))
	var failed *client.ConnectError
	if self, _ := os.Executable(); !errors.As(err, &failed) || failed.Name != filepath.Base(self) {
		t.Errorf("got the failed session %+v", failed)
	}
}

// The JSON of a ConnectError contains its text, and its parts as words.
func TestConnectErrorInJSON(t *testing.T) {
	_, err := client.New(clientInfo, client.Options{}).Connect(timeoutContext(t), role(t, "crash"))
	raw, failed := json.Marshal(err)
	var got struct {
		Error    string
		Name     string
		Attempts int
		Since    time.Time
		Last     struct{ Kind, Error string }
	}
	if failed != nil || json.Unmarshal(raw, &got) != nil {
		t.Fatalf("%s, %v, want failed == nil and json.Unmarshal(raw, &got) == nil", raw, failed)
	}
	exited := `exited with status 3: crash: no API key`
	if got.Error != err.Error() || got.Name == "" || got.Attempts < 1 || got.Since.IsZero() || got.Last.Kind != "exited" || !strings.HasSuffix(got.Last.Error, exited) {
		t.Errorf("got %s", raw)
	}
	text, attempts, retried := strings.Cut(err.Error(), ", after ")
	if strings.Contains(err.Error(), "\n") || !strings.HasSuffix(text, exited) || retried != strings.HasPrefix(attempts, "2 attempts since ") {
		t.Errorf("the error is %q", err)
	}
}

// Connect makes its first attempt on its own goroutine if the transport allows it. It
// still returns when its context ends, with the same error.
//
// Guarantees: G-0054.1
func TestConnectReturnsFromAServerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := inmem.New(func(transport.Link) {}, inmem.Options{})
		for _, fails := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := client.New(clientInfo, client.Options{FailFast: fails}).Connect(ctx, silent)
			cancel()
			var failed *client.ConnectError
			if !errors.As(err, &failed) || !errors.Is(failed.Err, context.DeadlineExceeded) || failed.Last.Kind != "" || failed.Attempts != 1 {
				t.Fatalf("got %v", err)
			}
		}
	})
}
