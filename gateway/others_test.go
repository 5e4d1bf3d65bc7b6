package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A cursor is the place in a list, and no key: with that of another user, a user gets what is there of his own list.
//
// Guarantees: G-0088.1, G-0098.1
func TestCursorOfAnotherUser(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	for i := range 300 {
		server.AddTool(s, protocol.Tool{Name: fmt.Sprintf("%c%03d", 'a'+i%2, i)}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	f := newFleetFor(t, protocol.Latest, map[string]*server.Server{"s": s}, gateway.Options{},
		load(t, `{"mcpServers":{"s":{"command":"/bin/s"}},"bowline":{"policy":[{"who":"token ada","allow":["*"]},{"who":"token bob","allow":["s/b*"]},{"deny":["*"]}]}}`))
	page := func(session *client.Session, params string) (names []string, next *string, err error) {
		raw, err := session.Request(timeout(t), protocol.MethodListTools, json.RawMessage(params))
		var result struct {
			Tools      []protocol.Tool
			NextCursor *string
		}
		if err == nil {
			err = json.Unmarshal(raw, &result)
		}
		for _, tool := range result.Tools {
			names = append(names, tool.Name)
		}
		return names, result.NextCursor, err
	}
	f.identity = "token ada"
	ada := f.client(protocol.Latest, client.Options{})
	f.identity = "token bob"
	bob := f.client(protocol.Latest, client.Options{})
	first, cursor, err := page(ada, `{}`)
	failOn(t, err)
	if cursor == nil || len(first) == 0 || !strings.HasPrefix(first[0], "s__a") {
		t.Fatalf("ada gets %d tools from %q, and the cursor %v", len(first), first[:1], cursor)
	}
	names, _, err := page(bob, fmt.Sprintf(`{"cursor":%q}`, *cursor))
	if err != nil || len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "s__b") }) {
		t.Errorf("bob gets %q, %v", names, err)
	}
}

// byHand makes a call and answers by hand.
func byHand(ctx context.Context, session *client.Session, answers protocol.InputResponses, state *string) (*protocol.CallToolResult, error) {
	return session.With(client.CallOptions{ManualInput: true}).CallTool(ctx, &protocol.CallToolParams{
		Name: "a__form", InputParams: protocol.InputParams{InputResponses: answers, RequestState: state},
	})
}

// answered returns the answers to what a result asks.
func answered(t *testing.T, result *protocol.CallToolResult, err error) (answers protocol.InputResponses, state *string) {
	t.Helper()
	failOn(t, err)
	if result.InputRequired == nil {
		t.Fatalf("nothing is asked: %s", result.Content.Text())
	}
	answers = protocol.InputResponses{}
	for key := range result.InputRequired.InputRequests {
		answers[key] = &protocol.ElicitResult{Action: protocol.ElicitAccept}
	}
	return answers, result.InputRequired.RequestState
}

// Answers that nobody has asked for are ignored: alone, and beside those that were asked for.
//
// Guarantees: G-0088.5
func TestAnswersNobodyHasAskedFor(t *testing.T) {
	for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
		s, runs := questioner()
		session := newFleet(t, back, map[string]*server.Server{"a": s}).client(protocol.Latest, user("me"))
		unasked := &protocol.ElicitResult{Action: protocol.ElicitDecline}
		result, err := byHand(timeout(t), session, protocol.InputResponses{"nobody": unasked}, nil)
		answers, state := answered(t, result, err)
		answers["nobody"] = unasked
		result, err = byHand(timeout(t), session, answers, state)
		if got := outcome(result, err); got != protocol.ElicitAccept || runs() != 1 {
			t.Errorf("%s: %s, and the tool ran %d times", back, got, runs())
		}
	}
}

