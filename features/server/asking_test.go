package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var forms = protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}

// A shop counts what its tools do.
type shop struct {
	runs, charges, refunds, shipments atomic.Int64
}

type size struct {
	Size string `json:"size" enum:"small,large"`
}

// named asks under a key of its own, as a form with one text.
func named(key string) protocol.InputRequests {
	return protocol.InputRequests{key: &protocol.ElicitParams{
		Message: key, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"` + key + `":{"type":"string"}},"required":["` + key + `"]}`),
	}}
}

func textOf(answers protocol.InputResponses, key string) string {
	result, ok := answers[key].(*protocol.ElicitResult)
	if !ok {
		return ""
	}
	var members map[string]string
	if json.Unmarshal(result.Content, &members) != nil {
		return ""
	}
	return members[key]
}

// one asks one question, and two a second that depends on the first.
func (s *shop) one(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	if err := server.Confirm(ctx, "Sure?"); err != nil {
		return "", err
	}
	return "confirmed", nil
}

func (s *shop) two(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	first, err := server.Elicit[size](ctx, "Which size?")
	if err != nil {
		return "", err
	}
	second, err := server.Ask(ctx, named(first.Size))
	if err != nil {
		return "", err
	}
	return first.Size + " " + textOf(second, first.Size), nil
}

// three charges before its last question, and refunds when that fails.
func (s *shop) three(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	s.charges.Add(1)
	if err := server.Confirm(ctx, "Ship it?"); err != nil {
		s.refunds.Add(1)
		return "", err
	}
	s.shipments.Add(1)
	return "shipped", nil
}

// explicit does what two does, by itself.
func (s *shop) explicit(ctx context.Context, _ struct{}) (string, error) {
	s.runs.Add(1)
	r := server.RequestFrom(ctx)
	var first string
	if later, err := r.State(&first); err != nil {
		return "", err
	} else if later && textOf(r.Answers, first) != "" {
		return first + " " + textOf(r.Answers, first), nil
	}
	if first = textOf(r.Answers, "size"); first != "" {
		return "", &server.InputRequired{Requests: named(first), State: first}
	}
	return "", &server.InputRequired{Requests: named("size")}
}

func (s *shop) server(o server.Options) *server.Server {
	srv := newServer(o)
	for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		if o.Asking.Fleet && how == server.Waits {
			continue
		}
		server.AddTool(srv, protocol.Tool{Name: "one " + name}, s.one, server.Asks(how, forms))
		server.AddTool(srv, protocol.Tool{Name: "two " + name}, s.two, server.Asks(how, forms))
	}
	if !o.Asking.Fleet {
		server.AddTool(srv, protocol.Tool{Name: "three"}, s.three, server.Asks(server.Waits, forms))
	}
	server.AddTool(srv, protocol.Tool{Name: "explicit"}, s.explicit)
	server.AddTool(srv, protocol.Tool{Name: "undecided"}, s.one)
	return srv
}

// answering every form: a text for each property, the first value of an enum.
func fillIn(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	var form struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(p.RequestedSchema, &form); err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for name, property := range form.Properties {
		values[name] = "my " + name
		if len(property.Enum) > 0 {
			values[name] = property.Enum[0]
		}
	}
	return client.Accept(values)
}

// One code, both eras, and how often it runs.
//
// Guarantees: G-0031.1
func TestToolsThatAskDoTheSameInBothEras(t *testing.T) {
	var s *shop
	make := func() *server.Server { s = new(shop); return s.server(server.Options{}) }
	everywhere(t, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, tool := range []struct {
			name, want string
			runs       int64
		}{
			{"one waits", "confirmed", 1}, {"one reruns", "confirmed", 2},
			{"two waits", "small my small", 1}, {"two reruns", "small my small", 3},
			{"three", "shipped", 1},
			{"explicit", "my size my my size", 3},
		} {
			s.runs.Store(0)
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool.name})
			if err != nil || result.IsError || result.Content.Text() != tool.want {
				t.Errorf("%s: got %+v, %v", tool.name, result, err)
			}
			if runs := s.runs.Load(); runs != tool.runs {
				t.Errorf("%s ran %d times, want %d", tool.name, runs, tool.runs)
			}
		}
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "undecided"})
		if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "Waits") {
			t.Errorf("undecided: got %+v, %v", result, err)
		}
		if n := s.charges.Load(); n != 1 || s.refunds.Load() != 0 || s.shipments.Load() != 1 {
			t.Errorf("%d charges, %d refunds, %d shipments", n, s.refunds.Load(), s.shipments.Load())
		}
	})
}

// Yes is an error that is nil, and nothing else is.
//
// Guarantees: G-0031.2
func TestNothingButYesIsConsent(t *testing.T) {
	for want, answer := range map[string]func() (*protocol.ElicitResult, error){
		server.ErrDeclined.Error():  client.Decline,
		server.ErrDismissed.Error(): client.Dismiss,
	} {
		s := new(shop)
		o := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return answer()
		}}
		everywhere(t, func() *server.Server { return s.server(server.Options{}) }, o, func(t *testing.T, _ *server.Server, session *client.Session) {
			for _, name := range []string{"one waits", "one reruns", "three"} {
				result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
				if err != nil || !result.IsError || result.Content.Text() != want {
					t.Errorf("%s: got %+v, %v", name, result, err)
				}
			}
		})
		if s.shipments.Load() != 0 || s.refunds.Load() != s.charges.Load() {
			t.Errorf("%d charges, %d refunds, %d shipments", s.charges.Load(), s.refunds.Load(), s.shipments.Load())
		}
	}
}

// What a client has to be able to do is known before the handler runs.
//
// Guarantees: G-0031.3
func TestClientsThatCannotBeAskedAreToldFirst(t *testing.T) {
	s := new(shop)
	everywhere(t, func() *server.Server { return s.server(server.Options{}) }, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		s.runs.Store(0)
		for _, name := range []string{"one waits", "one reruns", "explicit"} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			var fault *jsonrpc.Error
			if session.Server().ProtocolVersion == protocol.Latest {
				if !errors.As(err, &fault) || fault.Code != protocol.CodeMissingCapability || !strings.Contains(string(fault.Data), `{"requiredCapabilities":{"elicitation":{"form":{}}}}`) {
					t.Errorf("%s: got %v", name, err)
				}
			} else if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "elicitation.form") {
				t.Errorf("%s: got %+v, %v", name, result, err)
			}
		}
		if runs := s.runs.Load(); runs > 1 { // the explicit one, which says what it needs by asking
			t.Errorf("%d handlers ran", runs)
		}
	})
}

// withForms is a modern request of a client that can be asked.
func withForms(id, method, params string) string {
	return strings.Replace(modern(id, method, params), `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
}

