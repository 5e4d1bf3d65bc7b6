package client_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// patient are call options with which a call waits and is repeated as often as
// possible.
var patient = client.CallOptions{WaitForReady: true, Retries: 9, Repeatable: true}

// withMode returns a list of one tool, with the mode that the server gives it.
func withMode(mode string) string {
	return `{"tools":[{"name":"x","inputSchema":{},"_meta":{"io.github.bowline-mcp/mode":"` + mode + `"}}]}`
}

// The mode of a tool is the one that the call sets, else the program, else the server.
// Without any, the tool is stateless.
//
// Guarantees: G-0012.3
func TestPrecedenceOfToolModes(t *testing.T) {
	const stateful, stateless = protocol.Stateful, protocol.Stateless
	for _, test := range []struct {
		call, program protocol.ToolMode
		server        string
		want          protocol.ToolMode
	}{
		{"", "", "", stateless},
		{"", "", "stateful", stateful},
		{"", "", "stateless", stateless},
		{"", "", "whatever", stateless},
		{"", stateless, "stateful", stateless},
		{"", stateful, "stateless", stateful},
		{"", stateful, "", stateful},
		{stateless, stateful, "stateful", stateless},
		{stateful, stateless, "stateless", stateful},
		{stateful, "", "", stateful},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := closingOnFirst(protocol.MethodCallTool, map[string]string{
				protocol.MethodCallTool: `{"content":[]}`, protocol.MethodListTools: withMode(test.server),
			})
			session := openFake(t, s, client.Options{ToolModes: map[string]protocol.ToolMode{"x": test.program, "y": stateful}})
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			options := patient
			options.ToolMode = test.call
			_, err := callTool(t, session.With(options), "x", "")
			if carried := err == nil; carried != (test.want == stateless) {
				t.Errorf("%+v: got %v", test, err)
			}
		})
	}
}

// A call of a stateful tool ends with its server session. It is not repeated in the
// next one, whatever its options say.
//
// Guarantees: G-0012.1
func TestStatefulCallIsNotCarriedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := closingOnFirst(protocol.MethodCallTool, map[string]string{protocol.MethodCallTool: `{"content":[]}`})
		session := openFake(t, s, client.Options{ToolModes: map[string]protocol.ToolMode{"x": protocol.Stateful}})
		_, err := callTool(t, session.With(patient), "x", "")
		var failed *conn.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.LinkLost || failed.Delivery != conn.Unknown || failed.Attempts != nil {
			t.Errorf("got %v", err)
		}
		awaitReady(t, session)
		if on := s.linksOf(protocol.MethodCallTool); !slices.Equal(on, []int{1}) {
			t.Errorf("got calls on the links %v, want %v", on, []int{1})
		}
	})
}

// A call of a stateful tool does not wait for a server, because that would be another
// session than the program knows.
//
// Guarantees: G-0012.1
func TestStatefulCallWaitsForNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(map[string]string{protocol.MethodCallTool: `{"content":[]}`})
		session := openFake(t, s, client.Options{ToolModes: map[string]protocol.ToolMode{"x": protocol.Stateful}})
		s.cut()
		synctest.Wait()
		began := time.Now()
		_, err := callTool(t, session.With(patient), "x", "")
		var state *conn.StateError
		if !errors.As(err, &state) || state.State != conn.Backoff || !conn.NotExecuted(err) || time.Since(began) != 0 {
			t.Errorf("after %v got %v", time.Since(began), err)
		}
		if _, err := callTool(t, session.With(patient), "y", ""); err != nil { // a stateless tool waits
			t.Errorf("stateless: %v", err)
		}
		if _, err := callTool(t, session.With(patient), "x", ""); err != nil { // begins a new series
			t.Errorf("ready again: %v", err)
		}
	})
}

