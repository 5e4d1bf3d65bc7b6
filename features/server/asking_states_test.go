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

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// withForms returns a modern request of a client that can fill in forms.
func withForms(id, method, params string) string {
	return strings.Replace(modern(id, method, params), `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
}

// A round is the result of one round of a call: questions, a result or an error.
type round struct {
	Keys  []string
	State string
	Text  string
	Error *fault
}

// round makes a call and reads the answer.
func (w *rawPeer) round(tool, more string) (r round) {
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

// retryParams returns the members that a retry adds to its call.
func retryParams(state, answers string) string {
	return fmt.Sprintf(`,"requestState":%q,"inputResponses":{%s}`, state, answers)
}

const yes = `"1":{"action":"accept","content":{}}`

func (f *fault) is(code int64, text string) bool {
	return f != nil && f.Code == code && strings.Contains(f.Message+string(f.Data), text)
}

// A state is accepted once, for the call that it was made for. A changed, cut, empty,
// too large or used state is refused before the handler runs.
//
// Guarantees: G-0031.4
func TestStateIsValidOnceForOneCall(t *testing.T) {
	s := new(shop)
	secret := make([]byte, 32)
	srv := s.server(server.Options{Asking: server.AskingOptions{Secrets: fixed(secret)}})
	w := dial(t, srv)
	for _, name := range []string{"one_waits", "one_reruns"} {
		first := w.round(name, "")
		if len(first.Keys) != 1 || first.State == "" {
			t.Fatalf("%s: got %+v", name, first)
		}
		s.runs.Store(0)
		for i := 2; i < len(first.State); i++ { // change one character at a time
			other := byte('A')
			if first.State[i] == 'A' {
				other = 'B'
			}
			w.link.Grant(transport.Main, 1) // one credit for each answer
			changed := first.State[:i] + string(other) + first.State[i+1:]
			if got := w.round(name, retryParams(changed, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
				t.Fatalf("%s: character %d: got %+v, want the error %d with %q", name, i, got, jsonrpc.CodeInvalidParams, "invalid_request_state")
			}
		}
		for what, got := range map[string]round{
			"cut":             w.round(name, retryParams(first.State[:40], yes)),
			"empty":           w.round(name, retryParams("", yes)),
			"too large":       w.round(name, retryParams("1."+strings.Repeat("A", 65<<10), yes)),
			"of another tool": w.round("explicit", retryParams(first.State, yes)),
		} {
			if !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
				t.Errorf("%s, %s: got %+v, want the error %d with %q", name, what, got, jsonrpc.CodeInvalidParams, "invalid_request_state")
			}
		}
		if n := s.runs.Load(); n != 0 {
			t.Errorf("%s: the handler ran %d times for invalid states, want 0", name, n)
		}
		if got := w.round(name, retryParams(first.State, yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("%s: got %+v, want %q in it", name, got, "confirmed")
		}
		s.runs.Store(0)
		if got := w.round(name, retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "anew") || s.runs.Load() != 0 {
			t.Errorf("%s: used: got %+v, %d runs, want the error %d with %q and s.runs.Load() == 0", name, got, s.runs.Load(), jsonrpc.CodeInvalidParams, "anew")
		}
	}
}

// When twenty clients retry with the same state at once, one call passes and the others
// are refused.
//
// Guarantees: G-0031.4
func TestOneOfManyRetriesPasses(t *testing.T) {
	for _, name := range []string{"one_waits", "one_reruns"} {
		s := new(shop)
		srv := s.server(server.Options{})
		state := dial(t, srv).round(name, "").State
		s.runs.Store(0)
		var passed, refused atomic.Int64
		var racing sync.WaitGroup
		for range 20 {
			w := dial(t, srv)
			racing.Go(func() {
				w.send(withForms(`1`, "tools/call", `"name":"`+name+`"`+retryParams(state, yes)))
				if frame := <-w.frames; strings.Contains(frame, "confirmed") {
					passed.Add(1)
				} else if strings.Contains(frame, "invalid_request_state") {
					refused.Add(1)
				}
			})
		}
		testenv.Within(t, "every retry is answered", racing.Wait)
		if passed.Load() != 1 || refused.Load() != 19 || s.runs.Load() > 1 {
			t.Errorf("%s: %d passed, %d were refused, %d runs; want 1, 19 and at most 1", name, passed.Load(), refused.Load(), s.runs.Load())
		}
	}
}

// A state is bound to the values of the arguments. Their order and encoding may change,
// their values may not.
func TestStateIsBoundToTheValuesOfTheArguments(t *testing.T) {
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
		if got := w.round("t", `,"arguments":`+arguments+retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
			t.Errorf("%s: got %+v, want the error %d with %q", arguments, got, jsonrpc.CodeInvalidParams, "invalid_request_state")
		}
	}
	if got := w.round("t", `,"arguments":{ "b":"\u00e9", "a":1e1}`+retryParams(first.State, yes)); !strings.Contains(got.Text, "10é") {
		t.Errorf("got %+v, want %q in it", got, "10é")
	}
}

// fixed returns secrets that never change.
func fixed(secrets ...[]byte) func() [][]byte { return func() [][]byte { return secrets } }

// With Fleet, any node that has the secret accepts a retry, also while the secrets are
// being rotated. Without Fleet, another node refuses the state of a handler that Waits.
//
// Guarantees: G-0031.5
func TestRetriesGoToAnyNodeOfAFleet(t *testing.T) {
	old, young := make([]byte, 32), make([]byte, 32)
	young[0] = 1
	node := func(s *shop, secrets ...[]byte) *rawPeer {
		return dial(t, s.server(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: fixed(secrets...)}}))
	}
	s := new(shop)
	states := map[string]string{}
	a := node(s, old)
	states["old"] = a.round("one_reruns", "").State
	b := node(s, old, young)
	for what, w := range map[string]*rawPeer{"another node": b, "the new secret second": node(s, old, young), "the new secret first": node(s, young, old)} {
		if got := w.round("one_reruns", retryParams(states["old"], yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("%s: got %+v, want %q in it", what, got, "confirmed")
		}
	}
	if got := node(s, young).round("one_reruns", retryParams(states["old"], yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
		t.Errorf("a retired secret: got %+v, want the error %d with %q", got, jsonrpc.CodeInvalidParams, "invalid_request_state")
	}
	wantPanic(t, "no secrets", "Secrets", func() { newServer(server.Options{Asking: server.AskingOptions{Fleet: true}}) })
	wantPanic(t, "none at first", "no secret", func() { newServer(server.Options{Asking: server.AskingOptions{Secrets: fixed()}}) })
	wantPanic(t, "short secret", "32", func() { newServer(server.Options{Asking: server.AskingOptions{Secrets: fixed([]byte{1})}}) })
	wantPanic(t, "waits in a fleet", "Fleet", func() {
		server.AddTool(newServer(server.Options{Asking: server.AskingOptions{Fleet: true, Secrets: fixed(old)}}), protocol.Tool{Name: "t"}, s.one, server.Asks(server.Waits, forms))
	})
	// A node that does not have the waiting call says that another node has it.
	one := dial(t, s.server(server.Options{Asking: server.AskingOptions{Secrets: fixed(old)}}))
	other := dial(t, s.server(server.Options{Asking: server.AskingOptions{Secrets: fixed(old)}}))
	waiting := one.round("one_waits", "")
	s.runs.Store(0)
	if got := other.round("one_waits", retryParams(waiting.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "another node") || s.runs.Load() != 0 {
		t.Errorf("got %+v, want the error %d with %q and s.runs.Load() == 0", got, jsonrpc.CodeInvalidParams, "another node")
	}
	if got := one.round("one_waits", retryParams(waiting.State, yes)); !strings.Contains(got.Text, "confirmed") {
		t.Errorf("got %+v, want %q in it", got, "confirmed")
	}
}

// An answer that does not fit its question is refused and does not use up the state. A
// missing answer is asked for again. Without a state, answers to later questions are
// accepted early.
//
// Guarantees: G-0031.6
func TestAnswersAreChecked(t *testing.T) {
	for _, name := range []string{"two_waits", "two_reruns"} {
		w := dial(t, new(shop).server(server.Options{}))
		first := w.round(name, "")
		answer := func(text string) round { return w.round(name, retryParams(first.State, text)) }
		for _, bad := range []string{`"1":12345`, `"1":{"action":"maybe"}`, `"1":{}`} {
			if got := answer(bad); !got.Error.is(jsonrpc.CodeInvalidParams, `"1"`) {
				t.Errorf("%s: %s: got %+v, want the error %d with %q", name, bad, got, jsonrpc.CodeInvalidParams, `"1"`)
			}
		}
		// The bad answers have not used up the state. A missing answer is asked for
		// again.
		missing := answer(`"other":{"action":"accept","content":{}}`)
		if len(missing.Keys) != 1 || missing.Keys[0] != "1" || missing.State == first.State {
			t.Fatalf("%s: got %+v", name, missing)
		}
		if got := answer(yes); !got.Error.is(jsonrpc.CodeInvalidParams, "anew") {
			t.Errorf("%s: a state that was replaced: got %+v, want the error %d with %q", name, got, jsonrpc.CodeInvalidParams, "anew")
		}
		first = missing
		second := answer(`"1":{"action":"accept","content":{"size":"large"}}`)
		if len(second.Keys) != 1 || second.Keys[0] != "large" {
			t.Fatalf("%s: got %+v, want len(second.Keys) == 1 and second.Keys[0] == %q", name, second, "large")
		}
		first = second
		if got := answer(`"large":{"action":"accept","content":{"large":"yes"}},"1":{"action":"decline"}`); !strings.Contains(got.Text, "large yes") {
			t.Errorf("%s: got %+v, want %q in it", name, got, "large yes")
		}
		// Without a state, the answers that the handler asks for are used, and the rest
		// is ignored.
		if got := w.round(name, `,"inputResponses":{"1":{"action":"accept","content":{"size":"small"}},"small":{"action":"accept","content":{"small":"s"}},"x":7}`); !strings.Contains(got.Text, "small s") {
			t.Errorf("%s: without a state: got %+v, want %q in it", name, got, "small s")
		}
		if got := w.round(name, `,"inputResponses":{"1":{"action":"accept","content":{"size":"huge"}}}`); !got.Error.is(jsonrpc.CodeInvalidParams, `"1"`) {
			t.Errorf("%s: not in the enum: got %+v, want the error %d with %q", name, got, jsonrpc.CodeInvalidParams, `"1"`)
		}
	}
}

// A state is refused for any identity other than the one it was given to.
//
// Guarantees: G-0031.4
func TestStateBelongsToItsCaller(t *testing.T) {
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
	for _, name := range []string{"one_waits", "one_reruns", "explicit"} {
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

// A call with all its rounds takes an hour at most, however quickly each question is answered. After that its state is refused, and
// the question of a handler that waits fails. A state that is younger is accepted.
//
// Guarantees: G-0031.4, G-0031.7
func TestACallWithAllItsRoundsExpires(t *testing.T) {
	for _, limit := range []time.Duration{0, 25 * time.Minute} {
		for _, name := range []string{"reruns", "explicit", "waits", "waits-and-returns"} {
			testenv.Bubble(t, func(t *testing.T) {
				s := newServer(server.Options{Asking: server.AskingOptions{CallExpiry: limit}})
				var runs atomic.Int64
				failed := make(chan error, 1)
				ask := func(ctx context.Context, _ struct{}) (string, error) {
					runs.Add(1)
					for {
						if err := server.Confirm(ctx, "And now?"); err != nil {
							failed <- err
							return "", err
						}
					}
				}
				server.AddTool(s, protocol.Tool{Name: "waits"}, ask, server.Asks(server.Waits, forms))
				server.AddTool(s, protocol.Tool{Name: "reruns"}, func(ctx context.Context, _ struct{}) (string, error) {
					runs.Add(1)
					for {
						if err := server.Confirm(ctx, "And now?"); err != nil {
							return "", err
						}
					}
				}, server.Asks(server.Reruns, forms))
				returns := func(context.Context, struct{}) (string, error) {
					runs.Add(1)
					return "", &server.InputRequired{Requests: question("a")}
				}
				server.AddTool(s, protocol.Tool{Name: "explicit"}, returns)
				server.AddTool(s, protocol.Tool{Name: "waits-and-returns"}, returns, server.Asks(server.Waits, forms))
				w := dial(t, s)
				answer := func(last round) round {
					with := fmt.Sprintf(`%q:{"action":"accept","content":{"a":"x"}}`, last.Keys[0])
					return w.round(name, retryParams(last.State, with))
				}
				began, limit := time.Now(), limit
				if limit == 0 {
					limit = time.Hour
				}
				last := w.round(name, "")
				for time.Since(began)+9*time.Minute < limit {
					pass(9 * time.Minute) // each question could be answered for ten
					if last = answer(last); last.State == "" {
						t.Fatalf("%s: after %v: got %+v, want another question", name, time.Since(began), last)
					}
				}
				pass(limit - time.Since(began) + time.Second)
				runs.Store(0)
				got := answer(last)
				if !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") || runs.Load() != 0 {
					t.Errorf("%s: after %v: got %+v and %d runs, want the error %d and none", name, time.Since(began), got, runs.Load(), jsonrpc.CodeInvalidParams)
				}
				if name == "waits" {
					synctest.Wait()
					select {
					case err := <-failed:
						if !errors.Is(err, server.ErrUnanswered) || !strings.Contains(err.Error(), limit.String()) {
							t.Errorf("the question failed with %v, want %v and the limit", err, server.ErrUnanswered)
						}
					default:
						t.Error("the question of the handler has not failed")
					}
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A state has at most 64 KiB. A handler whose state is larger fails, and the error names the limit.
//
// Guarantees: G-0031.4
func TestTheSizeOfAStateIsBounded(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, in struct{ Size int }) (string, error) {
		var before string
		if later, err := server.RequestFrom(ctx).State(&before); later {
			return fmt.Sprint("state of ", len(before)), err
		}
		return "", &server.InputRequired{State: strings.Repeat("a", in.Size)}
	})
	w := dial(t, s)
	largest := 0
	for low, high := 47<<10, 48<<10; low < high; { // the largest that is sealed, in base64
		size := (low + high + 1) / 2
		got := w.ask(withForms(`1`, "tools/call", fmt.Sprintf(`"name":"t","arguments":{"Size":%d}`, size)))
		w.link.Grant(transport.Main, 1)
		if got.Error == nil && string(got.Result["requestState"]) != "" {
			low, largest = size, len(got.Result["requestState"])-len(`""`)
		} else {
			high = size - 1
			if text := fmt.Sprint(got.text("content"), got.Error); !strings.Contains(text, "which is more than 65536") {
				t.Fatalf("%d bytes: got %.200s, want the limit", size, text)
			}
		}
		if low == high {
			again := w.ask(withForms(`1`, "tools/call", fmt.Sprintf(`"name":"t","arguments":{"Size":%d},"requestState":%s`, low, w.ask(withForms(`1`, "tools/call", fmt.Sprintf(`"name":"t","arguments":{"Size":%d}`, low))).Result["requestState"])))
			if !strings.Contains(again.text("content"), fmt.Sprint("state of ", low)) {
				t.Errorf("the largest state is refused: %s, %v", again.Result, again.Error)
			}
		}
	}
	if largest > 64<<10 || largest < 64<<10-4 {
		t.Errorf("the largest state has %d bytes, want %d, or a little less", largest, 64<<10)
	}
}

// An answer of a client is refused unless it is one to a question of its kind, and has what that kind needs. What is wrong with it the client is
// told in few words.
//
// Guarantees: G-0031.6
func TestEachKindOfAnswerIsChecked(t *testing.T) {
	asked := question("form")
	asked["model"] = &protocol.CreateMessageParams{Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}, MaxTokens: 1}
	asked["roots"] = &protocol.ListRootsParams{}
	needs := protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}, Sampling: &protocol.SamplingCapability{}, Roots: &protocol.RootsCapability{}}
	s := newServer(server.Options{})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			answers, err := server.Ask(ctx, asked)
			if err != nil {
				return "a result all the same", nil
			}
			return fmt.Sprint(len(answers)), nil
		}, server.Asks(how, needs))
	}
	w := dial(t, s)
	fitting := map[string]string{
		"form":  `{"action":"accept","content":{"form":"x"}}`,
		"model": `{"role":"assistant","model":"m","content":{"type":"text","text":"hello"}}`,
		"roots": `{"roots":[]}`,
	}
	const none = "no error"
	for _, test := range []struct{ key, answer, says string }{
		{"form", fitting["form"], none},
		{"form", `{"action":"decline"}`, none},
		{"form", `{"action":"accept"}`, `the answer to "form" is not valid: `},
		{"form", `{"action":"accept","content":{}}`, `the answer to "form" is not valid: `},
		{"form", `{"action":"` + strings.Repeat("x", 10_000) + `"}`, `the answer to "form" is not valid: unknown action "xxx`},
		{"form", `{"roots":[]}`, "it is no answer to an elicitation"},
		{"model", `{"role":"","model":"m","content":{"type":"text","text":"hello"}}`, "it is no message of a model"},
		{"model", `{"role":"assistant","model":"m"}`, "it is no message of a model"},
		{"model", `{"action":"accept"}`, "it is no message of a model"},
		{"roots", `{"action":"accept"}`, "it is no list of roots"},
	} {
		for _, tool := range []string{"waits", "reruns"} {
			call := func(more string) response {
				w.link.Grant(transport.Main, 1)
				return w.ask(strings.Replace(modern(`1`, "tools/call", `"name":"`+tool+`"`+more), `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{},"sampling":{},"roots":{}}`, 1))
			}
			var state string
			if err := json.Unmarshal(call("").Result["requestState"], &state); err != nil {
				t.Fatal(err)
			}
			var answers []string
			for key, answer := range fitting {
				if key == test.key {
					answer = test.answer
				}
				answers = append(answers, `"`+key+`":`+answer)
			}
			got := call(retryParams(state, strings.Join(answers, ",")))
			switch {
			case test.says == none:
				if !strings.Contains(got.text("content"), `"3"`) {
					t.Errorf("%s, %s: got %s, %v, want three answers", tool, test.answer, got.Result, got.Error)
				}
			case !got.Error.is(jsonrpc.CodeInvalidParams, test.says) || len(got.Error.Message) > 1_000:
				t.Errorf("%s, %.100s: got %s, %+v, want the error %d with %q, in few words", tool, test.answer, got.Result, got.Error, jsonrpc.CodeInvalidParams, test.says)
			}
		}
	}
}

