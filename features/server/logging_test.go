package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
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
		numbers := 0
		w.link.Grant(transport.Main, 100) // for the answers
		for range 100 {                   // each try that fails costs nothing, and gains nothing
			pass(10 * time.Millisecond)
			for _, text := range w.messagesOf(legacy(1)) {
				if text == `"number 0"` {
					numbers++
				}
			}
		}
		if numbers != 10 {
			t.Errorf("in a second: got %d messages, want 10", numbers)
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
				w.want(`"level":"info"`, fmt.Sprintf(`"%d log messages were dropped: the connection was busy"`, logged-10))
				w.want(`"at last"`)
			})
		})
	}
}

// Loggers that come from one logger share nothing: each has its own attributes and groups.
func TestLoggersHaveTheirOwnAttributes(t *testing.T) {
	s := newServer(server.Options{LogRate: -1})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		for _, base := range []*slog.Logger{server.Logger(ctx), slog.New(server.LogHandler(slog.DiscardHandler))} {
			for n := range 5 { // so that some list of attributes or groups has room for one more
				base = base.With(fmt.Sprint("a", n), n)
			}
			one, other := base.With("x", 1), base.With("y", 2)
			one.ErrorContext(ctx, "one")
			other.ErrorContext(ctx, "other")
			for range 5 {
				base = base.WithGroup("g")
			}
			one, other = base.WithGroup("h"), base.WithGroup("i")
			one.ErrorContext(ctx, "one", "x", 1)
			other.ErrorContext(ctx, "other", "y", 2)
			slog.New(base.Handler().WithGroup("")).ErrorContext(ctx, "none", "z", 3)
		}
		return "", nil
	})
	w := dial(t, s)
	got := w.messagesOf(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1))
	const attributes = `"a0":0,"a1":1,"a2":2,"a3":3,"a4":4`
	want := []string{
		`{` + attributes + `,"msg":"one","x":1}`, `{` + attributes + `,"msg":"other","y":2}`,
		`{` + attributes + `,"g":{"g":{"g":{"g":{"g":{"h":{"x":1}}}}}},"msg":"one"}`,
		`{` + attributes + `,"g":{"g":{"g":{"g":{"g":{"i":{"y":2}}}}}},"msg":"other"}`,
		`{` + attributes + `,"g":{"g":{"g":{"g":{"g":{"z":3}}}}},"msg":"none"}`,
	}
	if want = append(want, want...); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each level of slog has its level in MCP, and a client gets what is at least as severe as it wants.
