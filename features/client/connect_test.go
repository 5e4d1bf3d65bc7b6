package client_test

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/google/go-cmp/cmp"
)

// A legacy handshake is initialize and then notifications/initialized.
func TestHandshakeOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		openFake(t, s, client.Options{})
		synctest.Wait()
		if got := s.methods(); !slices.Equal(got, []string{protocol.MethodInitialize, protocol.NotificationInitialized}) {
			t.Fatalf("the client has sent %q", got)
		}
		const want = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test client","version":"1"}}`
		if diff := cmp.Diff(want, string(s.received(protocol.MethodInitialize)[0].Params)); diff != "" {
			t.Error(diff)
		}
		if s.received(protocol.NotificationInitialized)[0].ID != nil {
			t.Error("notifications/initialized has an id")
		}
	})
}

// InitTimeout is the only timeout of the handshake, and initialize is never cancelled
// (2025-11-25 basic/utilities/cancellation).
func TestInitializeIsNeverCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(frame) []string { return nil }}
		_, err := connectFake(t, s, client.Options{FailFast: true, Conn: conn.Tuning{RequestTimeout: time.Second}})
		var reason conn.Reason
		if !errors.As(err, &reason) || reason.Kind != conn.InitTimedOut {
			t.Errorf("got %v, want a conn.Reason and reason.Kind == %v", err, conn.InitTimedOut)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).Connect(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		synctest.Wait()
		if got := s.methods(); !slices.Equal(got, []string{protocol.MethodInitialize, protocol.MethodInitialize}) {
			t.Errorf("the client has sent %q", got)
		}
	})
}

func TestInitializeResultsThatCannotBeRead(t *testing.T) {
	for _, result := range []string{`null`, `[]`, `3`, `{}`, `{"protocolVersion":""}`, `{"protocolVersion":1}`} {
		_, err := connectFake(t, answering(map[string]string{protocol.MethodInitialize: result}), client.Options{FailFast: true})
		var reason conn.Reason
		if !errors.As(err, &reason) || reason.Kind != conn.HandshakeFailed || !errors.As(err, new(*client.ResultError)) {
			t.Errorf("%s: got %v, want a conn.Reason, reason.Kind == %v and a *client.ResultError", result, err, conn.HandshakeFailed)
		}
		if err != nil && strings.Contains(err.Error(), `""`) {
			t.Errorf("%s: %v", result, err)
		}
	}
}

func serverOfVersion(version string) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		if f.Method != protocol.MethodInitialize {
			return nil
		}
		return f.initialized(version, withTools)
	}}
}

// Connect gives up if waiting cannot help, for example if the server is incompatible or
// its executable is missing.
func TestConnectGivesUpOnPermanentFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := serverOfVersion("1999-01-01")
		_, err := connectFake(t, old, client.Options{})
		if !errors.Is(err, conn.ErrIncompatible) || !strings.Contains(err.Error(), "1999-01-01") || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if tries := len(old.received(protocol.MethodInitialize)); tries != 1 {
			t.Errorf("an incompatible server got %d requests, want 1", tries)
		}
		for _, missing := range []error{exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission} {
			opens := 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			_, err := client.New(clientInfo, client.Options{}).Connect(ctx, openFunc(func(context.Context) (transport.Link, error) {
				opens++
				return nil, missing
			}))
			cancel()
			if !errors.Is(err, missing) || errors.Is(err, context.DeadlineExceeded) || opens != 1 {
				t.Errorf("%v: got %v after %d attempts", missing, err, opens)
			}
		}
	})
}

// A session that was ready keeps trying if its executable is missing, because an update
// may be in progress.
func TestSessionOutlivesAMissingExecutable(t *testing.T) {
	for name, bad := range map[string]func(*fakeServer) (transport.Link, error){
		"missing": func(*fakeServer) (transport.Link, error) { return nil, exec.ErrNotFound },
		"incompatible": func(s *fakeServer) (transport.Link, error) {
			return s.Open(context.Background())
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, old := answering(map[string]string{protocol.MethodPing: `{}`}), serverOfVersion("1999-01-01")
			defer old.close()
			defer s.close()
			opens := 0
			session, err := client.New(clientInfo, client.Options{}).Connect(t.Context(), openFunc(func(ctx context.Context) (transport.Link, error) {
				if opens++; opens == 2 {
					return bad(old)
				}
				return s.Open(ctx)
			}))
			if err != nil {
				t.Fatal(err)
			}
			s.cut()
			synctest.Wait()
			if err := session.With(client.CallOptions{WaitForReady: true}).Ping(t.Context()); err != nil || opens != 3 {
				t.Errorf("%s: got %v after %d attempts", name, err, opens)
			}
			session.Close(t.Context())
		})
	}
}

// An error that the program calls final ends the session, and is its reason.
func TestFinalErrorEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		final := func(r conn.Reason) bool { return r.Kind == conn.PeerEnded }
		session := openFake(t, s, client.Options{Conn: conn.Tuning{Final: final}})
		s.cut()
		synctest.Wait()
		if state := session.Conn().State(); state != conn.Closing {
			t.Errorf("the state is %s, want %v", state, conn.Closing)
		}
	})
}

func TestConnectWithAnEndedContextDoesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var opens atomic.Int64
	_, err := client.New(clientInfo, client.Options{}).Connect(ctx, openFunc(func(context.Context) (transport.Link, error) {
		opens.Add(1)
		return nil, errors.New("refused")
	}))
	if err == nil || err.Error() != "client: connect: context canceled" || !errors.Is(err, context.Canceled) || opens.Load() != 0 {
		t.Errorf("got %v after %d attempts", err, opens.Load())
	}
}

func TestUnsupportedVersionIsRefused(t *testing.T) {
	s := answering(nil)
	_, err := connectFake(t, s, client.Options{ProtocolVersion: "2026-07-29"})
	if err == nil || !strings.Contains(err.Error(), "2026-07-29") || len(s.received(protocol.MethodInitialize)) > 0 {
		t.Errorf("got %v", err)
	}
}

func TestSessionsOfOneNameShareASupervisor(t *testing.T) {
	shared := supervisor.New(supervisor.Options{})
	defer shared.Stop(context.Background())
	options := client.Options{Supervisor: shared, Conn: conn.Tuning{Name: "search"}}
	first, second := openFake(t, answering(nil), options), openFake(t, answering(nil), options)
	other := openFake(t, answering(nil), options)
	names := []string{first.Conn().Name(), second.Conn().Name(), other.Conn().Name()}
	if want := []string{"search", "search-2", "search-3"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %v", names, want)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if name := openFake(t, answering(nil), options).Conn().Name(); name != "search-2" {
		t.Errorf("after search-2 has ended got the name %q", name)
	}
}

// If a session of another supervisor has a suffix, the next free one is used. Its name
// is refused to other sessions.
func TestSuffixesAreUniqueInARegistry(t *testing.T) {
	names := registry.New(registry.Options{})
	here := supervisor.New(supervisor.Options{Registry: names})
	defer here.Stop(context.Background())
	elsewhere := supervisor.New(supervisor.Options{Registry: names})
	defer elsewhere.Stop(context.Background())
	for _, one := range []struct {
		on         *supervisor.Supervisor
		name, want string
	}{{here, "search", "search"}, {elsewhere, "search-2", "search-2"}, {here, "search", "search-3"}, {elsewhere, "search", ""}} {
		session, err := connectFake(t, answering(nil), client.Options{Supervisor: one.on, Conn: conn.Tuning{Name: one.name}})
		if one.want == "" {
			if !errors.As(err, new(*registry.TakenError)) {
				t.Errorf("Connect returned %v, want a *registry.TakenError", err)
			}
			continue
		}
		if err != nil || session.Conn().Name() != one.want {
			t.Errorf("Connect as %s returned %v, want %s", one.name, err, one.want)
		}
	}
}

// Session.Server returns the name and the instructions that the server has sent.
func TestServerReturnsNameAndInstructions(t *testing.T) {
	result := `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"fake","version":"0"},"instructions":"be kind"}`
	got := openFake(t, answering(map[string]string{protocol.MethodInitialize: result}), client.Options{}).Server()
	if got.Instructions != "be kind" || got.Info.Name != "fake" {
		t.Errorf("got %+v, want got.Instructions == %q and got.Info.Name == %q", got, "be kind", "fake")
	}
	// A modern server need not say its name, so one that cannot be read is none.
	synctest.Test(t, func(t *testing.T) {
		s := modernServer(map[string]string{protocol.MethodDiscover: strings.Replace(discovered, `"version":"0"`, `"version":0`, 1)})
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got := session.Server(); got.Instructions != "be kind" || got.Info.Name != "" {
			t.Errorf("got %+v, want no name", got)
		}
	})
}

// An ending is a link that takes no frame any more, and says a second later why.
type ending struct {
	transport.Link
	why      error
	reported chan struct{}
}

func (e *ending) Open(context.Context) (transport.Link, error) { return e, nil }

func (e *ending) Bind(to transport.Receiver) {
	go func() {
		defer close(e.reported)
		<-time.NewTimer(time.Second).C
		to.Lost(transport.Loss{Reason: e.why})
	}()
}

func (e *ending) Send(transport.Outbound) error   { return transport.ErrClosed }
func (e *ending) Grant(transport.Stream, int)     {}
func (e *ending) End(transport.Stream)            {}
func (e *ending) Close(grace time.Duration) error { <-e.reported; return nil }

// A handshake that meets a link that is ending fails with the reason of the link, however long that takes to come.
func TestHandshakeOfALinkThatEndsTellsItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := &transport.ExitError{Command: "adder", Status: 3}
		_, err := client.New(clientInfo, client.Options{FailFast: true}).Connect(t.Context(), &ending{why: why, reported: make(chan struct{})})
		var reason conn.Reason
		if !errors.As(err, &reason) || reason.Kind != conn.Exited || !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
	})
}
