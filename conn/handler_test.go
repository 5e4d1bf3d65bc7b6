package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// What a handler has begun ends with it: its context is over by the time its
// answer is sent.
func TestHandlersContextEndsWithIt(t *testing.T) {
	served := make(chan context.Context, 1)
	client := serveInMemory(t, runAccepted, handler{"m": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
		served <- ctx
		return nil, ctx.Err()
	}})
	if _, err := client.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
		t.Fatal(err)
	}
	if ctx := <-served; ctx.Err() == nil {
		t.Fatal("the context goes on")
	}
}

// A value appends itself, or fails as it says.
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

// Params and results that append themselves are what the peer gets. A result that fails
// is answered as a handler that fails.
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
				t.Errorf("%s: got %s, %v", c.result, raw, err)
			}
		case !errors.As(err, &fault) || fault.Code != c.code:
			t.Errorf("%s: got %s, %v", c.result, raw, err)
		}
	}
}

type userKey struct{}

// asker is a handler that asks the peer back before it answers.
type asker struct {
	got   chan *conn.Incoming
	user  chan any
	asked chan error
}

func (a asker) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	a.got <- in
	a.user <- ctx.Value(userKey{})
	result, err := in.Call(ctx, conn.Request{Method: "ask", Timeout: -1, Retries: 1, Repeatable: true}) // no use: it is never retried
	a.asked <- err
	return result, err
}

func (asker) ServeNotification(context.Context, *conn.Incoming) {}

// asking runs an acceptor whose peer has just sent a request on stream 3.
func asking(t *testing.T) (*script, asker, run) {
	t.Helper()
	s := &script{}
	a := asker{make(chan *conn.Incoming, 1), make(chan any, 1), make(chan error, 1)}
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

// Guarantees: G-0019.6
func TestHandlerAsksThePeerOnItsOwnStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a, r := asking(t)
		in := <-a.got
		if in.Origin == nil || in.Origin.RemoteAddr != "192.0.2.1:7" {
			t.Errorf("the origin is %+v", in.Origin)
		}
		if user := <-a.user; user != "ada" {
			t.Errorf("the handler's context has %v", user)
		}
		question := s.outbound()[0]
		if question.Stream != 3 || question.Last || question.Route.Kind != jsonrpc.KindRequest || question.Route.Method != "ask" {
			t.Errorf("asked %+v", question)
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
			t.Errorf("answered %s, %+v", answer.Frame, answer)
		}
		r.Stop()
		<-r.ended
	})
}

// A notification has the values of the HTTP request that brought it, and the
// lifetime of its incarnation.
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
			t.Errorf("the handlers' contexts have %v and %v", ada.Value(userKey{}), grace.Value(userKey{}))
		}
		if ada.Err() != nil {
			t.Errorf("the context has ended with the HTTP request: %v", ada.Err())
		}
		r.Stop()
		<-r.ended
		if ada.Err() == nil {
			t.Error("the context outlives its incarnation")
		}
	})
}

// Guarantees: G-0019.6
func TestCallOfAHandlerEndsWithItsStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, a, r := asking(t)
		s.receiver.StreamLost(transport.StreamLoss{Stream: 3, Reason: transport.ErrPeerClosed})
		synctest.Wait()
		err := <-a.asked
		var failed *conn.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.LinkLost || failed.Delivery != conn.Unknown {
			t.Errorf("got %v", err)
		}
		if n := len(s.outbound()); n != 1 {
			t.Errorf("%d frames were sent", n)
		}
		r.Stop()
		<-r.ended
	})
}

// listener passes on the user of a notification, and why its context ended.
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

// The handler of a notification sees the values of the HTTP request that brought
// it, and not that request's end.
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
			t.Errorf("the user is %v", user)
		}
		left()
		synctest.Wait()
		if len(seen) > 0 {
			t.Error("the context ended with the request")
		}
		r.Stop()
		if why, stopped := (<-seen).(conn.Reason); !stopped || why.Kind != conn.Stopped {
			t.Errorf("the context ended for %v", why)
		}
		<-r.ended
	})
}

// A handler that outlives its link says nothing on the next: neither a notification
// nor a call of it belongs to what the peer does there.
//
// Guarantees: G-0003.4
func TestHandlerOfALostLinkSaysNothingOnTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, told := make(chan struct{}), make(chan error, 2)
		var links []*script
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, new(script))
			return links[len(links)-1], nil
		}), conn.Options{Handler: handler{"slow": func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-release // whatever becomes of its context
			told <- in.Notify(context.Background(), "late", nil)
			_, err := in.Call(context.Background(), conn.Request{Method: "late"})
			told <- err
			return json.RawMessage("{}"), nil
		}}}))
		synctest.Wait()
		links[0].deliver(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		synctest.Wait()
		links[0].lose(transport.Loss{Reason: transport.ErrPeerClosed})
		advance(2 * time.Second)
		if status := r.Status(); status.State != conn.Ready || status.Epoch != 2 {
			t.Fatalf("%s in epoch %d", status.State, status.Epoch)
		}
		close(release)
		for range 2 {
			if err := <-told; !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) {
				t.Errorf("it was told %v", err)
			}
		}
		synctest.Wait()
		for i, s := range links {
			if got := s.frames(); len(got) > 0 {
				t.Errorf("link %d was sent %q", i+1, got)
			}
		}
		r.Stop()
		<-r.ended
	})
}