func TestLevelsOfMessages(t *testing.T) {
	levels := []slog.Level{-8, -4, -1, 0, 1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 99}
	const names = "debug debug debug info info notice notice warning warning error error critical critical alert alert emergency emergency"
	s := newServer(server.Options{LogRate: -1})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		for _, level := range levels {
			server.Logger(ctx).Log(ctx, level, "said")
		}
		return "", nil
	})
	for i, wanted := range strings.Fields(names) {
		w := dial(t, s)
		w.send(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"`+wanted+`",`, 1))
		var got []string
		for {
			var m struct {
				ID     any `json:"id"`
				Params struct {
					Level string `json:"level"`
				} `json:"params"`
			}
			if w.read(&m); m.ID != nil {
				break
			}
			got = append(got, m.Params.Level)
		}
		first := slices.Index(strings.Fields(names), wanted)
		if want := strings.Fields(names)[first:]; !slices.Equal(got, want) {
			t.Errorf("%v: a client that wants %s got %q, want %q", levels[i], wanted, got, want)
		}
	}
}

// Attributes of every kind are members of the message, and groups are objects, but for one without a name.
func TestAttributesOfMessages(t *testing.T) {
	for want, attrs := range map[string][]any{
		`"x"`:                                 nil,
		`{"a":1,"msg":"x"}`:                   {"a", 1},
		`{"a":"1.5s","msg":"x"}`:              {"a", 1500 * time.Millisecond},
		`{"a":"broken","msg":"x"}`:            {"a", errors.New("broken")},
		`{"a":[1],"msg":"x"}`:                 {"a", []int{1}},
		`{"a":"+Inf","msg":"x"}`:              {slog.Any("a", slog.AnyValue("+Inf"))},
		`{"g":{"a":1,"b":2},"msg":"x"}`:       {slog.Group("g", "a", 1, "b", 2)},
		`{"a":1,"b":2,"msg":"x"}`:             {slog.Group("", "a", 1, "b", 2)},
		`{"g":{"h":{"a":1}},"msg":"x"}`:       {slog.Group("g", slog.Group("h", "a", 1))},
		`{"g":{"a":1},"msg":"x"}`:             {slog.Group("g", slog.Group("", "a", 1))},
		`{"g":{"a":1,"b":2},"msg":"x","z":3}`: {slog.Group("g", "a", 1), slog.Group("g", "b", 2), "z", 3},
		`{"msg":"x"}`:                         {slog.Attr{}},
		`{"a":"(1+2i)","msg":"x"}`:            {"a", 1 + 2i}, // which JSON does not have
		`"x" `:                                {"a", math.NaN()},
		`{"a":"hidden","msg":"x"}`:            {"a", hiddenText("secret")},
	} {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			server.Logger(ctx).ErrorContext(ctx, "x", attrs...)
			return "", nil
		})
		got := dial(t, s).messagesOf(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1))
		if len(got) != 1 || got[0] != strings.TrimSpace(want) {
			t.Errorf("%v: got %s, want %s", attrs, got, want)
		}
	}
}

// A message is sent without its attributes if one of them cannot be encoded. That is no error: whoever writes elsewhere what fails would write
// it twice.
func TestAttributesThatCannotBeEncoded(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
		record := slog.NewRecord(time.Now(), slog.LevelError, "x", 0)
		record.Add("a", 1, "b", math.NaN())
		return "logged", server.Logger(ctx).Handler().Handle(ctx, record)
	})
	w := dial(t, s)
	w.send(strings.Replace(modern(`1`, "tools/call", `"name":"t"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`, 1))
	w.want(`"notifications/message"`, `"level":"error"`, `"data":"x"`)
	w.want(`"id":1`, `"text":"logged"`)
}

// Log messages name the logger that the program has chosen, also the one that says how many were dropped.
//
// Guarantees: G-0106.3
func TestLogMessagesNameTheirLogger(t *testing.T) {
	s := newServer(server.Options{LoggerName: "billing", LogRate: 1})
	server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Logger(ctx).Warn("one")
		slog.New(server.LogHandler(slog.DiscardHandler)).WarnContext(ctx, "two")
		return "", nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(legacy(`1`, "logging/setLevel", `"level":"info"`))
	w.want(`"id":1`)
	w.send(legacy(`2`, "tools/call", `"name":"log"`))
	w.want(`"notifications/message"`, `"logger":"billing"`, `"one"`)
	w.want(`"id":2`)
}

// A LogHandler gives the log of the program each record that it is enabled for, also when the client does not want it or has gone.
//
// Guarantees: G-0029.7
func TestTheLogOfTheProgramAndThatOfTheClient(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var logged strings.Builder
		log := slog.New(server.LogHandler(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})))
		gone, done := make(chan struct{}), make(chan struct{})
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, _ struct{}) (string, error) {
			log.InfoContext(ctx, "first")
			log.WarnContext(ctx, "second")
			<-gone
			log.WarnContext(ctx, "third")
			close(done)
			return "", nil
		})
		w := accept(t, s)
		w.send(strings.Replace(modern(`1`, "tools/call", `"name":"log"`), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1))
		w.want(`"level":"info"`, `"data":"first"`)
		w.want(`"level":"warning"`, `"data":"second"`)
		w.link.Close(0)
		synctest.Wait()
		close(gone)
		<-done
		if got := logged.String(); strings.Contains(got, "first") || strings.Count(got, "msg=second") != 1 || strings.Count(got, "msg=third") != 1 {
			t.Errorf("the log of the program is\n%s\nwant the second and the third record", got)
		}
		s.Close(t.Context())
	})
}

// A hiddenText logs another value than itself.
type hiddenText string

func (hiddenText) LogValue() slog.Value { return slog.StringValue("hidden") }
