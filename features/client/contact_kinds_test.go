package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

// A passingError may not occur again.
type passingError struct{}

func (passingError) Error() string   { return "too many processes" }
func (passingError) Temporary() bool { return true }

func withStatus(status int) error { return &transport.StatusError{Status: status} }

// Whether a failure is final depends on the failure, and not on the attempt: the third in a row, which is called crash-looping, is judged as
// the first. Connect returns at the attempt that cannot help, and otherwise waits for the end of its context. So does AwaitFirst.
//
// Guarantees: G-0037.1, G-0037.4
func TestWhichFailuresEndConnect(t *testing.T) {
	failures := map[string]struct {
		open     error
		code     int64 // of the answer to initialize, if there is no such error
		hopeless bool
	}{
		"not trusted":               {transport.ErrUntrusted, 0, true},
		"no login":                  {transport.ErrAuthRequired, 0, true},
		"cannot be started":         {&transport.StartError{Err: errors.New("no program")}, 0, true},
		"cannot be started now":     {&transport.StartError{Err: passingError{}}, 0, false},
		"anything else":             {errors.New("no route"), 0, false},
		"method not found":          {nil, jsonrpc.CodeMethodNotFound, true},
		"invalid params":            {nil, jsonrpc.CodeInvalidParams, true},
		"invalid request":           {nil, jsonrpc.CodeInvalidRequest, true},
		"an internal error":         {nil, jsonrpc.CodeInternalError, false},
		"an error of the server's":  {nil, 7, false},
		"an answer to nothing (-1)": {nil, -1, false},
	}
	for _, status := range []int{200, 302, 400, 401, 403, 404, 405, 410, 499, 501, 505} {
		failures[fmt.Sprint(status)] = failures["not trusted"]
		f := failures[fmt.Sprint(status)]
		f.open = withStatus(status)
		failures[fmt.Sprint(status)] = f
	}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504, 506, 599} {
		f := failures["anything else"]
		f.open = withStatus(status)
		failures[fmt.Sprint(status)] = f
	}
	for name, test := range failures {
		for i, wait := range []waiting{connects, connects, awaitsFirst, awaitsFirst} {
			before := i % 2 * 2 // failed attempts that may pass
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := answeringWith(protocol.MethodPing, nil)
					s.answer = func(f frame) []string {
						if f.Method != protocol.MethodInitialize {
							return nil
						}
						return []string{f.fault(test.code, `null`)}
					}
					defer s.close()
					attempts := 0
					over := openFunc(func(ctx context.Context) (transport.Link, error) {
						switch attempts++; {
						case attempts <= before:
							return nil, errors.New("no route")
						case test.open != nil:
							return nil, test.open
						default:
							return s.Open(ctx)
						}
					})
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					began := time.Now()
					err := wait(t, ctx, client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}), over)
					var failed *client.ConnectError
					if !errors.As(err, &failed) || failed.Attempts != attempts {
						t.Fatalf("got %#v after %d attempts", err, attempts)
					}
					if hopeless := time.Since(began) < 10*time.Minute; hopeless != test.hopeless || hopeless && attempts != before+1 || errors.Is(err, client.ErrTimedOut) == hopeless {
						t.Errorf("Connect returned %v after %d attempts in %v, want it to give up at attempt %d: %t", err, attempts, time.Since(began), before+1, test.hopeless)
					}
					if test.open != nil && !errors.Is(failed.Last, test.open) {
						t.Errorf("the last failure is %v, want %v", failed.Last, test.open)
					}
				})
			})
		}
	}
}

