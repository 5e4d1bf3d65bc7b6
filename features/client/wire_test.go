package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// progressOf returns a progress notification for a request, with more members.
func progressOf(f frame, members string) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(f.ID) + `,` + members + `}}`
}

func TestResultsThatCannotBeRead(t *testing.T) {
	for method, results := range map[string][]string{
		protocol.MethodPing:      {`null`, `3`, `[]`},
		protocol.MethodListTools: {`null`, `[]`, `{}`, `{"tools":null}`, `{"tools":[null]}`, `{"tools":3}`},
		protocol.MethodCallTool:  {`null`, `[]`, `{}`, `{"content":null}`, `{"content":3}`},
	} {
		for _, result := range results {
			err := callMethod(t, openFake(t, answering(map[string]string{method: result}), client.Options{}), method)
			var failed *conn.CallError
			if !errors.As(err, &failed) || failed.Method != method || failed.ID == 0 {
				t.Errorf("%s answered with %s: got %v", method, result, err)
				continue
			}
			if failed.Cause != conn.Answered || failed.Delivery != conn.Sent || !errors.As(err, new(*client.ResultError)) {
				t.Errorf("%s answered with %s: got %v, want failed.Cause == %v, failed.Delivery == %v and a *client.ResultError", method, result, err, conn.Answered, conn.Sent)
			}
		}
	}
}

func callMethod(t *testing.T, s *client.Session, method string) (err error) {
	t.Helper()
	switch method {
	case protocol.MethodPing:
		return s.Ping(t.Context())
	case protocol.MethodListTools:
		_, err = s.ListTools(t.Context(), nil)
	default:
		_, err = s.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"})
	}
	return err
}

func TestUndecodableBlockKeepsTheResult(t *testing.T) {
	s := answering(map[string]string{protocol.MethodCallTool: `{"content":[{"type":"image","data":"A"},{"type":"text","text":"done"}]}`})
	result, err := callTool(t, openFake(t, s, client.Options{}), "x", "")
	if err != nil || result.Content.Text() != "done" {
		t.Errorf("got %+v, %v, want %q", result, err, "done")
	}
}

func TestStructuredContentAloneIsAResult(t *testing.T) {
	s := answering(map[string]string{protocol.MethodCallTool: `{"structuredContent":{"sum":3}}`})
	result, err := callTool(t, openFake(t, s, client.Options{}), "x", "")
	if err != nil || string(result.StructuredContent) != `{"sum":3}` {
		t.Errorf("got %+v, %v, want %q", result, err, `{"sum":3}`)
	}
}

func TestUnsentCallsCountAsNotExecuted(t *testing.T) {
	s := answering(nil)
	if _, err := callTool(t, openFake(t, s, client.Options{}), "x", `{`); !conn.NotExecuted(err) {
		t.Errorf("arguments that are no JSON: got %v", err)
	}
	bare := &fakeServer{answer: func(f frame) []string {
		if f.Method != protocol.MethodInitialize {
			return nil
		}
		return f.initialized(protocol.LatestLegacy, withoutTools)
	}}
	for _, waits := range []bool{false, true} {
		session := openFake(t, bare, client.Options{}).With(client.CallOptions{WaitForReady: waits})
		for _, method := range []string{protocol.MethodListTools, protocol.MethodCallTool} {
			err := callMethod(t, session, method)
			var failed *conn.CallError
			var missing *client.CapabilityError
			if !errors.As(err, &failed) || failed.Method != method || failed.Cause != conn.Refused || !conn.NotExecuted(err) ||
				!errors.As(err, &missing) || missing.Capability != "tools" {
				t.Errorf("%s without the capability: got %v", method, err)
			}
		}
	}
	for _, method := range []string{protocol.MethodListTools, protocol.MethodCallTool} {
		if sent := append(s.received(method), bare.received(method)...); len(sent) > 0 {
			t.Errorf("%s was sent: %v, want none", method, sent)
		}
	}
}