// A state belongs to the server that sealed it: one of another name refuses it, although it has the same secrets and the same tool.
//
// Guarantees: G-0031.4
func TestAStateOfAServerOfAnotherNameIsRefused(t *testing.T) {
	var peers []*rawPeer
	for _, name := range []string{"one", "one", "other"} {
		s := server.New(protocol.Implementation{Name: name, Version: "1"}, server.Options{Asking: server.AskingOptions{Secrets: fixed(make([]byte, 32))}})
		server.AddTool(s, protocol.Tool{Name: "asks"}, new(shop).one, server.Asks(server.Reruns, forms))
		peers = append(peers, dial(t, s))
	}
	state := peers[0].round("asks", "").State
	if got := peers[2].round("asks", retryParams(state, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
		t.Errorf("the other server: got %+v, want the error %d", got, jsonrpc.CodeInvalidParams)
	}
	if got := peers[1].round("asks", retryParams(state, yes)); !strings.Contains(got.Text, "confirmed") {
		t.Errorf("a server of the same name: got %+v, want %q in it", got, "confirmed")
	}
}

// The state of a prompt or a resource that asks is for the same prompt with the same arguments, for the same URI, and for the same user. Elsewhere it
// is refused, and is still good.
//
// Guarantees: G-0031.4
func TestAStateOfAPromptOrAResourceIsForOneCall(t *testing.T) {
	s := newServer(server.Options{})
	sure := func(ctx context.Context, said string) (string, error) { return said, server.Confirm(ctx, "Sure?") }
	for _, name := range []string{"p", "q"} {
		server.AddPrompt(s, protocol.Prompt{Name: name}, func(ctx context.Context, in struct {
			A string `json:"a"`
		}) (string, error) {
			return sure(ctx, "prompt "+in.A)
		}, server.Asks(server.Reruns, forms))
	}
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{a}", Name: "x"}, func(ctx context.Context, in struct {
		A string `json:"a"`
	}) (string, error) {
		return sure(ctx, "resource "+in.A)
	}, server.Asks(server.Reruns, forms))
	ada, bob := dialAs(t, s, "ada"), dialAs(t, s, "bob")
	type request struct{ method, params string }
	for _, test := range []struct {
		request
		others []request
		want   string
	}{
		{request{"prompts/get", `"name":"p","arguments":{"a":"1"}`}, []request{
			{"prompts/get", `"name":"p","arguments":{"a":"2"}`}, {"prompts/get", `"name":"q","arguments":{"a":"1"}`},
		}, "prompt 1"},
		{request{"resources/read", `"uri":"x://1"`}, []request{{"resources/read", `"uri":"x://2"`}}, "resource 1"},
	} {
		var state string
		if err := json.Unmarshal(ada.ask(withForms(`1`, test.method, test.params)).Result["requestState"], &state); err != nil {
			t.Fatalf("%s: %v", test.method, err)
		}
		for _, other := range test.others {
			if got := ada.ask(withForms(`2`, other.method, other.params+retryParams(state, yes))); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
				t.Errorf("%s %s: got %s, %v, want the error %d", other.method, other.params, got.Result, got.Error, jsonrpc.CodeInvalidParams)
			}
		}
		if got := bob.ask(withForms(`3`, test.method, test.params+retryParams(state, yes))); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
			t.Errorf("%s by somebody else: got %s, %v, want the error %d", test.method, got.Result, got.Error, jsonrpc.CodeInvalidParams)
		}
		ada.send(withForms(`4`, test.method, test.params+retryParams(state, yes)))
		ada.want(test.want)
	}
}

// A state is good until its question expires, and not a second longer.
//
// Guarantees: G-0031.4
func TestAStateExpiresWithItsQuestion(t *testing.T) {
	for after, good := range map[time.Duration]bool{10*time.Minute - time.Second: true, 10 * time.Minute: false} {
		testenv.Bubble(t, func(t *testing.T) {
			w := dial(t, new(shop).server(server.Options{}))
			state := w.round("one_reruns", "").State
			pass(after)
			if got := w.round("one_reruns", retryParams(state, yes)); strings.Contains(got.Text, "confirmed") != good {
				t.Errorf("after %v: got %+v, %v, want that it is good: %t", after, got, got.Error, good)
			}
		})
	}
}