// A round is the answer to a call that asks.
type round struct {
	Keys  []string
	State string
	Text  string
	Error *fault
}

// round makes a call and reads the answer.
func (w *wire) round(tool, more string) (r round) {
	w.t.Helper()
	got := w.ask(withForms(`1`, "tools/call", `"name":"`+tool+`"`+more))
	if r.Error = got.Error; r.Error != nil {
		return r
	}
	var requests map[string]json.RawMessage
	json.Unmarshal(got.Result["inputRequests"], &requests)
	for key := range requests {
		r.Keys = append(r.Keys, key)
	}
	json.Unmarshal(got.Result["requestState"], &r.State)
	if asks := string(got.Result["resultType"]) == `"input_required"`; asks != (len(requests) > 0) || asks && got.Result["content"] != nil {
		w.t.Errorf("got %s", got.Result)
	}
	r.Text = string(got.Result["content"])
	return r
}

// again is what a retry adds.
func again(state, answers string) string {
	return fmt.Sprintf(`,"requestState":%q,"inputResponses":{%s}`, state, answers)
}

const yes = `"1":{"action":"accept","content":{}}`

func (f *fault) is(code int64, text string) bool {
	return f != nil && f.Code == code && strings.Contains(f.Message+string(f.Data), text)
}

// Guarantees: G-0031.4
func TestStatesAreGoodOnceAndForOneCall(t *testing.T) {
	s := new(shop)
	secret := make([]byte, 32)
	srv := s.server(server.Options{Asking: server.AskingOptions{Secrets: [][]byte{secret}}})
	w := dial(t, srv)
	for _, name := range []string{"one waits", "one reruns"} {
		first := w.round(name, "")
		if len(first.Keys) != 1 || first.State == "" {
			t.Fatalf("%s: got %+v", name, first)
		}
		s.runs.Store(0)
		for i := 2; i < len(first.State); i++ { // one character is another
			other := byte('A')
			if first.State[i] == 'A' {
				other = 'B'
			}
			w.link.Grant(transport.Main, 1) // for each answer one
			changed := first.State[:i] + string(other) + first.State[i+1:]
			if got := w.round(name, again(changed, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
				t.Fatalf("%s: character %d: got %+v", name, i, got)
			}
		}
		for what, got := range map[string]round{
			"cut":             w.round(name, again(first.State[:40], yes)),
			"empty":           w.round(name, again("", yes)),
			"too large":       w.round(name, again("1."+strings.Repeat("A", 65<<10), yes)),
			"of another tool": w.round("explicit", again(first.State, yes)),
		} {
			if !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
				t.Errorf("%s, %s: got %+v", name, what, got)
			}
		}
		if n := s.runs.Load(); n != 0 {
			t.Errorf("%s ran %d times for states that are not its own", name, n)
		}
		if got := w.round(name, again(first.State, yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("%s: got %+v", name, got)
		}
		s.runs.Store(0)
		if got := w.round(name, again(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "anew") || s.runs.Load() != 0 {
			t.Errorf("%s: used: got %+v, %d runs", name, got, s.runs.Load())
		}
	}
}

// Of a hundred clients with one state, one gets on.
//
// Guarantees: G-0031.4
func TestOneOfManyRetriesPasses(t *testing.T) {
	for _, name := range []string{"one waits", "one reruns"} {
		s := new(shop)
		srv := s.server(server.Options{})
		state := dial(t, srv).round(name, "").State
		s.runs.Store(0)
		var passed, refused atomic.Int64
		var racing sync.WaitGroup
		for range 20 {
			w := dial(t, srv)
			racing.Go(func() {
				w.send(withForms(`1`, "tools/call", `"name":"`+name+`"`+again(state, yes)))
				if frame := <-w.frames; strings.Contains(frame, "confirmed") {
					passed.Add(1)
				} else if strings.Contains(frame, "invalid_request_state") {
					refused.Add(1)
				}
			})
		}
		racing.Wait()
		if passed.Load() != 1 || refused.Load() != 19 || s.runs.Load() > 1 {
			t.Errorf("%s: %d passed, %d were refused, %d runs", name, passed.Load(), refused.Load(), s.runs.Load())
		}
	}
}

// Arguments are the same in any order and form.
func TestStatesGoWithTheArgumentsWhateverTheirForm(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, in struct {
		A float64 `json:"a"`
		B string  `json:"b"`
	}) (string, error) {
		return fmt.Sprint(in.A, in.B), server.Confirm(ctx, "Sure?")
	}, server.Asks(server.Reruns, forms))
	w := dial(t, s)
	first := w.round("t", `,"arguments":{"a":10,"b":"é"}`)
	for _, arguments := range []string{`{"a":10,"b":"f"}`, `{"a":11,"b":"é"}`} {
		if got := w.round("t", `,"arguments":`+arguments+again(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
			t.Errorf("%s: got %+v", arguments, got)
		}
	}
	if got := w.round("t", `,"arguments":{ "b":"\u00e9", "a":1e1}`+again(first.State, yes)); !strings.Contains(got.Text, "10é") {
		t.Errorf("got %+v", got)
	}
}

// Guarantees: G-0031.5
func TestRetriesGoToAnyNodeOfAFleet(t *testing.T) {
	old, young := make([]byte, 32), make([]byte, 32)
	young[0] = 1
	node := func(s *shop, secrets ...[]byte) *wire {
		return dial(t, s.server(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: secrets}}))
	}
	s := new(shop)
	states := map[string]string{}
	a := node(s, old)
	states["old"] = a.round("one reruns", "").State
	b := node(s, old, young)
	for what, w := range map[string]*wire{"another node": b, "the new secret behind": node(s, old, young), "the new secret before": node(s, young, old)} {
		if got := w.round("one reruns", again(states["old"], yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	if got := node(s, young).round("one reruns", again(states["old"], yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
		t.Errorf("a retired secret: got %+v", got)
	}
	wantPanic(t, "no secrets", "Secrets", func() { newServer(server.Options{Asking: server.AskingOptions{Fleet: true}}) })
	wantPanic(t, "short secret", "32", func() { newServer(server.Options{Asking: server.AskingOptions{Secrets: [][]byte{{1}}}}) })
	wantPanic(t, "waits in a fleet", "Fleet", func() {
		server.AddTool(newServer(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: [][]byte{old}}}), protocol.Tool{Name: "t"}, s.one, server.Asks(server.Waits, forms))
	})
	// A call that waits is known to wait elsewhere.
	one := dial(t, s.server(server.Options{Asking: server.AskingOptions{Secrets: [][]byte{old}}}))
	other := dial(t, s.server(server.Options{Asking: server.AskingOptions{Secrets: [][]byte{old}}}))
	waiting := one.round("one waits", "")
	s.runs.Store(0)
	if got := other.round("one waits", again(waiting.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "another node") || s.runs.Load() != 0 {
		t.Errorf("got %+v", got)
	}
	if got := one.round("one waits", again(waiting.State, yes)); !strings.Contains(got.Text, "confirmed") {
		t.Errorf("got %+v", got)
	}
}

// Guarantees: G-0031.6
func TestAnswersAreChecked(t *testing.T) {
	for _, name := range []string{"two waits", "two reruns"} {
		w := dial(t, new(shop).server(server.Options{}))
		first := w.round(name, "")
		answer := func(text string) round { return w.round(name, again(first.State, text)) }
		for _, bad := range []string{`"1":12345`, `"1":{"action":"maybe"}`, `"1":{}`} {
			if got := answer(bad); !got.Error.is(jsonrpc.CodeInvalidParams, `"1"`) {
				t.Errorf("%s: %s: got %+v", name, bad, got)
			}
		}
		// Nothing of that has spent the state. A missing answer is asked for again.
		missing := answer(`"other":{"action":"accept","content":{}}`)
		if len(missing.Keys) != 1 || missing.Keys[0] != "1" || missing.State == first.State {
			t.Fatalf("%s: got %+v", name, missing)
		}
		if got := answer(yes); !got.Error.is(jsonrpc.CodeInvalidParams, "anew") {
			t.Errorf("%s: a void state: got %+v", name, got)
		}
		first = missing
		second := answer(`"1":{"action":"accept","content":{"size":"large"}}`)
		if len(second.Keys) != 1 || second.Keys[0] != "large" {
			t.Fatalf("%s: got %+v", name, second)
		}
		first = second
		if got := answer(`"large":{"action":"accept","content":{"large":"yes"}},"1":{"action":"decline"}`); !strings.Contains(got.Text, "large yes") {
			t.Errorf("%s: got %+v", name, got)
		}
		// Without a state, what is asked for is taken, and the rest ignored.
		if got := w.round(name, `,"inputResponses":{"1":{"action":"accept","content":{"size":"small"}},"small":{"action":"accept","content":{"small":"s"}},"x":7}`); !strings.Contains(got.Text, "small s") {
			t.Errorf("%s: without a state: got %+v", name, got)
		}
		if got := w.round(name, `,"inputResponses":{"1":{"action":"accept","content":{"size":"huge"}}}`); !got.Error.is(jsonrpc.CodeInvalidParams, `"1"`) {
			t.Errorf("%s: not in the enum: got %+v", name, got)
		}
	}
}

// A handler that goes on although it has no answer, or asks differently, changes
// nothing: what it returns is dropped.
//
// Guarantees: G-0031.1
func TestWhatARerunReturnsWithoutAnAnswerIsDropped(t *testing.T) {
	s := newServer(server.Options{})
	var ended atomic.Int64
	server.AddTool(s, protocol.Tool{Name: "swallows"}, func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.Confirm(ctx, "Sure?"); errors.Is(context.Cause(ctx), server.ErrInputRequired) && errors.Is(err, server.ErrInputRequired) {
			ended.Add(1)
		}
		_, err := server.Elicit[size](ctx, "And then?")
		return fmt.Sprint(err), nil
	}, server.Asks(server.Reruns, forms))
	var asked atomic.Int64
	server.AddTool(s, protocol.Tool{Name: "changes"}, func(ctx context.Context, _ struct{}) (string, error) {
		_ = server.Confirm(ctx, fmt.Sprint("It is number ", asked.Add(1)))
		return "went on", nil
	}, server.Asks(server.Reruns, forms))
	server.AddTool(s, protocol.Tool{Name: "keys"}, func(ctx context.Context, _ struct{}) (string, error) {
		if _, err := server.Ask(ctx, named("a")); err != nil {
			return "", err
		}
		_, err := server.Ask(ctx, protocol.InputRequests{"a": &protocol.ElicitParams{Message: "another"}})
		return fmt.Sprint(errors.Is(err, server.ErrKeyUsed)), nil
	}, server.Asks(server.Waits, forms))
	w := dial(t, s)
	if got := w.round("swallows", ""); len(got.Keys) != 1 || got.Keys[0] != "1" || ended.Load() != 1 {
		t.Errorf("got %+v", got)
	}
	first := w.round("changes", "")
	if got := w.round("changes", again(first.State, yes)); !got.Error.is(jsonrpc.CodeInternalError, "differently") {
		t.Errorf("got %+v", got)
	}
	if got := w.round("keys", `,"inputResponses":{"a":{"action":"accept","content":{"a":"x"}}}`); !strings.Contains(got.Text, "true") {
		t.Errorf("got %+v", got)
	}
}

// A call that nobody comes back to ends: its question fails, and the handler cleans
// up. Nothing is left.
//
// Guarantees: G-0031.7
func TestAbandonedCallsCleanUp(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *server.Server, *wire){
		"it expires": func(*testing.T, *server.Server, *wire) { pass(10*time.Minute + time.Second) },
		"newer calls take its place": func(_ *testing.T, _ *server.Server, w *wire) {
			for range 32 {
				w.round("three", "")
			}
		},
		"the server is closed": func(t *testing.T, s *server.Server, _ *wire) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := new(shop)
			srv := s.server(server.Options{})
			w := dial(t, srv)
			first := w.round("three", "")
			synctest.Wait()
			if s.charges.Load() != 1 || s.refunds.Load() != 0 {
				t.Errorf("%s: %d refunds", name, s.refunds.Load())
			}
			end(t, srv, w)
			synctest.Wait()
			if s.refunds.Load() != 1 || s.shipments.Load() != 0 {
				t.Errorf("%s: %d refunds, %d shipments", name, s.refunds.Load(), s.shipments.Load())
			}
			if name != "the server is closed" {
				if got := w.round("three", again(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
					t.Errorf("%s: got %+v", name, got)
				}
				srv.Close(context.Background())
			}
			synctest.Wait()
			if s.charges.Load() != s.refunds.Load() {
				t.Errorf("%s: %d charges and %d refunds", name, s.charges.Load(), s.refunds.Load())
			}
		})
	}
}

