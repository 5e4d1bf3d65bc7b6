package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// steadyServer returns a server whose only tool reports its key, and then works for 2 ms.
func steadyServer(report func(key string)) *server.Server {
	s := server.New(serverInfo, server.Options{Conn: conn.Tuning{DrainGrace: time.Minute}})
	server.AddTool(s, protocol.Tool{Name: "work"}, func(_ context.Context, in struct{ Key string }) (string, error) {
		report(in.Key)
		<-time.After(2 * time.Millisecond)
		return in.Key, nil
	})
	return s
}

// addHold adds a tool that works until it is released. So long a shutdown of the server lasts.
func addHold(s *server.Server, report func(key string), released <-chan struct{}) {
	server.AddTool(s, protocol.Tool{Name: "hold"}, func(_ context.Context, in struct{ Key string }) (string, error) {
		report(in.Key)
		<-released
		return in.Key, nil
	})
}

// playSteady serves on standard input and output. It reports each call that runs on a connection
// to the test, and shuts down in good order when the test sends a byte on that. The tool hold works
// until the test sends nothing more.
func playSteady() {
	link, err := net.Dial("tcp", os.Getenv(addressVariable))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	released := make(chan struct{})
	go func() {
		link.Read(make([]byte, 1))
		cancel()
		link.Read(make([]byte, 1))
		close(released)
	}()
	var lock sync.Mutex
	report := func(key string) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintln(link, key)
	}
	s := steadyServer(report)
	addHold(s, report, released)
	if err := s.Run(ctx, &stdio.Server{}); err != nil {
		panic(err)
	}
}

// A steady is a server that reports which calls ran, and can be shut down.
type steady struct {
	t    *testing.T
	mu   sync.Mutex
	ran  map[string]int
	runs atomic.Int64

	to      transport.Transport
	version string
	stop    func()        // begins to shut the first server down
	release func()        // ends the call of the tool hold, which keeps the server that was stopped until then
	gone    chan struct{} // closed when the first server has ended, and over HTTP the next one is up
	end     func()        // waits for what the last server reports; the client is closed
}

func (s *steady) report(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[key]++
	s.runs.Add(1)
}

// overStdio makes each server a child process.
func (s *steady) overStdio() {
	servers := listen(s.t)
	links := make(chan *net.TCPConn, 10)
	gone := sync.OnceFunc(func() { close(s.gone) })
	s.gone = make(chan struct{})
	var reading sync.WaitGroup
	go func() {
		for {
			link, err := servers.Accept()
			if err != nil {
				return
			}
			links <- link.(*net.TCPConn)
			reading.Go(func() {
				for lines := bufio.NewScanner(link); lines.Scan(); {
					s.report(lines.Text())
				}
				gone()
			})
		}
	}()
	command := role(s.t, "steady")
	command.Env = append(command.Env, addressVariable+"="+servers.Addr().String(),
		"GORACE=atexit_sleep_ms=0") // the race detector would keep a server for a second that has ended
	s.to = command
	s.stop = func() {
		link := <-links
		s.release = func() { link.CloseWrite() }
		link.Write([]byte{0})
	}
	s.end = reading.Wait
}

// overHTTP serves each server at the same address.
func (s *steady) overHTTP() {
	address := "127.0.0.1:0"
	var shutDown func()
	released := make(chan struct{})
	s.gone = make(chan struct{})
	begin := func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			s.t.Error(err)
			return
		}
		address = listener.Addr().String()
		ctx, cancel := context.WithCancel(context.Background())
		calls := steadyServer(s.report)
		addHold(calls, s.report, released)
		handler, ended := streamable.NewHandler(calls, streamable.HandlerOptions{ShutdownGrace: time.Minute}), make(chan error)
		go func() { ended <- handler.Serve(ctx, &http.Server{Handler: handler}, listener) }()
		shutDown = func() {
			cancel()
			if err := <-ended; err != nil {
				s.t.Errorf("the server ended with %v, want nil", err)
			}
		}
	}
	begin()
	s.to = &streamable.Client{URL: "http://" + address}
	s.stop = func() {
		go func() {
			defer close(s.gone)
			shutDown()
			begin()
		}()
	}
	s.release = func() { close(released) }
	s.end = func() {
		<-s.gone
		shutDown()
	}
}

// While callers keep a server busy, it shuts down in good order. No call is left in doubt: the server
// has executed exactly those that it answered, and the callers know of all others that it did not. With
// Retries, calls that it refuses are executed by the next server.
//
// Guarantees: G-0009.12, G-0023.12
func TestGracefulShutdownLeavesNoCallInDoubt(t *testing.T) {
	for name, begin := range map[string]func(*steady){"stdio": (*steady).overStdio, "http": (*steady).overHTTP} {
		for _, version := range []string{protocol.Version20251125, protocol.Version20260728} {
			for _, retries := range []int{0, 10} {
				t.Run(fmt.Sprintf("%s/%s/%d retries", name, version, retries), func(t *testing.T) {
					s := &steady{t: t, ran: make(map[string]int), version: version}
					begin(s)
					s.load(retries)
				})
			}
		}
	}
}

const steadyCallers = 24