// What one user is asked, another one cannot answer: that is refused, and the call lives on for the user that it belongs to. Of two answers at a time one counts.
//
// Guarantees: G-0088.5
func TestQuestionThatAnotherUserAnswers(t *testing.T) {
	for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
		s, runs := questioner()
		f := newFleet(t, back, map[string]*server.Server{"a": s})
		f.identity = "one"
		one := f.client(protocol.Latest, user("one"))
		result, err := byHand(timeout(t), one, nil, nil)
		answers, state := answered(t, result, err)
		for _, identity := range []string{"other", ""} {
			f.identity = identity
			_, err := byHand(timeout(t), f.client(protocol.Latest, user("other")), answers, state)
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s: %q answers for another: %v", back, identity, err)
			}
		}
		got := make(chan string, 2)
		for range 2 {
			go func() { got <- outcome(byHand(timeout(t), one, answers, state)) }()
		}
		both := []string{<-got, <-got}
		if !slices.Contains(both, protocol.ElicitAccept) || runs() != 1 {
			t.Errorf("%s: its own answers lead to %q, and the tool ran %d times", back, both, runs())
		}
	}
}

// A requestState that does not hold is refused over HTTP whichever way that is, counted, and recorded with who has sent it, for what, and why, and without the state. The call goes on for the user that it belongs to, once.
//
// Guarantees: G-0088.5, G-0099.21
func TestStatesThatDoNotHold(t *testing.T) {
	for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(back, func(t *testing.T) { statesThatDoNotHold(t, back) })
	}
}

func statesThatDoNotHold(t *testing.T, back string) {
	s, runs := questioner()
	r := new(recorder)
	f := newFleetWith(t, back, map[string]*server.Server{"a": s}, gateway.Options{Audit: r.write})
	ada, bob := f.over(t, "ada"), f.over(t, "bob")
	result, err := byHand(timeout(t), ada, nil, nil)
	answers, state := answered(t, result, err)
	behind, _ := questioner()
	other := newFleet(t, back, map[string]*server.Server{"a": behind})
	result, err = byHand(timeout(t), other.over(t, "ada"), nil, nil)
	_, elsewhere := answered(t, result, err)

	rows := []struct {
		name, state, tool string
		by                *client.Session
		user              person
	}{
		{"changed at its end", (*state)[:len(*state)-1] + map[bool]string{true: "B", false: "A"}[strings.HasSuffix(*state, "A")], "a__form", ada, "ada"},
		{"changed in its middle", flipped(*state, len(*state)/2), "a__form", ada, "ada"},
		{"of another version", flipped(*state, 0), "a__form", ada, "ada"},
		{"cut", (*state)[:len(*state)-8], "a__form", ada, "ada"},
		{"empty", "", "a__form", ada, "ada"},
		{"too long", strings.Repeat("A", 65<<10), "a__form", ada, "ada"},
		{"of another user", *state, "a__form", bob, "bob"},
		{"of another tool", *state, "a__sample", ada, "ada"},
		{"of another gateway", *elsewhere, "a__form", ada, "ada"},
		{"used", *state, "a__form", ada, "ada"},
	}
	for i, row := range rows {
		if row.name == "used" {
			if got := outcome(byHand(timeout(t), ada, answers, state)); got != protocol.ElicitAccept {
				t.Errorf("after all that, its own user gets %s", got)
			}
		}
		before := len(r.records())
		_, err := row.by.With(client.CallOptions{ManualInput: true}).CallTool(timeout(t), &protocol.CallToolParams{
			Name: row.tool, InputParams: protocol.InputParams{InputResponses: answers, RequestState: &row.state},
		})
		fault := (*jsonrpc.Error)(nil)
		if !errors.As(err, &fault) || !protocol.IsInvalidParams(fault, protocol.ReasonRequestState) {
			t.Fatalf("%s: %v", row.name, err)
		}
		if refused := f.Report().StatesRefused; refused != uint64(i+1) {
			t.Errorf("%s: the report counts %d", row.name, refused)
		}
		records := r.records()[before:]
		if len(records) != 1 {
			t.Errorf("%s: %d records", row.name, len(records))
			continue
		}
		got, text := records[0], fmt.Sprintf("%+v", records[0])
		if got.Principal != row.user.Identity() || got.Method != protocol.MethodCallTool || got.Name != row.tool || got.Code != jsonrpc.CodeInvalidParams || got.Reason != fault.Message || !strings.Contains(got.Reason, "requestState") {
			t.Errorf("%s: %s", row.name, text)
		}
		if strings.Contains(text, *state) || strings.Contains(text, *elsewhere) || strings.Contains(text, "AAAA") {
			t.Errorf("%s: the state is in the record", row.name)
		}
	}
	if runs() != 1 {
		t.Errorf("the tool ran %d times", runs())
	}
}