// What waits is bounded: for one client, and for all.
//
// Guarantees: G-0031.7
func TestCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(shop)
		srv := s.server(server.Options{Asking: server.AskingOptions{MaxWaiting: 3, MaxWaitingPerClient: 2}})
		one, other, third := dial(t, srv), dial(t, srv), dial(t, srv)
		one.round("one waits", "")
		one.round("one waits", "")
		mine := other.round("one waits", "")
		runs := s.runs.Load()
		if got := third.round("one waits", ""); !got.Error.is(jsonrpc.CodeInternalError, "overloaded") || s.runs.Load() != runs {
			t.Errorf("got %+v", got)
		}
		one.round("one waits", "") // in place of its oldest
		if got := other.round("one waits", again(mine.State, yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("got %+v", got)
		}
		if got := third.round("one waits", ""); got.Error != nil {
			t.Errorf("a place is free again: got %+v", got.Error)
		}
		pass(11 * time.Minute) // all of them expire
		synctest.Wait()
		for _, w := range []*wire{one, other, third} {
			if got := w.round("one waits", ""); got.Error != nil {
				t.Errorf("places are free again: got %+v", got.Error)
			}
		}
		srv.Close(context.Background())
	})
}

// A handler that ignores the end of its context is named.
func TestStuckHandlersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			err := server.Confirm(ctx, "Sure?")
			<-release
			return "", err
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		w.round("t", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{ctx, context.Background()} {
			var stuck *conn.StuckError
			if err := s.Close(ctx); !errors.As(err, &stuck) || !strings.Contains(fmt.Sprint(stuck.Tasks), "tools/call t") {
				t.Errorf("got %v", err)
			}
		}
		close(release)
		synctest.Wait()
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("closed again: %v", err)
		}
		synctest.Wait()
	})
}

