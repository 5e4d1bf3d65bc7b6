package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	stormVariable  = "AUTH_TEST_STORM" // folder of the store, and URL of the server
	stormLife      = 2 * time.Second   // of a token
	stormProcesses = 4
	stormCallers   = 64
	stormKills     = 8
)

// runStormProcess runs one process of the refresh storm: it calls the server until its
// standard input ends, and fails if it needs a login.
func runStormProcess() {
	dir, address, ok := strings.Cut(os.Getenv(stormVariable), " ")
	if !ok {
		return
	}
	store := NewFiles(dir, nil)
	a := New(Options{Resource: address, Store: store, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("calling")
	var callers sync.WaitGroup
	for range stormCallers {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := call(ctx, a, address); errors.Is(err, transport.ErrAuthRequired) {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(3)
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	callers.Wait()
	a.Close()
	os.Exit(0)
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// A rotatingServer is an authorization server that rotates refresh tokens, and ends the login if
// one is used twice.
type rotatingServer struct {
	as *authtest.Server

	kills atomic.Int64

	mu        sync.Mutex
	refreshes []time.Time
	newest    string // refresh token
	refused   int
}

// killsBefore is the context key of the number of kills before a connection was accepted.
type killsBefore struct{}

// ServeHTTP refuses a token request that was sent before a process was killed, because that
// process may have sent it, and would not get the answer. Each request has its own
// connection.
func (s *rotatingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/token" {
		s.as.ServeHTTP(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Context().Value(killsBefore{}) != s.kills.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.as.Lie(authtest.Token, func(a *authtest.Answer) {
		if a.Status != http.StatusOK {
			s.refused++
			return
		}
		s.refreshes = append(s.refreshes, time.Now())
		s.newest, _ = a.Object["refresh_token"].(string)
	})
	s.as.ServeHTTP(w, r)
}

// Processes share a store, and are killed while they wait for its lock, hold it, or have
// sent a refresh. Together they refresh once per lifetime of a token, and lose no login. No
// process is killed between the answer and the saving of a token, because then the token
// may be lost.
//
// Guarantees: G-0044.3, G-0044.12
func TestARefreshStorm(t *testing.T) {
	s := new(rotatingServer)
	server := httptest.NewUnstartedServer(s)
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, killsBefore{}, s.kills.Load())
	}
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	defer server.Close()
	protected := httptest.NewUnstartedServer(nil)
	address := "http://" + protected.Listener.Addr().String() + "/mcp"
	s.as = authtest.New(server.URL, authtest.Options{Resource: address, Life: stormLife})
	protected.Config.Handler = s.as.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	protected.Start()
	defer protected.Close()
	dir := testenv.Dir(t)
	store := NewFiles(dir, nil)
	first := New(Options{Resource: address, Store: store, Interact: consent, Offline: true})
	if err := first.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	var processes [stormProcesses]*stormProcess
	for i := range processes {
		processes[i] = startStormProcess(t, dir, address)
	}
	for n := range stormKills {
		pause(t.Context(), stormLife/3)
		s.mu.Lock() // no refresh is answered meanwhile
		waitSaved(t, store, first.key(), s.newest)
		killed := processes[n%stormProcesses]
		killed.command.Process.Kill()
		killed.command.Wait()
		acceptAll(t, server.URL)
		s.kills.Add(1)
		s.mu.Unlock()
		processes[n%stormProcesses] = startStormProcess(t, dir, address)
	}
	for _, p := range processes {
		p.stdin.Close()
		if err := p.command.Wait(); err != nil {
			t.Errorf("a process has ended with %v: %s", err, p.stderr)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused > 0 || len(s.refreshes) < 3 {
		t.Errorf("%d refreshes, and %d refused", len(s.refreshes), s.refused)
	}
	for i := range s.refreshes[1:] {
		if gap := s.refreshes[i+1].Sub(s.refreshes[i]); gap < stormLife*3/4 {
			t.Errorf("refresh %d came %v after the one before", i+2, gap)
		}
	}
}

type stormProcess struct {
	command *exec.Cmd
	stdin   io.Closer
	stderr  *strings.Builder
}

func startStormProcess(t *testing.T, dir, address string) *stormProcess {
	t.Helper()
	p := &stormProcess{command: exec.Command(os.Args[0]), stderr: new(strings.Builder)}
	p.command.Env = append(os.Environ(), stormVariable+"="+dir+" "+address)
	p.command.Stderr = p.stderr
	stdin, err := p.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// acceptAll returns when a server has accepted all earlier connections. They are accepted
// in order.
func acceptAll(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/accepted", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

// waitSaved waits until the store has a refresh token.
func waitSaved(t *testing.T, store *Files, k Key, refresh string) {
	t.Helper()
	for range 1000 {
		e, err := store.Load(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if e.Refresh.Reveal() == refresh {
			return
		}
		pause(t.Context(), 10*time.Millisecond)
	}
	t.Fatal("the newest refresh token is not saved")
}

// A racedStore lets something happen before the next call of Locked.
type racedStore struct {
	*Memory
	first func()
}

func (s *racedStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	if first := s.first; first != nil {
		s.first = nil
		first()
	}
	return s.Memory.Locked(ctx, k, f)
}

// A request that waits for the lock of its login, while another program refreshes it, is sent with that token.
//
// Guarantees: G-0044.3
func TestARefreshThatAnotherProgramHasMadeMeanwhile(t *testing.T) {
	f, s := newOffline(authtest.Options{}), &racedStore{Memory: NewMemory()}
	a := f.login(t, Options{Store: s, Interact: f.consent, Offline: true})
	f.wantCall(t, a)
	expireBy(t, a, 2*time.Hour)
	other := f.login(t, Options{Store: s.Memory})
	s.first = func() { f.wantCall(t, other) }
	sent := f.sentTokens()
	f.wantCall(t, a)
	if n := f.tokenRequests("refresh_token"); n != 1 || len(*sent) != 2 || (*sent)[0] == "" || (*sent)[0] != (*sent)[1] {
		t.Errorf("%d refreshes, and %d requests were sent", n, len(*sent))
	}
}