// What a server refuses is its own: no text of it is in the record, nothing is counted, and the client gets its error. The state of a call that goes on in another process can be read, and the call cannot go on.
// Its record says that, and not that it was changed.
//
// Guarantees: G-0099.21
func TestStatesOfCallsThatAreOver(t *testing.T) {
	for back, want := range map[string]struct {
		counted uint64
		why     string
	}{
		protocol.LatestLegacy: {1, "the call waits on another node, or is over: make it anew"},
		protocol.Latest:       {0, ""}, // the call goes on at the server, which is another one, too, and refuses its own state
	} {
		r := new(recorder)
		start := func() (*fleet, *client.Session) {
			s, _ := questioner()
			server.AddTool(s, protocol.Tool{Name: "refuses"}, func(context.Context, struct{}) (string, error) {
				return "", protocol.InvalidParams(protocol.ReasonRequestState, "s3cret")
			})
			secrets := func() [][]byte { return [][]byte{[]byte(strings.Repeat("s", 32))} }
			o := gateway.Options{Audit: r.write, Server: server.Options{Asking: server.AskingOptions{Secrets: secrets}}}
			f := newFleetWith(t, back, map[string]*server.Server{"a": s}, o)
			return f, f.client(protocol.Latest, user("ada"))
		}
		_, before := start()
		result, err := byHand(timeout(t), before, nil, nil)
		answers, state := answered(t, result, err)
		f, after := start()
		check := func(what string, err error, counted uint64, why string) {
			t.Helper()
			if fault := (*jsonrpc.Error)(nil); !errors.As(err, &fault) || !protocol.IsInvalidParams(fault, protocol.ReasonRequestState) {
				t.Errorf("%s, %s: %v", back, what, err)
			}
			all := r.records()
			if got := all[len(all)-1]; got.Code != jsonrpc.CodeInvalidParams || got.Reason != why || f.Report().StatesRefused != counted {
				t.Errorf("%s, %s: %d are counted, want %d, and the record is %+v, want why: %q", back, what, f.Report().StatesRefused, counted, got, why)
			}
		}
		_, err = after.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__refuses"})
		check("a refusal by the server", err, 0, "")
		_, err = byHand(timeout(t), after, answers, state)
		check("a state of another process", err, want.counted, want.why)
	}
}

// flipped returns a text with another letter in one place.
func flipped(text string, at int) string {
	changed := []byte(text)
	if changed[at]++; changed[at] > 'y' {
		changed[at] = 'b'
	}
	return string(changed)
}

// over returns the session of a user with the gateway over HTTP.
func (f *fleet) over(t *testing.T, who person) *client.Session {
	t.Helper()
	endpoint := streamable.NewHandler(f.Server(), streamable.HandlerOptions{Check: func(r *http.Request) (streamable.Caller, *streamable.Denial) {
		return streamable.NewCaller(person(tokenOf(r)).Identity()), nil
	}})
	site := httptest.NewServer(endpoint)
	t.Cleanup(func() {
		endpoint.Shutdown(context.Background(), site.Config)
		site.Close()
	})
	to := &streamable.Client{URL: site.URL, Header: http.Header{"Authorization": {"Bearer " + string(who)}}}
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, user(string(who))).Connect(timeout(t), to)
	failOn(t, err)
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}