// The capabilities of the last server do not count while no server is connected.
func TestCapabilitiesOfALostServerDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(map[string]string{protocol.MethodListTools: `{"tools":[]}`})
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodInitialize && f.Link == 1 {
				return f.initialized(protocol.LatestLegacy, withoutTools)
			}
			return inner(f)
		}
		session := openFake(t, s, client.Options{})
		s.cut()
		synctest.Wait()
		var state *conn.StateError
		if _, err := session.ListTools(t.Context(), nil); !errors.As(err, &state) || !conn.NotExecuted(err) {
			t.Errorf("in backoff got %v", err)
		}
		waiting := session.With(client.CallOptions{WaitForReady: true})
		if _, err := waiting.ListTools(t.Context(), nil); err != nil {
			t.Errorf("waiting for ready got %v, want no error", err)
		}
	})
}

// A call that waits for a server checks the capabilities of the server that comes.
func TestCapabilitiesAreThoseOfTheServerWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodInitialize && f.Link == 2 {
				return f.initialized(protocol.LatestLegacy, withoutTools)
			}
			return inner(f)
		}
		session := openFake(t, s, client.Options{})
		s.cut()
		synctest.Wait()
		waiting := session.With(client.CallOptions{WaitForReady: true})
		_, err := waiting.ListTools(t.Context(), nil)
		if !errors.As(err, new(*client.CapabilityError)) || len(s.received(protocol.MethodListTools)) > 0 {
			t.Errorf("got %v", err)
		}
	})
}

func TestWaitingForReadyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		session := openFake(t, s, client.Options{Conn: conn.Tuning{BackoffMin: time.Hour}})
		s.cut()
		synctest.Wait()
		waiting := session.With(client.CallOptions{WaitForReady: true})
		for _, method := range []string{protocol.MethodPing, protocol.MethodListTools} {
			var failed *conn.CallError
			if err := callFor(t, waiting, method, time.Second); !errors.As(err, &failed) || failed.Cause != conn.TimedOut || !conn.NotExecuted(err) {
				t.Errorf("%s: got %v", method, err)
			}
		}
		waits := make(chan error, 1)
		go func() { waits <- callFor(t, waiting, protocol.MethodListTools, time.Minute) }()
		synctest.Wait()
		session.Conn().Stop()
		var failed *conn.CallError
		if err := <-waits; !errors.As(err, &failed) || failed.Cause != conn.ShutDown || !conn.NotExecuted(err) {
			t.Errorf("a session that ended: got %v", err)
		}
	})
}

// callFor makes a call whose context ends after a time.
func callFor(t *testing.T, s *client.Session, method string, patience time.Duration) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if method == protocol.MethodPing {
		return s.Ping(ctx)
	}
	_, err = s.ListTools(ctx, nil)
	return err
}

func TestTimeoutOfCallOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		session := openFake(t, s, client.Options{}).With(client.CallOptions{Timeout: 5 * time.Second})
		began := time.Now()
		var failed *conn.CallError
		if err := session.Ping(t.Context()); !errors.As(err, &failed) || failed.Cause != conn.TimedOut {
			t.Errorf("got %v, want a *conn.CallError and failed.Cause == %v", err, conn.TimedOut)
		}
		if took := time.Since(began); took != 5*time.Second { // time of the bubble
			t.Errorf("the call took %v, want 5s", took)
		}
		synctest.Wait()
		if sent := s.received(protocol.NotificationCancelled); len(sent) != 1 {
			t.Errorf("the server got the cancellations %v, want 1", sent)
		}
	})
}

func TestProgressTokenNeedsOnProgress(t *testing.T) {
	s := answering(map[string]string{protocol.MethodListTools: `{"tools":[]}`})
	session := openFake(t, s, client.Options{})
	asking := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) {}})
	params := new(protocol.ListToolsParams)
	params.SetMeta("mine", json.RawMessage("1"))
	for _, view := range []*client.Session{session, asking} {
		if _, err := view.ListTools(t.Context(), params); err != nil {
			t.Fatal(err)
		}
	}
	lists := s.received(protocol.MethodListTools)
	if got := string(lists[0].Params); got != `{"_meta":{"mine":1}}` {
		t.Errorf("without OnProgress: %s, want %q", got, `{"_meta":{"mine":1}}`)
	}
	var asked protocol.ListToolsParams
	if err := json.Unmarshal(lists[1].Params, &asked); err != nil || string(asked.Meta[protocol.MetaProgressToken]) != string(lists[1].ID) {
		t.Errorf("with OnProgress: %s, %v", lists[1].Params, err)
	}
	if len(params.Meta) != 1 {
		t.Errorf("the caller's params were changed to %v, want them unchanged", params)
	}
}

