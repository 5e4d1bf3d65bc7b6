package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// discovered is the result of server/discover of a server that has tools and announces
// their changes.
const discovered = `{"resultType":"complete","supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true}},` +
	`"instructions":"be kind","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern fake","version":"0"}}}`

// fault returns an error response to a request.
func (f frame) fault(code int64, data string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":%s}}`, f.ID, code, data)
}

// A response returns the frames with which a server answers server/discover. No frames
// are silence.
type response func(frame) []string

func withResult(result string) response {
	return func(f frame) []string { return []string{f.result(result)} }
}

func withFault(code int64, data string) response {
	return func(f frame) []string { return []string{f.fault(code, data)} }
}

func noResponse(frame) []string { return nil }

// probedServer speaks the newest legacy revision to clients that send initialize, and
// answers server/discover with discover.
func probedServer(discover response) *fakeServer {
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return discover(f)
		case protocol.MethodInitialize:
			return f.initialized(protocol.LatestLegacy, withTools)
		default:
			return nil
		}
	}}
}

// connect connects a client that supports every revision, for the length of a test,
// within a time.
func connect(t *testing.T, to transport.Transport, o client.Options, within time.Duration) (*client.Session, error) {
	t.Helper()
	if s, ok := to.(*fakeServer); ok {
		t.Cleanup(s.close)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	session, err := client.New(clientInfo, o).Connect(ctx, specification.WatchClient(t, to))
	if err == nil {
		t.Cleanup(func() { session.Close(context.Background()) })
	}
	return session, err
}

var (
	asModern = []string{"server/discover"}
	asLegacy = []string{"server/discover", "initialize", "notifications/initialized"}
)

// wantEra checks that a session is ready in the revision it should have, and which
// methods were sent until then.
func wantEra(t *testing.T, name string, session *client.Session, err error, s *fakeServer, sent []string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v after %q", name, err, s.methods())
	}
	synctest.Wait()
	version := protocol.LatestLegacy
	if sent[len(sent)-1] == protocol.MethodDiscover {
		version = protocol.Latest
	}
	if got := session.Server().ProtocolVersion; got != version || !slices.Equal(s.methods(), sent) {
		t.Errorf("%s: revision %s after %q", name, got, s.methods())
	}
}

// A client uses the modern revision with a server that answers server/discover.
//
// Guarantees: G-0020.2
func TestModernServerGetsModernRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(withResult(discovered))
		session, err := connect(t, s, client.Options{}, time.Second)
		wantEra(t, "modern", session, err, s, asModern)
		got := session.Server()
		if got.Info.Name != "modern fake" || got.Instructions != "be kind" || got.Capabilities.Tools == nil {
			t.Errorf("got %+v, want got.Info.Name == %q, got.Instructions == %q and got.Capabilities.Tools != nil", got, "modern fake", "be kind")
		}
	})
}

func TestModernServerNeedNotIntroduceItself(t *testing.T) {
	for _, info := range []string{``, `,"_meta":{}`, `,"_meta":{"io.modelcontextprotocol/serverInfo":3}`} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(withResult(`{"supportedVersions":["2026-07-28"],"capabilities":{}` + info + `}`))
			session, err := connect(t, s, client.Options{}, time.Second)
			wantEra(t, info, session, err, s, asModern)
			if session.Server().Info.Name != "" {
				t.Errorf("%s: got %+v, want %q", info, session.Server(), "")
			}
		})
	}
}