// A round that is cancelled ends the call.
func TestCancelledRoundEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if err := server.Confirm(ctx, "Sure?"); err != nil {
				return "", err
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", context.Cause(ctx)
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		first := w.round("t", "")
		w.send(withForms(`9`, "tools/call", `"name":"t"`+again(first.State, yes)))
		synctest.Wait()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		if cause := <-causes; !errors.Is(cause, conn.ErrPeerCancelled) {
			t.Errorf("the cause is %v", cause)
		}
		w.wantNothing()
		s.Close(context.Background())
	})
}

func TestPanicAfterAnAnswerEndsTheCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if server.Confirm(ctx, "Sure?") == nil {
				panic("secret")
			}
			return "", nil
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		first := w.round("t", "")
		if got := w.round("t", again(first.State, yes)); !got.Error.is(jsonrpc.CodeInternalError, "internal error") || strings.Contains(got.Error.Message, "secret") {
			t.Errorf("got %+v", got.Error)
		}
		s.Close(context.Background())
	})
}

// Prompts and resources ask as tools do.
func TestPromptsAndResourcesAsk(t *testing.T) {
	make := func() *server.Server {
		s := newServer(server.Options{})
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "asked", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Reruns, forms))
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(ctx context.Context) (string, error) {
			return "asked", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		return s
	}
	everywhere(t, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
		prompt, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "p"})
		if err != nil || len(prompt.Messages) != 1 {
			t.Errorf("got %+v, %v", prompt, err)
		}
		resource, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "x://a"})
		if err != nil || resource.Text() != "asked" {
			t.Errorf("got %+v, %v", resource, err)
		}
	})
}