// When another session finds a server, a session tries at once if its own attempt has failed because no server was there, in the first
// attempt and in later ones. A server that has answered it, or has asked it to wait, is there.
//
// Guarantees: G-0001.19, G-0001.14
func TestWhichFailuresAreOutages(t *testing.T) {
	refuses := func(f frame) []string { return []string{f.fault(-32603, `null`)} }
	for name, test := range map[string]struct {
		open    error
		answer  func(frame) []string
		outages bool
	}{
		"refused":               {errors.New("connection refused"), nil, true},
		"502":                   {withStatus(502), nil, true},
		"503":                   {withStatus(503), nil, true},
		"504":                   {withStatus(504), nil, true},
		"501":                   {withStatus(501), nil, false},
		"505":                   {withStatus(505), nil, false},
		"500":                   {withStatus(500), nil, false},
		"429":                   {withStatus(429), nil, false},
		"401":                   {withStatus(401), nil, false},
		"502, later":            {&transport.StatusError{Status: 502, RetryAfter: time.Second}, nil, false},
		"a server that refuses": {nil, refuses, false},
		"a server that is mute": {nil, noResponse, true},
	} {
		for _, attempts := range []int64{1, 3} {
			t.Run(fmt.Sprint(name, attempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					bad, good := newFlakyEndpoint("https://a", test.open), newFlakyEndpoint("https://a", nil)
					defer bad.close()
					defer good.close()
					if bad.out.Store(test.open != nil); test.open == nil {
						bad.answer = test.answer
					}
					c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour}})
					session, err := c.Start(t.Context(), "bad", bad)
					if err != nil {
						t.Fatal(err)
					}
					for bad.opens.Load() < attempts || session.Status().State != conn.Backoff {
						pass(time.Second)
					}
					pass(time.Minute)
					before := bad.opens.Load()
					if _, err := c.Connect(t.Context(), good); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if woken := bad.opens.Load() - before; woken != map[bool]int64{true: 1}[test.outages] {
						t.Errorf("%d attempts were made at once, want one: %t", woken, test.outages)
					}
					_ = c.Close(t.Context()) // the session has no server
				})
			})
		}
	}
}

// atEndpointA is a transport to the endpoint https://a.
type atEndpointA struct{ transport.Transport }

func (atEndpointA) Traits() transport.Traits { return transport.Traits{Endpoint: "https://a"} }

// A session that has had a server, and lost it, does not try again because another session finds one: its own may be broken.
//
// Guarantees: G-0001.19
func TestALostServerIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, good := newFlakyEndpoint("https://a", nil), newFlakyEndpoint("https://a", nil)
		defer broken.close()
		defer good.close()
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{BackoffMin: time.Hour}})
		session, err := c.Connect(t.Context(), atEndpointA{fault.New(broken, fault.Plan{Faults: []fault.Fault{{Kind: fault.Die, Direction: fault.Outbound, At: []int{3}}}})})
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Ping(t.Context()); !errors.Is(err, client.ErrLost) {
			t.Fatalf("the link breaks at the first call: got %v, want %v", err, client.ErrLost)
		}
		synctest.Wait()
		if why := session.Status().LastFailure; why.Kind != conn.LinkBroken {
			t.Errorf("the server was lost for %v, want %v", why, conn.LinkBroken)
		}
		if _, err := c.Connect(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := broken.opens.Load(); n != 1 {
			t.Errorf("got %d attempts, want 1", n)
		}
		_ = c.Close(t.Context()) // one session has no server
	})
}

// Sessions over transports that have no name have none, as many as there are, and no suffix either.
func TestSessionsWithoutAName(t *testing.T) {
	s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
	defer s.close()
	c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
	var names []string
	for range 3 {
		session, err := c.Connect(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, session.Name())
	}
	if !slices.Equal(names, []string{"", "", ""}) {
		t.Errorf("the sessions are called %q, want no names", names)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Close waits for the events that wait for a slow program: it gets each of them.
//
// Guarantees: G-0030.9
func TestCloseWaitsForASlowProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{OnEvent: func(ctx context.Context, _ *client.Session, e client.Event) {
			got = append(got, describe(e))
			timer := time.NewTimer(time.Second)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done(): // Close does not wait for the return from the last event
			}
		}})
		for _, frame := range []string{announcement, updated("file:///a"), updated("file:///b"), updated("file:///c")} {
			s.sendFrame(frame)
		}
		synctest.Wait()
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []string{"tools", "updated file:///a", "updated file:///b", "updated file:///c"}; !slices.Equal(got, want) {
			t.Errorf("the program got %q, want %q", got, want)
		}
	})
}

// Changes begins with the present status as it is, also while a session that has never been ready tries again.
func TestChangesBeginWithThePresentStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, hold := 0, make(chan struct{})
		over := openFunc(func(context.Context) (transport.Link, error) {
			if attempts++; attempts > 1 {
				<-hold
			}
			return nil, errors.New("connection refused")
		})
		c := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{BackoffMin: time.Minute, InitTimeout: time.Hour}})
		session, err := c.Start(t.Context(), "s", over)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []conn.State{conn.Backoff, conn.Starting} {
			synctest.Wait()
			for status := range session.Changes(t.Context()) {
				if want := session.Status(); status.State != state || status.Reason.Error() != want.Reason.Error() || status.Reason.Kind != want.Reason.Kind || status.Epoch != want.Epoch {
					t.Errorf("Changes begins with %+v, want %+v, which is %s", status, want, state)
				}
				break
			}
			pass(2 * time.Minute)
		}
		close(hold)
		_ = c.Close(t.Context()) // the session has no server
	})
}
