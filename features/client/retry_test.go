package client_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

const emptyPage = `{"tools":[]}`

// closingOnFirst returns a server with tools that closes its link at the first request of a
// method.
func closingOnFirst(of string, results map[string]string) *fakeServer {
	s := answering(results)
	inner, died := s.answer, false
	s.answer = func(f frame) []string {
		if f.Method == of && !died {
			died = true
			s.cut()
			return nil
		}
		return inner(f)
	}
	return s
}

// linksOf returns the numbers of the links on which a method was requested.
func (s *fakeServer) linksOf(method string) []int {
	var on []int
	for _, f := range s.received(method) {
		on = append(on, f.Link)
	}
	return on
}

// After a loss, the client repeats lists, and tools that the call declares repeatable.
// It does not repeat a ping.
//
// Guarantees: G-0023.9
func TestWhichRequestsAreRepeated(t *testing.T) {
	for _, test := range []struct {
		method  string
		options client.CallOptions
		again   bool
	}{
		{protocol.MethodListTools, client.CallOptions{}, false},
		{protocol.MethodListTools, client.CallOptions{Retries: 1}, true},
		{protocol.MethodCallTool, client.CallOptions{Retries: 1}, false},
		{protocol.MethodCallTool, client.CallOptions{Repeatable: true}, false},
		{protocol.MethodCallTool, client.CallOptions{Retries: 1, Repeatable: true}, true},
		{protocol.MethodCallTool, client.CallOptions{Retries: 1, Repeatable: true, ToolMode: protocol.Stateful}, false},
		{protocol.MethodPing, client.CallOptions{Retries: 1}, false},
		{protocol.MethodPing, client.CallOptions{Retries: 1, WaitForReady: true}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := closingOnFirst(test.method, map[string]string{
				protocol.MethodListTools: emptyPage, protocol.MethodCallTool: `{"content":[]}`, protocol.MethodPing: `{}`,
			})
			var attempts []conn.Attempt
			test.options.OnAttempt = func(a conn.Attempt) { attempts = append(attempts, a) }
			session := openFake(t, s, client.Options{})
			err := callMethod(t, session.With(test.options), test.method)
			awaitReady(t, session)
			if test.again {
				if err != nil || !slices.Equal(s.linksOf(test.method), []int{1, 2}) || len(attempts) != 1 || attempts[0].Delivery != conn.Unknown {
					t.Errorf("%s with %+v: got %v, on links %v, attempts %v, want %v, len(attempts) == 1 and attempts[0].Delivery == %v", test.method, test.options, err, s.linksOf(test.method), attempts, []int{1, 2}, conn.Unknown)
				}
				return
			}
			var failed *conn.CallError
			if !errors.As(err, &failed) || failed.Delivery != conn.Unknown || len(s.received(test.method)) != 1 || len(attempts) != 0 {
				t.Errorf("%s with %+v: got %v, on links %v, attempts %v", test.method, test.options, err, s.linksOf(test.method), attempts)
			}
		})
	}
}

// The annotations of a tool make it repeatable only if the program trusts the server.
// The latest list counts.
//
// Guarantees: G-0023.9
func TestAnnotationsNeedATrustedServer(t *testing.T) {
	const list = `{"tools":[{"name":"x","inputSchema":{},"annotations":`
	for _, test := range []struct {
		name    string
		trusted bool
		lists   []string // the annotations in each list
		again   bool
	}{
		{"never listed", true, nil, false},
		{"read only", true, []string{`{"readOnlyHint":true}`}, true},
		{"idempotent", true, []string{`{"idempotentHint":true}`}, true},
		{"neither", true, []string{`{"title":"read","destructiveHint":false}`}, false},
		{"no longer", true, []string{`{"readOnlyHint":true}`, `{}`}, false},
		{"by now", true, []string{`{}`, `{"readOnlyHint":true}`}, true},
		{"not trusted", false, []string{`{"readOnlyHint":true,"idempotentHint":true}`}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := closingOnFirst(protocol.MethodCallTool, map[string]string{protocol.MethodCallTool: `{"content":[]}`})
			inner := s.answer
			s.answer = func(f frame) []string {
				if f.Method != protocol.MethodListTools {
					return inner(f)
				}
				answer := f.result(list + test.lists[0] + `}]}`)
				test.lists = test.lists[1:]
				return []string{answer}
			}
			session := openFake(t, s, client.Options{TrustAnnotations: test.trusted})
			for len(test.lists) > 0 {
				if _, err := session.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			_, err := callTool(t, session.With(client.CallOptions{Retries: 1}), "x", "")
			if (err == nil) != test.again || len(s.received(protocol.MethodCallTool)) == 2 != test.again {
				t.Errorf("%s: got %v after %d calls", test.name, err, len(s.received(protocol.MethodCallTool)))
			}
		})
	}
}

