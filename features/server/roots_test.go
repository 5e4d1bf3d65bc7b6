package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// withRoots has a client with capabilities. The tools "waits" and "reruns" say which roots it has.
func withRoots(t *testing.T, capabilities string) (*rawPeer, *server.Session) {
	o, sessions := sessionsOf(server.Options{})
	s := newServer(o)
	list := func(ctx context.Context, _ struct{}) (string, error) {
		var uris []string
		for range 2 { // the second question of a call is one of its own
			roots, err := server.Roots(ctx)
			if err != nil {
				return "", err
			}
			for _, root := range roots {
				uris = append(uris, root.URI)
			}
		}
		return strings.Join(uris, " "), nil
	}
	server.AddTool(s, protocol.Tool{Name: "waits"}, list, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	server.AddTool(s, protocol.Tool{Name: "reruns"}, list, server.Asks(server.Reruns, protocol.ClientCapabilities{}))
	w := dial(t, s)
	w.initializeWith(protocol.Version20251125, capabilities)
	return w, testenv.Receive(t, sessions, "a session")
}

// answerRoots reads a question for the roots and answers it.
func (w *rawPeer) answerRoots(roots string) {
	w.t.Helper()
	var asked struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if w.read(&asked); asked.Method != protocol.MethodListRoots {
		w.t.Fatalf("got %+v, want a question for the roots", asked)
	}
	w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,"result":{"roots":[` + roots + `]}}`)
}

func (w *rawPeer) callForRoots(tool string) {
	w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`)
}

// told is what Session.Roots returns while the client answers, or says nothing if it has to know them already.
func (w *rawPeer) told(session *server.Session, answer string) string {
	w.t.Helper()
	type outcome struct {
		roots []protocol.Root
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		roots, err := session.Roots(w.t.Context())
		done <- outcome{roots, err}
	}()
	if answer != "" {
		w.answerRoots(answer)
	}
	got := testenv.Receive(w.t, done, "the roots of the session")
	if got.err != nil {
		return got.err.Error()
	}
	var uris []string
	for i := range got.roots {
		uris = append(uris, got.roots[i].URI+string(got.roots[i].Meta["own"]))
		got.roots[i].URI = "file:///changed/by/the/program"
		if meta := got.roots[i].Meta; meta != nil {
			meta["own"] = json.RawMessage(`"changed by the program"`)
		}
	}
	return strings.Join(uris, " ")
}

// A client that reports changes of its roots is asked once outside of calls, and once more after each report. Calls ask each time: behind one session there may be
// several clients. What they are told is not kept.
//
// Guarantees: G-0106.6
func TestRootsOfASessionAreAskedForOnceAndAfterAChange(t *testing.T) {
	w, session := withRoots(t, `{"roots":{"listChanged":true}}`)
	for i, uri := range []string{"file:///a", "file:///b", "file:///c"} {
		if i > 0 {
			w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		}
		for _, tool := range []string{"waits", "reruns"} {
			w.callForRoots(tool)
			w.answerRoots(`{"uri":"file:///of/` + tool + `"}`)
			w.answerRoots(`{"uri":"file:///of/` + tool + `"}`)
			w.want(`"id":"call"`, `"text":"file:///of/`+tool+` file:///of/`+tool+`"`)
		}
		for _, answer := range []string{`{"uri":"` + uri + `","_meta":{"own":1}}`, "", ""} {
			if got := w.told(session, answer); got != uri+"1" {
				t.Fatalf("the session: got %q, want %s and its _meta", got, uri)
			}
		}
	}
}