// Sampling, roots and a page to open, and several at once.
func TestEveryKindOfQuestionIsAsked(t *testing.T) {
	needs := protocol.ClientCapabilities{
		Elicitation: &protocol.ElicitationCapability{Form: &protocol.Capability{}, URL: &protocol.Capability{}},
		Sampling:    &protocol.SamplingCapability{}, Roots: &protocol.RootsCapability{},
	}
	sample := &protocol.CreateMessageParams{MaxTokens: 10, Messages: protocol.SamplingMessages{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}}
	all := func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.ElicitURL(ctx, "Sign in", "https://example.com/in"); err != nil {
			return "", err
		}
		said, err := server.Sample(ctx, sample)
		if err != nil {
			return "", err
		}
		roots, err := server.Roots(ctx)
		if err != nil {
			return "", err
		}
		both, err := server.Ask(ctx, protocol.InputRequests{"model": sample, "roots": &protocol.ListRootsParams{}})
		return fmt.Sprint(said.Content.Text(), " ", roots[0].URI, " ", len(both)), err
	}
	make := func() *server.Server {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "waits"}, all, server.Asks(server.Waits, needs))
		server.AddTool(s, protocol.Tool{Name: "reruns"}, all, server.Asks(server.Reruns, needs))
		return s
	}
	o := client.Options{
		Elicit: fillIn,
		ElicitURL: func(_ context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			if p.URL != "https://example.com/in" {
				return client.Decline()
			}
			return client.Accept(nil)
		},
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home"}}, nil
		},
	}
	everywhere(t, make, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, name := range []string{"waits", "reruns"} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil || result.Content.Text() != "hello file:///home 2" {
				t.Errorf("%s: got %+v, %v", name, result, err)
			}
		}
	})
}

