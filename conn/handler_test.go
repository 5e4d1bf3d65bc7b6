package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// When the answer of a handler is sent, the context of the handler has ended.
func TestContextOfAHandlerEndsWithIt(t *testing.T) {
	served := make(chan context.Context, 1)
	client := serveInMemory(t, runAccepted, handler{"m": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
		served <- ctx
		return nil, ctx.Err()
	}})
	if _, err := client.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
		t.Fatal(err)
	}
	if ctx := <-served; ctx.Err() == nil {
		t.Fatal("the context has not ended")
	}
}

// A value appends its own JSON, or fails as its text says.
type value string

func (v value) SizeJSON() int { return len(v) }

func (v value) AppendJSON(dst []byte) ([]byte, error) {
	switch v {
	case "error":
		return nil, &jsonrpc.Error{Code: 7, Message: "no"}
	case "panic":
		panic("no")
	}
	return append(dst, v...), nil
}

// Params and results that append themselves are sent as they are. If a result fails to append itself,
// the peer gets an error, as for a handler that fails.
func TestValuesAppendThemselves(t *testing.T) {
	client := serveInMemory(t, runAccepted, handler{"m": func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
		var is value
		if err := json.Unmarshal(in.Params, &[]any{&is}); err != nil {
			return nil, err
		}
		in.SetResult(is)
		return json.RawMessage(`"no"`), nil
	}})
	for _, c := range []struct {
		result value
		code   int64
	}{{`{"a":[1]}`, 0}, {"error", 7}, {"panic", jsonrpc.CodeInternalError}} {
		params := value(fmt.Sprintf("[%q]", c.result))
		request := conn.Request{Method: "m", MessageFor: conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) {
			return conn.Message{Body: params}, nil
		})}
		raw, err := client.Call(t.Context(), request)
		var fault *jsonrpc.Error
		switch {
		case c.code == 0:
			if err != nil || string(raw) != string(c.result) {
				t.Errorf("%s: got %s, %v; want the result", c.result, raw, err)
			}
		case !errors.As(err, &fault) || fault.Code != c.code:
			t.Errorf("%s: got %s, %v; want code %d", c.result, raw, err, c.code)
		}
	}
}

type userKey struct{}

// An askingHandler calls the peer before it answers.
type askingHandler struct {
	got   chan *conn.Incoming
	user  chan any
	asked chan error
}

func (a askingHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	a.got <- in
	a.user <- ctx.Value(userKey{})
	result, err := in.Call(ctx, conn.Request{Method: "ask", Timeout: -1, Retries: 1, Repeatable: true}) // Incoming.Call never retries
	a.asked <- err
	return result, err
}

func (askingHandler) ServeNotification(context.Context, *conn.Incoming) {}

// runAsking runs an acceptor whose peer has just sent a request on stream 3.
func runAsking(t *testing.T) (*script, askingHandler, run) {
	t.Helper()
	s := &script{}
	a := askingHandler{make(chan *conn.Incoming, 1), make(chan any, 1), make(chan error, 1)}
	r := start(conn.Accept(s, conn.Options{Handler: a}))
	synctest.Wait()
	web := context.WithValue(context.Background(), userKey{}, "ada")
	s.receiver.StreamOpened(3, 0)
	s.receiver.Receive(transport.Inbound{
		Stream: 3, Last: true, Frame: []byte(`{"jsonrpc":"2.0","id":"x","method":"m"}`),
		Origin: &transport.Origin{RemoteAddr: "192.0.2.1:7", Value: web.Value},
	})
	synctest.Wait()
	return s, a, r
}