// A report that comes while the client is asked makes the next caller ask again, since the answer may be from before it.
//
// Guarantees: G-0106.6
func TestRootsThatChangeDuringAQuestionAreAskedForAgain(t *testing.T) {
	w, session := withRoots(t, `{"roots":{"listChanged":true}}`)
	done := make(chan error, 1)
	go func() {
		_, err := session.Roots(t.Context())
		done <- err
	}()
	var asked struct {
		ID json.RawMessage `json:"id"`
	}
	w.read(&asked)
	w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	w.send(`{"jsonrpc":"2.0","id":` + string(asked.ID) + `,"result":{"roots":[{"uri":"file:///old"}]}}`)
	if err := testenv.Receive(t, done, "the old roots"); err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{`{"uri":"file:///new"}`, ""} {
		if got := w.told(session, answer); got != "file:///new" {
			t.Errorf("the session: got %q", got)
		}
	}
}

// A session asks at most 32 questions at a time, outside of calls too. What it has refused to ask counts no longer.
//
// Guarantees: G-0106.6
func TestTheQuestionsOfASessionAreBounded(t *testing.T) {
	w, session := withRoots(t, `{"roots":{}}`)
	for range 2 {
		ended := make(chan error, 32)
		for range cap(ended) {
			go func() {
				_, err := session.Roots(t.Context())
				ended <- err
			}()
		}
		var ids []string
		for range cap(ended) {
			ids = append(ids, idOf(w.next()))
		}
		for range 3 {
			if _, err := session.Roots(t.Context()); !errors.Is(err, server.ErrUnanswered) || !strings.Contains(err.Error(), "32 open questions") {
				t.Errorf("one question more: got %v, want %v", err, server.ErrUnanswered)
			}
			w.callForRoots("waits")
			w.want(`"id":"call"`, `"isError":true`, "32 open questions")
		}
		for _, id := range ids {
			w.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[]}}`)
		}
		for range cap(ended) {
			if err := testenv.Receive(t, ended, "the end of a question"); err != nil {
				t.Error(err)
			}
		}
	}
}

// A client that does not report changes, or whose answer was large or no list, is asked each time.
//
// Guarantees: G-0106.6
func TestRootsThatAreNotKeptAreAskedForEachTime(t *testing.T) {
	for name, test := range map[string]struct{ capabilities, root string }{
		"no reports": {`{"roots":{}}`, `{"uri":"file:///a"}`},
		"large":      {`{"roots":{"listChanged":true}}`, `{"uri":"file:///a","_meta":{"x":"` + strings.Repeat("x", 4096) + `"}}`},
		"long name":  {`{"roots":{"listChanged":true}}`, `{"uri":"file:///a","name":"` + strings.Repeat("x", 4096) + `"}`},
		"long key":   {`{"roots":{"listChanged":true}}`, `{"uri":"file:///a","_meta":{"` + strings.Repeat("x", 4096) + `":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			w, session := withRoots(t, test.capabilities)
			for range 2 {
				if got := w.told(session, test.root); got != "file:///a" {
					t.Errorf("the session: got %q", got)
				}
			}
		})
	}
	w, session := withRoots(t, `{"roots":{"listChanged":true}}`)
	if got := w.told(session, `7`); strings.HasPrefix(got, "file:") {
		t.Errorf("an answer that is no list of roots: got %q", got)
	}
	for _, answer := range []string{`{"uri":"file:///a"}`, ""} {
		if got := w.told(session, answer); got != "file:///a" {
			t.Errorf("the session: got %q", got)
		}
	}
}

// A question for the roots has a progress token and nothing else, if the program wants to know how far the answer is.
func TestAQuestionForTheRootsWithAProgressToken(t *testing.T) {
	w, session := withRoots(t, `{"roots":{}}`)
	done := make(chan error, 1)
	go func() {
		_, err := session.Roots(server.OnProgress(t.Context(), func(*protocol.ProgressParams) {}))
		done <- err
	}()
	frame := w.next()
	if id := idOf(frame); !strings.Contains(frame, `"params":{"_meta":{"progressToken":`+id+`}}`) {
		t.Errorf("got %s, want its id as the token", frame)
	} else {
		w.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[]}}`)
	}
	if err := testenv.Receive(t, done, "the roots"); err != nil {
		t.Error(err)
	}
}