// A state belongs to whom it was given, and so does a call that waits.
//
// Guarantees: G-0031.4
func TestStatesBelongToWhoAsked(t *testing.T) {
	s := new(shop)
	h := streamable.NewHandler(s.server(server.Options{}), streamable.HandlerOptions{
		Identify: func(r *http.Request) string { return r.Header.Get("Authorization") },
	})
	defer h.Close(0)
	web := httptest.NewServer(h)
	defer web.Close()
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	var user atomic.Value
	user.Store("ada")
	session := open(t, &streamable.Client{URL: web.URL, HTTP: &http.Client{Transport: bearer{&user, pool}}},
		client.Options{ProtocolVersion: protocol.Latest, Elicit: fillIn})
	for _, name := range []string{"one waits", "one reruns", "explicit"} {
		user.Store("ada")
		raw, err := session.Request(t.Context(), "tools/call", map[string]any{"name": name})
		if err != nil {
			t.Fatal(err)
		}
		var asked struct {
			RequestState string `json:"requestState"`
		}
		if err := json.Unmarshal(raw, &asked); err != nil || asked.RequestState == "" {
			t.Fatalf("%s: got %s, %v", name, raw, err)
		}
		s.runs.Store(0)
		for _, who := range []string{"eve", "ada"} {
			user.Store(who)
			_, err := session.Request(t.Context(), "tools/call", map[string]any{
				"name": name, "requestState": asked.RequestState, "inputResponses": json.RawMessage(`{` + yes + `}`),
			})
			if (err == nil) != (who == "ada") || who == "eve" && s.runs.Load() != 0 {
				t.Errorf("%s, %s: got %v, %d runs", name, who, err, s.runs.Load())
			}
		}
	}
}