// load calls the server while it shuts down, and compares what the callers were told with what it ran.
// Callers without retries end with their first error.
//
// How long a real process takes to notice something depends on the machine, and so does whether a request
// still comes while the server refuses. So a server refuses until each caller was refused once, and callers
// with retries then wait until it has ended.
func (s *steady) load(retries int) {
	ctx := timeoutContext(s.t)
	session, err := client.New(clientInfo, client.Options{ProtocolVersion: s.version}).Connect(ctx, s.to)
	if err != nil {
		s.t.Fatal(err)
	}
	var mu sync.Mutex
	told := make(map[string]error)
	var over atomic.Bool
	var refusals atomic.Int64 // the callers that were refused
	var calling sync.WaitGroup
	call := func(tool, key string, o client.CallOptions) error {
		_, err := client.Call[string](ctx, session.With(o), tool, map[string]string{"Key": key})
		mu.Lock()
		defer mu.Unlock()
		told[key] = err
		return err
	}
	calling.Go(func() { call("hold", "hold", client.CallOptions{}) })
	s.await(ctx, &s.runs, 1)
	for caller := range steadyCallers {
		refused := sync.OnceFunc(func() { refusals.Add(1) })
		options := client.CallOptions{Retries: retries, WaitForReady: retries > 0}
		options.OnAttempt = func(conn.Attempt) {
			refused()
			<-s.gone
		}
		calling.Go(func() {
			for n := 0; !over.Load(); n++ {
				if err := call("work", fmt.Sprintf("%d/%d", caller, n), options); err != nil && retries == 0 {
					refused()
					return
				}
			}
		})
	}
	s.await(ctx, &s.runs, 500)
	s.stop()
	s.await(ctx, &refusals, steadyCallers)
	s.release()
	if retries > 0 {
		s.await(ctx, &s.runs, s.runs.Load()+500)
		over.Store(true)
	}
	calling.Wait()
	if err := session.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.end()
	refused := 0
	for key, err := range told {
		switch ran := s.ran[key]; {
		case err == nil && ran == 1:
		case client.NotExecuted(err) && ran == 0 && (retries == 0 || !isOverload(err)):
			refused++ // with retries: the next server did not listen yet
		default:
			s.t.Errorf("a call that ran %d times got %v", ran, err)
		}
	}
	if retried := session.Conn().Stats().Retries; retries > 0 && retried == 0 || retries == 0 && refused == 0 {
		s.t.Errorf("of %d calls, %d were refused and %d retried, want some", len(told), refused, retried)
	}
}

// isOverload reports whether a server has refused a call for now.
func isOverload(err error) bool {
	var status *transport.StatusError
	return errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}) || errors.As(err, &status) && status.Overloaded()
}

// await waits until a count of events is as high.
func (s *steady) await(ctx context.Context, count *atomic.Int64, want int64) {
	s.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for count.Load() < want {
		select {
		case <-look.C:
		case <-ctx.Done():
			s.t.Fatalf("got %d runs or refusals in time, want %d", count.Load(), want)
		}
	}
}

// A pipeListener accepts the connections of dial, which need no network.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// While a node shuts down, a long call of one client keeps it running. The other clients do not wait for
// that: their sessions there have ended, and they soon have new ones at another node. What they call
// meanwhile is not executed.
//
// Guarantees: G-0009.14
func TestClientsLeaveANodeThatServesALongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const long = 6 * time.Second
		nodes := make(map[string]*streamable.Handler)
		forward := func(name string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { nodes[name].ServeHTTP(w, r) })
		}
		for name, other := range map[string]string{"a": "b", "b": "a"} {
			s := server.New(serverInfo, server.Options{})
			server.AddTool(s, protocol.Tool{Name: "work"}, func(_ context.Context, in struct{ Millis int64 }) (string, error) {
				<-time.After(time.Duration(in.Millis) * time.Millisecond)
				return name, nil
			})
			router := &streamable.Nodes{Self: name, Others: map[string]http.Handler{other: forward(other)}}
			nodes[name] = streamable.NewHandler(s, streamable.HandlerOptions{Router: router})
		}
		var balance atomic.Value // the node that gets what no session decides
		balance.Store("a")
		balancer := newPipeListener()
		front := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			nodes[balance.Load().(string)].ServeHTTP(w, r)
		})}
		var serving sync.WaitGroup
		serving.Go(func() { front.Serve(balancer) })
		connections := &http.Transport{DialContext: balancer.dial}
		open := func() *client.Session {
			to := &streamable.Client{URL: "http://balancer/", HTTP: &http.Client{Transport: connections}}
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).Connect(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			return session
		}
		call := func(session *client.Session, takes time.Duration) (string, error) {
			return client.Call[string](t.Context(), session, "work", map[string]int64{"Millis": takes.Milliseconds()})
		}
		busy, other := open(), open()
		serving.Go(func() {
			if node, err := call(busy, long); node != "a" || err != nil {
				t.Errorf("the long call: got %q, %v; want an answer of node a", node, err)
			}
		})
		synctest.Wait()
		balance.Store("b")
		begun := time.Now()
		serving.Go(func() {
			if err := nodes["a"].Shutdown(t.Context(), nil); err != nil {
				t.Errorf("the shutdown of node a: got %v, want no error", err)
			}
		})
		synctest.Wait()
		for {
			node, err := call(other, 0)
			if err == nil {
				if took := time.Since(begun); node != "b" || took >= long/2 {
					t.Errorf("the other client: got an answer of node %s after %v, want one of node b long before the long call ends, after %v", node, took, long)
				}
				break
			}
			if !client.NotExecuted(err) {
				t.Errorf("the other client: got %v, want that the call was not executed", err)
			}
			if time.Since(begun) > 2*long {
				t.Errorf("the other client: got %v after %v, want an answer of node b", err, time.Since(begun))
				break
			}
			<-time.After(time.Second / 2)
		}
		busy.Close(t.Context())
		other.Close(t.Context())
		if err := nodes["b"].Shutdown(t.Context(), front); err != nil {
			t.Errorf("the shutdown of node b: got %v, want no error", err)
		}
		connections.CloseIdleConnections()
		serving.Wait()
	})
}