// A call of a handler goes out on the stream of its request, which the answer ends. The handler gets
// the origin and the values of the HTTP request.
//
// Guarantees: G-0019.6
func TestHandlerAsksThePeerOnItsOwnStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a, r := runAsking(t)
		in := <-a.got
		if in.Origin == nil || in.Origin.RemoteAddr != "192.0.2.1:7" {
			t.Errorf("the origin is %+v, want 192.0.2.1:7", in.Origin)
		}
		if user := <-a.user; user != "ada" {
			t.Errorf("the handler's context has the user %v, want ada", user)
		}
		question := s.outbound()[0]
		if question.Stream != 3 || question.Last || question.Route.Kind != jsonrpc.KindRequest || question.Route.Method != "ask" {
			t.Errorf("the handler sent %+v, want the request \"ask\" on stream 3", question)
		}
		id, _ := question.Route.ID.Int64()
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"yes":true}}`, id))
		synctest.Wait()
		if err := <-a.asked; err != nil {
			t.Fatal(err)
		}
		answer := s.outbound()[1]
		want := transport.Route{Kind: jsonrpc.KindResult, ID: jsonrpc.StringID("x")}
		if answer.Stream != 3 || !answer.Last || answer.Route != want || string(answer.Frame) != `{"jsonrpc":"2.0","id":"x","result":{"yes":true}}` {
			t.Errorf("the answer is %s, %+v; want the last frame on stream 3 with the route %+v",
				answer.Frame, answer, want)
		}
		r.Stop()
		<-r.ended
	})
}

// The context of a notification's handler has the values of the HTTP request that brought it, and ends
// with the incarnation and not with that request.
//
// Guarantees: G-0028.2
func TestNotificationHasTheValuesOfItsOwnHTTPRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		served := make(chan context.Context, 2)
		s := &script{}
		r := start(conn.Accept(s, conn.Options{Handler: handler{"n": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
			served <- ctx
			return nil, nil
		}}}))
		synctest.Wait()
		for _, name := range []string{"ada", "grace"} {
			web, leave := context.WithCancel(context.WithValue(context.Background(), userKey{}, name))
			s.receiver.Receive(transport.Inbound{Frame: []byte(`{"jsonrpc":"2.0","method":"n"}`), Origin: &transport.Origin{Value: web.Value}})
			leave()
			synctest.Wait()
		}
		ada, grace := <-served, <-served
		if ada.Value(userKey{}) != "ada" || grace.Value(userKey{}) != "grace" {
			t.Errorf("the contexts have the users %v and %v, want ada and grace",
				ada.Value(userKey{}), grace.Value(userKey{}))
		}
		if ada.Err() != nil {
			t.Errorf("the context has ended with the HTTP request: %v", ada.Err())
		}
		r.Stop()
		<-r.ended
		if ada.Err() == nil {
			t.Error("the context has not ended with its incarnation")
		}
	})
}

// When the stream of a request is lost, a call of its handler ends as lost, and no answer is sent.
//
// Guarantees: G-0019.6
func TestCallOfAHandlerEndsWithItsStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a, r := runAsking(t)
		s.receiver.StreamLost(transport.StreamLoss{Stream: 3, Reason: transport.ErrPeerClosed})
		synctest.Wait()
		err := <-a.asked
		var failed *conn.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.LinkLost || failed.Delivery != conn.Unknown {
			t.Errorf("got %v, want LinkLost, Unknown", err)
		}
		if n := len(s.outbound()); n != 1 {
			t.Errorf("%d frames were sent, want 1", n)
		}
		r.Stop()
		<-r.ended
	})
}

// The context of the handler of an Immediate message has the values of the HTTP request that brought it, too.
//
// Guarantees: G-0028.2, G-0054.2
func TestImmediateMessagesHaveTheValuesOfTheirRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		users, s := make(chan any, 1), &script{}
		r := start(conn.Accept(s, conn.Options{Dialect: immediate{}, Handler: handler{"n": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
			users <- ctx.Value(userKey{})
			return nil, nil
		}}}))
		synctest.Wait()
		for _, frame := range []string{`{"jsonrpc":"2.0","method":"n"}`, `{"jsonrpc":"2.0","id":1,"method":"n"}`} {
			web := context.WithValue(context.Background(), userKey{}, frame)
			s.receiver.Receive(transport.Inbound{Frame: []byte(frame), Origin: &transport.Origin{Value: web.Value}})
			if user := <-users; user != frame {
				t.Errorf("the user of %s is %v", frame, user)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// A listener passes on the user of a notification, and the cause with which its context ended.
type listener chan any

func (listener) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	return nil, nil
}

func (l listener) ServeNotification(ctx context.Context, _ *conn.Incoming) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l <- ctx.Value(userKey{})
	<-ctx.Done()
	l <- context.Cause(ctx)
}

// The context of a notification's handler does not end with the HTTP request that brought it. Its
// cause is the reason of the Conn.
//
// Guarantees: G-0028.2
func TestNotificationHasTheValuesOfItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := &script{}, make(listener, 2)
		r := start(conn.Accept(s, conn.Options{Handler: seen}))
		synctest.Wait()
		web, left := context.WithCancel(context.WithValue(context.Background(), userKey{}, "ada"))
		s.receiver.Receive(transport.Inbound{
			Frame: []byte(`{"jsonrpc":"2.0","method":"n"}`), Origin: &transport.Origin{Value: web.Value},
		})
		if user := <-seen; user != "ada" {
			t.Errorf("the user is %v, want ada", user)
		}
		left()
		synctest.Wait()
		if len(seen) > 0 {
			t.Error("the context ended with the HTTP request")
		}
		r.Stop()
		if why, stopped := (<-seen).(conn.Reason); !stopped || why.Kind != conn.Stopped {
			t.Errorf("the cause is %v, want Stopped", why)
		}
		<-r.ended
	})
}

// A handler that still runs after its link was lost can neither notify nor call the peer on the next
// link, and its answer is not sent.
//
// Guarantees: G-0003.4
func TestHandlerOfALostLinkSendsNothingOnTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, results := make(chan struct{}), make(chan error, 2)
		var links []*script
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, new(script))
			return links[len(links)-1], nil
		}), conn.Options{Handler: handler{"slow": func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-release // although its context has ended
			results <- in.Notify(context.Background(), "late", nil)
			_, err := in.Call(context.Background(), conn.Request{Method: "late"})
			results <- err
			return json.RawMessage("{}"), nil
		}}}))
		synctest.Wait()
		links[0].deliver(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		synctest.Wait()
		links[0].lose(transport.Loss{Reason: transport.ErrPeerClosed})
		advance(2 * time.Second)
		if status := r.Status(); status.State != conn.Ready || status.Epoch != 2 {
			t.Fatalf("%s in epoch %d, want ready in epoch 2", status.State, status.Epoch)
		}
		close(release)
		for range 2 {
			if err := <-results; !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) {
				t.Errorf("got %v, want ErrStale and not executed", err)
			}
		}
		synctest.Wait()
		for i, s := range links {
			if got := s.frames(); len(got) > 0 {
				t.Errorf("link %d got %q, want no frame", i+1, got)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// A handler whose call ends with its link, or with the run of its Conn, finds that its own context has ended, too. So who records how the handler has
// ended does not depend on which of the two is noticed first.
//
// Guarantees: G-0003.18
func TestContextEndsBeforeTheCallsOfAHandler(t *testing.T) {
	const handlers = 1000 // so that many calls end between the first one and the last
	for name, end := range map[string]func(s *script, r run, interrupt func() error){
		"link lost":   func(s *script, _ run, _ func() error) { s.lose(transport.Loss{Reason: transport.ErrPeerClosed}) },
		"stopped":     func(_ *script, r run, _ func() error) { r.Stop() },
		"interrupted": func(_ *script, _ run, interrupt func() error) { _ = interrupt() },
		"panic":       func(s *script, _ run, _ func() error) { s.deliver(`{"jsonrpc":"2.0","id":0,"method":"unknown"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				early := make(chan error, handlers)
				s := &script{onSend: func(_ *script, o transport.Outbound) error {
					if strings.Contains(string(o.Frame), "not found") {
						panic("send")
					}
					return nil
				}}
				r, interrupt := interruptible(t, conn.New(opens(s), conn.Options{
					Tuning: conn.Tuning{MaxServing: handlers + 1},
					Handler: handler{"asks": func(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
						_, err := in.Call(context.WithoutCancel(ctx), conn.Request{Method: "ask"})
						if ctx.Err() == nil {
							early <- err
						}
						return nil, err
					}},
				}))
				for id := range handlers {
					s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"asks"}`, id+1))
				}
				synctest.Wait()
				if n := len(s.frames()); n != handlers {
					t.Fatalf("the peer got %d calls, want %d", n, handlers)
				}
				end(s, r, interrupt)
				synctest.Wait()
				if state := r.State(); state == conn.Ready {
					t.Error("the Conn is still ready")
				}
				r.Stop()
				synctest.Wait()
				if close(early); len(early) > 0 {
					t.Errorf("%d calls of handlers ended before their contexts, the first with: %v", len(early), <-early)
				}
			})
		})
	}
}

// A Conn refuses a request that waits for too long by its timer: nothing else happens. The caller knows that it
// was not executed.
//
// Guarantees: G-0084.1
func TestRequestsDoNotWaitForEver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		client := serveInMemoryWith(t, startAccepted, handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			<-release
			return nil, nil
		}}, conn.Options{Tuning: conn.Tuning{MaxServing: 1}})
		ended, since := make(chan error, 2), time.Now()
		for range 2 {
			go func() {
				_, err := client.Call(t.Context(), conn.Request{Method: "m"})
				ended <- err
			}()
			synctest.Wait()
		}
		err := <-ended
		if waited := time.Since(since); !conn.NotExecuted(err) || waited != 10*time.Second {
			t.Errorf("after %v a call got %v, want a refusal after 10s", waited, err)
		}
		close(release)
		if err := <-ended; err != nil {
			t.Errorf("the first call got %v, want its result", err)
		}
	})
}