// Any error but those of the modern revisions means that a server is legacy (2026-07-28
// basic/versioning).
//
// Guarantees: G-0020.2
func TestOtherErrorsMeanALegacyServer(t *testing.T) {
	answers := map[string]response{
		"legacy revisions only":                       withResult(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`),
		"one that speaks no modern revision known":    withResult(`{"supportedVersions":["2031-01-01","2024-11-05"],"capabilities":{}}`),
		"one that supports legacy revisions only":     withFault(protocol.CodeUnsupportedVersion, `{"supported":["2025-06-18"],"requested":"2026-07-28"}`),
		"one that asks for input before it says much": withResult(`{"resultType":"input_required","supportedVersions":["2026-07-28"],"capabilities":{}}`),
		"one that answers with an unknown type":       withResult(`{"resultType":"odd","supportedVersions":["2026-07-28"],"capabilities":{}}`),
	}
	for _, code := range []int64{-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32004, -32019, -32023, -1, 0, 404} {
		answers[fmt.Sprint("code ", code)] = withFault(code, `{"supported":["2026-07-28"]}`)
	}
	for _, result := range []string{`null`, `[]`, `3`, `{}`, `{"supportedVersions":null}`, `{"supportedVersions":7}`, `{"supportedVersions":[1]}`} {
		answers["result "+result] = withResult(result)
	}
	for name, answer := range answers {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(answer)
			session, err := connect(t, s, client.Options{FailFast: true}, time.Second)
			wantEra(t, name, session, err, s, asLegacy)
		})
	}
}

// A server that does not answer server/discover for five seconds, or half of the time
// there is, is taken for a legacy server.
//
// Guarantees: G-0020.2
func TestSilenceMeansALegacyServer(t *testing.T) {
	for name, test := range map[string]struct{ limit, silence time.Duration }{
		"for five seconds":              {0, 5 * time.Second},
		"for five seconds of many":      {time.Minute, 5 * time.Second},
		"for half of the time":          {2 * time.Second, time.Second},
		"for half of ten seconds, also": {10 * time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(noResponse)
			began := time.Now()
			session, err := connect(t, s, client.Options{FailFast: true, Conn: conn.Tuning{InitTimeout: test.limit}}, time.Hour)
			if took := time.Since(began); took != test.silence {
				t.Errorf("%s: Connect took %v, want %v", name, took, test.silence)
			}
			wantEra(t, name, session, err, s, asLegacy) // and no cancellation, because it does not know the request
		})
	}
}

// If the time of the handshake ends during the probe, because the server was slow to
// start, the next attempt uses the legacy handshake.
func TestSilenceUntilTheEndOfTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(noResponse)
		slow := true
		defer s.close()
		session, err := connect(t, openFunc(func(ctx context.Context) (transport.Link, error) {
			if slow {
				pass(6 * time.Second)
			}
			slow = false
			return s.Open(ctx)
		}), client.Options{}, time.Minute)
		wantEra(t, "slow", session, err, s, asLegacy)
		session.Close(t.Context())
	})
}

// closingOnProbe returns a server that closes its link when it is probed.
func closingOnProbe() *fakeServer {
	s := probedServer(nil)
	inner := s.answer
	s.answer = func(f frame) []string {
		if f.Method == protocol.MethodDiscover {
			s.cut()
			return nil
		}
		return inner(f)
	}
	return s
}

// A server that closes its link when it is probed gets the legacy handshake at the next
// attempt.
//
// Guarantees: G-0020.2
func TestProbeThatClosesTheLinkIsNotRepeated(t *testing.T) {
	for _, fast := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := closingOnProbe()
			began := time.Now()
			session, err := connect(t, s, client.Options{FailFast: fast}, time.Minute)
			if took := time.Since(began); took != 0 {
				t.Errorf("fail fast: %t: Connect took %v, want no wait before the legacy handshake", fast, took)
			}
			wantEra(t, fmt.Sprint("fail fast: ", fast), session, err, s, asLegacy)
			if epoch := session.Conn().Status().Epoch; epoch != 2 {
				t.Errorf("epoch %d, want 2", epoch)
			}
		})
	}
}

// A session of Connect has had its first server: AwaitFirst does nothing to it, whatever its context.
//
// Guarantees: G-0037.4
func TestAwaitFirstOfASessionOfConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := closingOnProbe()
		defer s.close()
		session, err := client.New(clientInfo, client.Options{}).Connect(t.Context(), openFunc(s.Open))
		if err != nil {
			t.Fatal(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := session.AwaitFirst(ended); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); session.Status().State != client.Ready {
			t.Errorf("the session is %s", session.Status().State)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// AwaitFirst does not wait for the backoff either, if a server closes its link because of the probe. Once a session has been ready, it does not wait at all.
//
// Guarantees: G-0037.4
func TestAwaitFirstAfterAProbeThatClosesTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, gone := closingOnProbe(), false
		defer s.close()
		began := time.Now()
		session, err := client.New(clientInfo, client.Options{}).Start(t.Context(), "probed", openFunc(func(ctx context.Context) (transport.Link, error) {
			if gone {
				return nil, exec.ErrNotFound
			}
			return s.Open(ctx)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := session.AwaitFirst(t.Context()); err != nil || time.Since(began) != 0 || session.Status().State != client.Ready {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		gone = true
		s.cut()
		pass(time.Hour)
		if err := session.AwaitFirst(t.Context()); err != nil || session.Status().State != conn.Backoff {
			t.Errorf("%v, %s", err, session.Status().State)
		}
		if err := session.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// With FailFast, Connect tries both eras before it fails, even if the server closes the
// link in both.
func TestFailFastTriesBothEras(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.answer = func(frame) []string { s.cut(); return nil }
		_, err := connect(t, s, client.Options{FailFast: true}, time.Hour)
		var why conn.Reason
		if !errors.As(err, &why) || errors.Is(err, context.DeadlineExceeded) || !slices.Equal(s.methods(), asLegacy[:2]) {
			t.Errorf("got %v after %q", err, s.methods())
		}
	})
}

// Failures before the probe do not count as a server that closes its link when it is
// probed.
func TestProbeThatClosesTheLinkAfterOtherFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := closingOnProbe()
		defer s.close()
		opens := 0
		session, err := connect(t, openFunc(func(ctx context.Context) (transport.Link, error) {
			if opens++; opens <= 5 {
				return nil, errors.New("refused")
			}
			return s.Open(ctx)
		}), client.Options{}, time.Hour)
		wantEra(t, "at last", session, err, s, asLegacy)
		session.Close(t.Context())
	})
}

// A legacy server that closes its link when it is probed is probed again after a later
// failure, and then gets the legacy handshake again.
func TestProbeThatClosesTheLinkAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := closingOnProbe()
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodInitialize && f.Link == 3 {
				return []string{f.fault(jsonrpc.CodeInternalError, `null`)}
			}
			return inner(f)
		}
		session, err := connect(t, s, client.Options{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		s.cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := session.Conn().AwaitReady(ctx); err != nil {
			t.Errorf("%v after %q", err, s.methods())
		}
	})
}

// An error of the modern revisions fails the connection. The client does not fall back
// to the legacy handshake.
//
// Guarantees: G-0020.3
func TestModernErrorsCauseNoFallback(t *testing.T) {
	for name, test := range map[string]struct {
		answer response
		final  bool
	}{
		"headers":                            {withFault(protocol.CodeHeaderMismatch, `null`), false},
		"capabilities":                       {withFault(protocol.CodeMissingCapability, `{"requiredCapabilities":{}}`), false},
		"capabilities, with misleading data": {withFault(protocol.CodeMissingCapability, `{"supported":["2025-11-25"]}`), false},
		"another modern revision":            {withFault(protocol.CodeUnsupportedVersion, `{"supported":["2031-01-01"],"requested":"2026-07-28"}`), true},
		"no revision":                        {withFault(protocol.CodeUnsupportedVersion, `{}`), true},
		"data that cannot be read":           {withFault(protocol.CodeUnsupportedVersion, `[]`), true},
		"another, well formed":               {withResult(`{"supportedVersions":["2031-01-01"],"capabilities":{}}`), true},
		"none, well formed":                  {withResult(`{"supportedVersions":[],"capabilities":{}}`), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(test.answer)
			_, err := connect(t, s, client.Options{}, time.Minute)
			if errors.Is(err, conn.ErrIncompatible) != test.final || errors.Is(err, context.DeadlineExceeded) == test.final {
				t.Errorf("%s: got %v", name, err)
			}
			if sent := s.methods(); slices.Contains(sent, protocol.MethodInitialize) || len(sent) > 1 == test.final {
				t.Errorf("%s: sent %q", name, sent)
			}
		})
	}
}

// An interceptor answers some frames of the client in place of the server.
type interceptor struct {
	transport.Link
	to      transport.Receiver
	answers func(transport.Receiver, transport.Outbound) bool
}

func (m *interceptor) Bind(r transport.Receiver) {
	m.to = r
	m.Link.Bind(r)
}

func (m *interceptor) Send(o transport.Outbound) error {
	if m.answers(m.to, o) {
		return nil
	}
	return m.Link.Send(o)
}

// intercepting returns a transport on which requests of one method are answered in place of
// the server.
func intercepting(s *fakeServer, method string, answer func(transport.Receiver, transport.Outbound)) transport.Transport {
	return openFunc(func(ctx context.Context) (transport.Link, error) {
		link, err := s.Open(ctx)
		return &interceptor{Link: link, answers: func(to transport.Receiver, o transport.Outbound) bool {
			if !strings.Contains(string(o.Frame), `"method":"`+method+`"`) {
				return false
			}
			answer(to, o)
			return true
		}}, err
	})
}

// refusing returns a transport on which probes fail as they do over HTTP.
func refusing(s *fakeServer, err error) transport.Transport {
	return intercepting(s, protocol.MethodDiscover, func(to transport.Receiver, o transport.Outbound) {
		to.Failed(transport.Failure{Tag: o.Tag, Err: err, Unsent: true})
	})
}

// The HTTP status of the probe's response tells a legacy server from a modern one that
// fails.
//
// Guarantees: G-0020.2, G-0020.3
func TestHTTPStatusShowsTheEra(t *testing.T) {
	for _, test := range []struct {
		status int
		fault  *jsonrpc.Error
		legacy bool
	}{
		{http.StatusBadRequest, nil, true},
		{http.StatusBadRequest, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest}, true},
		{http.StatusBadRequest, &jsonrpc.Error{Code: protocol.CodeHeaderMismatch}, false},
		{http.StatusBadRequest, &jsonrpc.Error{Code: protocol.CodeUnsupportedVersion, Data: []byte(`{"supported":["2031-01-01"]}`)}, false},
		{http.StatusBadRequest, &jsonrpc.Error{Code: protocol.CodeUnsupportedVersion, Data: []byte(`{"supported":["2025-11-25"]}`)}, true},
		{http.StatusNotFound, nil, true},
		{http.StatusNotFound, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}, true},
		{http.StatusMethodNotAllowed, nil, true},
		{http.StatusInternalServerError, nil, true},
		{http.StatusServiceUnavailable, nil, true},
		{http.StatusUnauthorized, nil, false},
		{http.StatusUnauthorized, &jsonrpc.Error{Code: -32001}, false}, // some servers send the status and an error
		{http.StatusForbidden, nil, false},
		{http.StatusForbidden, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(nil)
			t.Cleanup(s.close)
			outcome := &transport.StatusError{Status: test.status, Fault: test.fault}
			session, err := connect(t, refusing(s, outcome), client.Options{FailFast: true}, time.Second)
			if test.legacy {
				wantEra(t, outcome.Error(), session, err, s, asLegacy[1:])
			} else if !errors.Is(err, error(outcome)) || len(s.methods()) > 0 {
				t.Errorf("%v: got %v after %q", outcome, err, s.methods())
			}
		})
	}
}

// An error that does not come from the server does not show its era.
//
// Guarantees: G-0020.3
func TestNetworkFailuresDoNotShowTheEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(nil)
		t.Cleanup(s.close)
		broken := errors.New("no such host")
		if _, err := connect(t, refusing(s, broken), client.Options{FailFast: true}, time.Second); !errors.Is(err, broken) || len(s.methods()) > 0 {
			t.Errorf("got %v after %q", err, s.methods())
		}
	})
}

// If the server closes the stream of the probe without a response, it is taken for a
// legacy server. If the stream breaks, Connect fails with the reason.
func TestStreamThatEndsWithoutAnAnswer(t *testing.T) {
	for reason, legacy := range map[error]bool{transport.ErrPeerClosed: true, errors.New("reset by peer"): false} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(nil)
			t.Cleanup(s.close)
			session, err := connect(t, intercepting(s, protocol.MethodDiscover, func(to transport.Receiver, o transport.Outbound) {
				to.StreamOpened(1, o.Tag)
				to.StreamLost(transport.StreamLoss{Stream: 1, Reason: reason})
			}), client.Options{FailFast: true}, time.Second)
			if legacy {
				wantEra(t, reason.Error(), session, err, s, asLegacy[1:])
			} else if !errors.Is(err, reason) || len(s.methods()) > 0 {
				t.Errorf("%v: got %v after %q", reason, err, s.methods())
			}
		})
	}
}

// reconnect cuts the link of a session, and waits until it is ready again.
func reconnect(t *testing.T, s *fakeServer, session *client.Session) {
	t.Helper()
	synctest.Wait() // for what the session still sets up on the server that is cut
	s.cut()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := session.Conn().AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// A legacy server is probed once, and again only after its era has failed.
//
// Guarantees: G-0020.2, G-0021.1
func TestEraIsRememberedUntilItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(nil)
		s.answer = func(f frame) []string {
			modern := f.Link >= 4 // the server has been updated
			switch {
			case f.Method == protocol.MethodDiscover && modern:
				return []string{f.result(discovered)}
			case f.Method == protocol.MethodInitialize && !modern:
				return f.initialized(protocol.LatestLegacy, withTools)
			case f.ID != nil:
				return []string{f.fault(jsonrpc.CodeMethodNotFound, `null`)}
			default:
				return nil
			}
		}
		session, err := connect(t, s, client.Options{}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		reconnect(t, s, session)
		reconnect(t, s, session)
		want := slices.Concat(asLegacy, asLegacy[1:], asLegacy[1:]) // one probe in all
		wantEra(t, "legacy", session, err, s, want)
		reconnect(t, s, session)
		want = slices.Concat(want, []string{"initialize"}, asModern)
		wantEra(t, "updated", session, err, s, want)
		if epoch := session.Conn().Status().Epoch; epoch != 5 {
			t.Errorf("epoch %d, want 5", epoch)
		}
	})
}

// A modern server is probed at each connection, because it may have been replaced by a
// legacy one.
//
// Guarantees: G-0021.1
func TestModernServerThatBecomesLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(func(f frame) []string {
			if f.Link <= 2 {
				return []string{f.result(discovered)}
			}
			return []string{f.fault(jsonrpc.CodeMethodNotFound, `null`)}
		})
		session, err := connect(t, s, client.Options{}, time.Second)
		reconnect(t, s, session)
		wantEra(t, "modern", session, err, s, slices.Concat(asModern, asModern))
		reconnect(t, s, session)
		wantEra(t, "legacy", session, err, s, slices.Concat(asModern, asModern, asLegacy))
	})
}

// A modern server that closes its link for another reason than the probe stays modern.
func TestModernServerStaysModernAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(nil)
		inner := s.answer
		s.answer = func(f frame) []string {
			switch {
			case f.Method != protocol.MethodDiscover:
				return inner(f)
			case f.Link == 2:
				s.cut()
				return nil
			default:
				return []string{f.result(discovered)}
			}
		}
		session, err := connect(t, s, client.Options{}, time.Second)
		reconnect(t, s, session)
		wantEra(t, "modern", session, err, s, slices.Repeat(asModern, 3))
	})
}

// If the program asks for a revision, the client uses it or fails with ErrIncompatible.
//
// Guarantees: G-0020.3
func TestRequestedRevisionIsUsedOrFails(t *testing.T) {
	modern := client.Options{ProtocolVersion: protocol.Version20260728}
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(withResult(discovered))
		session, err := connect(t, s, modern, time.Second)
		wantEra(t, "modern", session, err, s, asModern)
	})
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(withResult(discovered))
		session, err := connect(t, s, client.Options{ProtocolVersion: protocol.LatestLegacy}, time.Second)
		wantEra(t, "legacy", session, err, s, asLegacy[1:])
	})
	for name, answer := range map[string]response{
		"a fault":            withFault(jsonrpc.CodeMethodNotFound, `null`),
		"garbage":            withResult(`{}`),
		"legacy revisions":   withResult(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`),
		"legacy ones, later": withFault(protocol.CodeUnsupportedVersion, `{"supported":["2025-11-25"]}`),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(answer)
			if _, err := connect(t, s, modern, time.Minute); !errors.Is(err, conn.ErrIncompatible) || !slices.Equal(s.methods(), asModern) {
				t.Errorf("%s: got %v after %q", name, err, s.methods())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(withResult(`{"supportedVersions":7}`))
		if _, err := connect(t, s, modern, time.Minute); !errors.As(err, new(*client.ResultError)) || !strings.Contains(err.Error(), "supportedVersions") {
			t.Errorf("garbage: got %v, want what is wrong with the answer", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(withResult(`{"supportedVersions":["2025-06-18"],"capabilities":{}}`))
		if _, err := connect(t, s, modern, time.Minute); err == nil || !strings.Contains(err.Error(), "2025-06-18") {
			t.Errorf("got %v, want the revisions of the server in it", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := probedServer(noResponse)
		_, err := connect(t, s, modern, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, conn.ErrIncompatible) || slices.Contains(s.methods(), protocol.MethodInitialize) {
			t.Errorf("silence: got %v after %q", err, s.methods())
		}
	})
}

// If the program asks for a revision and the server is overloaded, the client tries
// again.
func TestOverloadedServerIsNotIncompatible(t *testing.T) {
	for status, waits := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusTooManyRequests: true, http.StatusNotFound: false} {
		synctest.Test(t, func(t *testing.T) {
			s := probedServer(nil)
			t.Cleanup(s.close)
			out := refusing(s, &transport.StatusError{Status: status})
			_, err := connect(t, out, client.Options{ProtocolVersion: protocol.Version20260728}, time.Minute)
			if errors.Is(err, conn.ErrIncompatible) == waits || errors.Is(err, context.DeadlineExceeded) != waits {
				t.Errorf("%d: got %v", status, err)
			}
		})
	}
}

// A modern server that starts slowly is not taken for a legacy one: it refuses
// initialize, and is probed again.
//
// Guarantees: G-0020.2
func TestSlowModernServerIsProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := false
		s := &fakeServer{answer: func(f frame) []string {
			if !begun { // requests wait until then
				begun = true
				pass(7 * time.Second)
			}
			switch f.Method {
			case protocol.MethodDiscover:
				return []string{f.result(discovered)}
			case protocol.MethodInitialize:
				return []string{`{"jsonrpc":"2.0","id":` + string(f.ID) + `,"error":{"code":-32602,"message":"what?"}}`}
			default:
				return nil
			}
		}}
		t.Cleanup(s.close)
		session, err := client.New(clientInfo, client.Options{FailFast: true}).Connect(t.Context(), specification.WatchClient(t, s))
		if err != nil {
			t.Fatal(err)
		}
		if got := session.Server().ProtocolVersion; got != protocol.Version20260728 {
			t.Errorf("got revision %s, want %s", got, protocol.Latest)
		}
		session.Close(t.Context())
	})
}