func TestMalformedProgressIsIgnored(t *testing.T) {
	for members, delivered := range map[string]bool{
		`"progress":0`:                 true,
		`"progress":1,"total":2`:       true,
		`"message":"no progress"`:      false,
		`"progress":null`:              false,
		`"progress":"1"`:               false,
		`"progress":1,"message":3`:     false,
		`"progress":1,"total":"a lot"`: false,
	} {
		s := answeringWith(protocol.MethodPing, func(f frame) []string {
			return []string{progressOf(f, members), f.result(`{}`)}
		})
		var seen []*protocol.ProgressParams
		view := openFake(t, s, client.Options{}).With(client.CallOptions{
			OnProgress: func(p *protocol.ProgressParams) { seen = append(seen, p) },
		})
		if err := view.Ping(t.Context()); err != nil {
			t.Errorf("%s: %v", members, err)
		}
		if (len(seen) == 1) != delivered {
			t.Errorf("%s: got the progress %v, want %v", members, seen, delivered)
		}
	}
}

// Requests of the server without a handler are refused. The result comes after the
// client has answered them.
func TestRequestsOfTheServerAreRefused(t *testing.T) {
	var ping frame
	s := answering(nil)
	inner := s.answer
	s.answer = func(f frame) []string {
		switch f.Method {
		case protocol.MethodPing:
			ping = f
			return []string{`{"jsonrpc":"2.0","id":"asked","method":"roots/list"}`, `{"jsonrpc":"2.0","method":"no/such/notification"}`}
		case "":
			return []string{ping.result(`{}`)}
		default:
			return inner(f)
		}
	}
	session := openFake(t, s, client.Options{})
	if err := session.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fault jsonrpc.Error
	answers := s.received("")
	if len(answers) != 1 || string(answers[0].ID) != `"asked"` {
		t.Fatalf("got %v, want len(answers) == 1 and string(answers[0].ID) == %q", answers, `"asked"`)
	}
	if err := json.Unmarshal(answers[0].Error, &fault); err != nil || fault.Code != jsonrpc.CodeMethodNotFound {
		t.Errorf("got %s, %v, want %v", answers[0].Error, err, jsonrpc.CodeMethodNotFound)
	}
	if _, ok := any(session).(conn.Handler); ok {
		t.Error("a Session exports methods of its Conn, want none")
	}
}

func TestBatchesAreReadWhereTheRevisionHasThem(t *testing.T) {
	for _, version := range protocol.LegacyVersions() {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{answer: func(f frame) []string {
				switch f.Method {
				case protocol.MethodInitialize:
					return f.initialized(version, withTools)
				case protocol.MethodPing:
					return []string{`[` + f.result(`{}`) + `]`}
				default:
					return nil
				}
			}}
			session := openFake(t, s, client.Options{})
			if err := session.Ping(t.Context()); (err == nil) != (version == protocol.Version20250326) {
				t.Errorf("%s: got %v", version, err)
			}
		})
	}
}

// A call is made whichever way the program says that it has no arguments.
func TestCallsWithArgumentsThatHoldNothing(t *testing.T) {
	for name, arguments := range map[string]any{
		"nothing": nil, "no bytes": json.RawMessage{}, "null": json.RawMessage("null"),
		"a nil map": map[string]any(nil), "a nil pointer": (*struct{})(nil), "an empty struct": struct{}{},
	} {
		s := answering(map[string]string{protocol.MethodCallTool: `{"content":[]}`})
		session := openFake(t, s, client.Options{})
		if _, err := client.Call[struct{}](t.Context(), session, "x", arguments); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if raw, ok := arguments.(json.RawMessage); ok {
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x", Arguments: raw}); err != nil {
				t.Errorf("%s: CallTool: %v", name, err)
			}
		}
		for _, f := range s.received(protocol.MethodCallTool) {
			if got := string(f.Params); got != `{"name":"x"}` && got != `{"name":"x","arguments":{}}` {
				t.Errorf("%s: sent %s", name, got)
			}
		}
	}
}
