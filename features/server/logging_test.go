package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// logsOften returns a server with a tool that logs as many messages as its argument
// says.
func logsOften(o server.Options) *server.Server {
	s := newServer(o)
	server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, in struct{ Times int }) (string, error) {
		for i := range in.Times {
			server.Logger(ctx).Warn(fmt.Sprint("number ", i))
		}
		return "done", nil
	})
	return s
}

// messagesOf returns the log messages ahead of the answer to one call.
func (w *rawPeer) messagesOf(request string) (texts []string) {
	w.t.Helper()
	w.send(request)
	for {
		var m struct {
			ID     any `json:"id"`
			Params struct {
				Data json.RawMessage `json:"data"`
			} `json:"params"`
		}
		if w.read(&m); m.ID != nil {
			return texts
		}
		w.link.Grant(0, 1)
		texts = append(texts, string(m.Params.Data))
	}
}

// LogRate limits the log messages that a handler sends to its client: for a legacy
// session together, for modern clients for each request.
//
// Guarantees: G-0029.10
func TestLogMessagesAreBounded(t *testing.T) {
	const call = `"name":"log","arguments":{"Times":%d}`
	legacy := func(times int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + fmt.Sprintf(call, times) + `}}`
	}
	newest := func(times int) string {
		return strings.Replace(modern(`1`, "tools/call", fmt.Sprintf(call, times)), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1)
	}
	testenv.Bubble(t, func(t *testing.T) {
		w := dial(t, logsOften(server.Options{LogRate: 10}))
		w.initialize(protocol.Version20251125)
		w.send(`{"jsonrpc":"2.0","id":"level","method":"logging/setLevel","params":{"level":"info"}}`)
		w.want(`"id":"level"`)
		if got := w.messagesOf(legacy(50)); len(got) != 10 || got[9] != `"number 9"` {
			t.Errorf("at once: got %q, want len(got) == 10 and got[9] == %q", got, `"number 9"`)
		}
		if got := w.messagesOf(legacy(50)); len(got) != 0 {
			t.Errorf("after the limit of the session: got %q", got)
		}
		pass(500 * time.Millisecond)
		got := w.messagesOf(legacy(50))
		if len(got) != 6 || got[0] != `"90 log messages were dropped: there were more than 10 a second"` || got[5] != `"number 4"` {
			t.Errorf("after half a second: got %q", got)
		}
		pass(time.Hour)
		if got := w.messagesOf(legacy(50)); len(got) != 11 {
			t.Errorf("after an hour: got %q", got)
		}
	})
	testenv.Bubble(t, func(t *testing.T) {
		w := dial(t, logsOften(server.Options{LogRate: 10}))
		for range 3 {
			if got := w.messagesOf(newest(50)); len(got) != 10 {
				t.Errorf("a modern request: got %q, want 10 elements", got)
			}
		}
	})
	for rate, want := range map[int]int{0: 100, -1: 300} {
		testenv.Bubble(t, func(t *testing.T) {
			w := dial(t, logsOften(server.Options{LogRate: rate}))
			w.link.Grant(0, 300)
			w.send(newest(300))
			synctest.Wait()
			got := 0
			for frame := range w.frames {
				if strings.Contains(frame, `"id":1`) {
					break
				}
				got++
			}
			if got != want {
				t.Errorf("LogRate %d: got %d messages, want %d", rate, got, want)
			}
		})
	}
}

// A client that does not read delays no handler, whatever LogRate says, and does not lose its session
// for log messages. What did not fit the queue of its link is dropped, and counted in the next message.
//
// Guarantees: G-0029.19
func TestLogNeverWaitsForTheClient(t *testing.T) {
	const logged = 1000
	for name, logs := range map[string]func(*server.Server, *rawPeer){
		"of the session": func(s *server.Server, _ *rawPeer) {
			for session := range s.Sessions() {
				for n := range logged {
					session.Logger().Info(fmt.Sprintf("number %d", n))
				}
			}
		},
		"of a call": func(_ *server.Server, w *rawPeer) {
			w.send(`{"jsonrpc":"2.0","id":"logs","method":"tools/call","params":{"name":"log","arguments":{"Times":1000}}}`)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Bubble(t, func(t *testing.T) {
				s := logsOften(server.Options{LogRate: -1})
				ours, theirs := inmem.Pipe(inmem.Options{QueueFrames: 10})
				s.Accept(theirs)
				w := &rawPeer{t, ours, make(chan string, 2000)}
				ours.Bind(w)
				defer s.Close(t.Context())
				ours.Grant(transport.Main, 2) // the answers to initialize and setLevel
				w.initialize(protocol.Version20251125)
				w.send(`{"jsonrpc":"2.0","id":"level","method":"logging/setLevel","params":{"level":"info"}}`)
				w.want(`"id":"level"`)
				began := time.Now()
				logs(s, w)
				if took := time.Since(began); took > 0 {
					t.Errorf("logging took %v, want no time", took)
				}
				if pass(5 * time.Second); name == "of the session" {
					pass(time.Minute) // an answer that is not read would end it
				}
				ours.Grant(transport.Main, cap(w.frames))
				for n := range 10 {
					w.want(fmt.Sprintf(`"number %d"`, n))
				}
				if name == "of a call" {
					w.want(`"id":"logs"`)
				}
				for session := range s.Sessions() {
					session.Logger().Info("at last")
				}
				w.want(fmt.Sprintf(`"%d log messages were dropped: the connection was busy"`, logged-10))
				w.want(`"at last"`)
			})
		})
	}
}