// eraChangingServer returns a server that has one era on its first link and the other one on
// later links. It closes the link at the first call of a tool.
func eraChangingServer(modernFirst bool) *fakeServer {
	s := closingOnFirst(protocol.MethodCallTool, nil)
	inner := s.answer
	s.answer = func(f frame) []string {
		modern := modernFirst == (f.Link == 1)
		switch {
		case f.Method == protocol.MethodDiscover && modern:
			return []string{f.result(discovered)}
		case f.Method == protocol.MethodDiscover || f.Method == protocol.MethodInitialize && modern:
			return []string{f.fault(-32601, `null`)}
		case f.Method == protocol.MethodCallTool:
			if answer := inner(f); answer != nil || len(s.received(f.Method)) == 1 {
				return answer
			}
			return []string{f.result(`{"resultType":"complete","content":[]}`)}
		default:
			return inner(f)
		}
	}
	return s
}

// Each attempt of a call has the form of the revision of its server, and its own id as
// progress token.
//
// Guarantees: G-0020.5, G-0023.8
func TestAttemptsHaveTheFormOfTheirServer(t *testing.T) {
	for _, modernFirst := range []bool{true, false} {
		for name, options := range map[string]client.CallOptions{
			"made again": {Retries: 1, Repeatable: true, ProgressRestarts: true},
			"waits":      {WaitForReady: true, ProgressRestarts: true},
		} {
			synctest.Test(t, func(t *testing.T) {
				s := eraChangingServer(modernFirst)
				session, err := connect(t, s, client.Options{}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				if options.WaitForReady { // the call begins without a server
					callTool(t, session, "x", "")
				}
				mine := &protocol.CallToolParams{Name: "x"}
				mine.SetMeta("mine", json.RawMessage(`1`))
				if _, err := session.With(options).CallTool(t.Context(), mine); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				calls := s.received(protocol.MethodCallTool)
				if len(calls) != 2 {
					t.Fatalf("%s: %d calls", name, len(calls))
				}
				for _, f := range calls {
					meta, modern := metaOf(t, f), modernFirst == (f.Link == 1)
					if _, says := meta[protocol.MetaProtocolVersion]; says != modern {
						t.Errorf("%s: on link %d, modern %t, got the _meta %s", name, f.Link, modern, meta)
					}
					if f.Link == 2 && (string(meta["mine"]) != `1` || string(meta[protocol.MetaProgressToken]) != string(f.ID)) {
						t.Errorf("%s: %s has the _meta %s", name, f.ID, meta)
					}
				}
				if len(mine.Meta) != 1 {
					t.Errorf("%s: the caller's params were changed to %v, want them unchanged", name, mine)
				}
			})
		}
	}
}

// A repeated call fails if the next server lacks the capability.
//
// Guarantees: G-0023.8
func TestCapabilitiesAreThoseOfTheServerOfTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := closingOnFirst(protocol.MethodListTools, map[string]string{protocol.MethodListTools: emptyPage})
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodInitialize && f.Link == 2 {
				return f.initialized(protocol.LatestLegacy, withoutTools)
			}
			return inner(f)
		}
		session := openFake(t, s, client.Options{})
		_, err := session.With(client.CallOptions{Retries: 1}).ListTools(t.Context(), nil)
		var failed *conn.CallError
		if !errors.As(err, new(*client.CapabilityError)) || !errors.As(err, &failed) || conn.NotExecuted(err) || len(failed.Attempts) != 1 {
			t.Errorf("got %v", err)
		}
		if on := s.linksOf(protocol.MethodListTools); !slices.Equal(on, []int{1}) {
			t.Errorf("got requests on the links %v, want %v", on, []int{1})
		}
	})
}