// Calls of a pinned session never run in another server session, whenever the link is
// lost and whatever their options say.
//
// Guarantees: G-0012.2
func TestSeriesIsBoundToItsSession(t *testing.T) {
	for _, options := range []client.CallOptions{{}, {WaitForReady: true}, {Retries: 9, Repeatable: true}, patient} {
		for _, mode := range []protocol.ToolMode{protocol.Stateful, protocol.Stateless, ""} {
			for _, readyAgain := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					s := answering(map[string]string{protocol.MethodCallTool: `{"content":[]}`, protocol.MethodListTools: emptyPage})
					session := openFake(t, s, client.Options{})
					options.Epoch, options.ToolMode = session.Conn().Status().Epoch, mode
					series := session.With(options)
					if _, err := callTool(t, series, "x", ""); err != nil {
						t.Fatal(err)
					}
					s.cut()
					synctest.Wait()
					if readyAgain {
						awaitReady(t, session)
					}
					for _, method := range []string{protocol.MethodCallTool, protocol.MethodListTools, protocol.MethodPing} {
						if err := callMethod(t, series, method); !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) {
							t.Errorf("%+v, ready again %t, %s: got %v", options, readyAgain, method, err)
						}
					}
					if _, err := toolNames(t, series); !errors.Is(err, conn.ErrStale) || errors.Is(err, client.ErrStaleCursor) {
						t.Errorf("%+v: a list got %v", options, err)
					}
					awaitReady(t, session)
					if calls := len(s.received(protocol.MethodCallTool)) + len(s.received(protocol.MethodListTools)); calls != 1 {
						t.Errorf("%+v: %d calls", options, calls)
					}
				})
			}
		}
	}
}

// Tools are stateless if the server's latest list says nothing else.
//
// Guarantees: G-0012.3
func TestLatestListDecidesTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := []string{withMode("stateful"), `{"tools":[{"name":"x","inputSchema":{}}]}`}
		s := answeringWith(protocol.MethodCallTool, func(f frame) []string { return []string{f.result(`{"content":[]}`)} })
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method != protocol.MethodListTools {
				return inner(f)
			}
			answer := f.result(lists[0])
			lists = lists[1:]
			return []string{answer}
		}
		session := openFake(t, s, client.Options{})
		for _, carried := range []bool{true, false, true} {
			s.cut()
			synctest.Wait()
			_, err := callTool(t, session.With(patient), "x", "")
			if (err == nil) != carried {
				t.Errorf("with %d more lists: got %v, want %v", len(lists), err, carried)
			}
			awaitReady(t, session)
			if len(lists) == 0 {
				break
			}
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// unsentTransport is a transport whose links report calls of tools as not sent.
type unsentTransport struct{ transport.Transport }

func (u unsentTransport) Open(ctx context.Context) (transport.Link, error) {
	link, err := u.Transport.Open(ctx)
	return &unsentLink{Link: link}, err
}

type unsentLink struct {
	transport.Link
	receiver transport.Receiver
}

func (l *unsentLink) Bind(r transport.Receiver) {
	l.receiver = r
	l.Link.Bind(r)
}

func (l *unsentLink) Send(o transport.Outbound) error {
	if !bytes.Contains(o.Frame, []byte(protocol.MethodCallTool)) {
		return l.Link.Send(o)
	}
	l.receiver.Failed(transport.Failure{Tag: o.Tag, Err: transport.ErrClosed, Unsent: true})
	return nil
}

// A call of a stateful tool is not made in another server session, even if it was
// certainly not executed.
//
// Guarantees: G-0012.1
func TestStatefulCallThatWasNotSentIsNotCarriedOver(t *testing.T) {
	for mode, attempts := range map[protocol.ToolMode]int{protocol.Stateful: 2, protocol.Stateless: 10} {
		synctest.Test(t, func(t *testing.T) {
			s := answering(nil)
			defer s.close()
			session, err := connect(t, unsentTransport{s}, client.Options{ProtocolVersion: protocol.LatestLegacy}, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			options, made := patient, 1
			options.ToolMode = mode
			options.OnAttempt = func(a conn.Attempt) {
				if made++; a.Epoch == 1 && made == 2 {
					s.cut() // before the next attempt
				}
			}
			_, err = callTool(t, session.With(options), "x", "")
			if stale := errors.Is(err, conn.ErrStale); !conn.NotExecuted(err) || made != attempts || stale != (mode == protocol.Stateful) {
				t.Errorf("%s: after %d attempts got %v", mode, made, err)
			}
		})
	}
}