// An explicit handler keeps the name of its call in all rounds.
func TestCallsKeepTheirName(t *testing.T) {
	for _, how := range []server.Asking{0, server.Waits, server.Reruns} {
		var mu sync.Mutex
		ids := map[string]bool{}
		make := func() *server.Server {
			clear(ids)
			s := newServer(server.Options{})
			tool := func(ctx context.Context, _ struct{}) (string, error) {
				r := server.RequestFrom(ctx)
				mu.Lock()
				ids[r.CallID()] = true
				mu.Unlock()
				if how != 0 {
					err := server.Confirm(ctx, "Sure?")
					mu.Lock()
					ids[server.RequestFrom(ctx).CallID()] = true
					mu.Unlock()
					return "", err
				}
				if r.Answers == nil {
					return "", &server.InputRequired{Requests: named("a")}
				}
				return "", nil
			}
			if how == 0 {
				server.AddTool(s, protocol.Tool{Name: "t"}, tool)
			} else {
				server.AddTool(s, protocol.Tool{Name: "t"}, tool, server.Asks(how, forms))
			}
			return s
		}
		everywhere(t, make, client.Options{Elicit: fillIn}, func(t *testing.T, _ *server.Server, session *client.Session) {
			for calls := 1; calls <= 2; calls++ {
				if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t"}); err != nil || result.IsError {
					t.Fatalf("got %+v, %v", result, err)
				}
				mu.Lock()
				if len(ids) != calls || ids[""] {
					t.Errorf("%d calls had the names %v", calls, ids)
				}
				mu.Unlock()
			}
		})
	}
}

// Guarantees: G-0031.4
func TestStatesExpire(t *testing.T) {
	for _, name := range []string{"one reruns", "explicit"} {
		synctest.Test(t, func(t *testing.T) {
			s := new(shop)
			srv := s.server(server.Options{})
			w := dial(t, srv)
			first := w.round(name, "")
			pass(10*time.Minute + time.Second)
			s.runs.Store(0)
			if got := w.round(name, again(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "expired") || s.runs.Load() != 0 {
				t.Errorf("%s: got %+v", name, got)
			}
			srv.Close(context.Background())
		})
	}
}
