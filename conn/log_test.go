package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A record is a slog.Handler that keeps log lines.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (*record) Enabled(context.Context, slog.Level) bool { return true }
func (r *record) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r *record) WithGroup(string) slog.Handler          { return r }

func (r *record) Handle(_ context.Context, line slog.Record) error {
	text := line.Level.String() + " " + line.Message
	line.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" {
			a.Value = slog.StringValue("present")
		}
		if a.Key != "next" && a.Key != "" {
			text += " " + a.String()
		}
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, text)
	return nil
}

// asDefault makes the record the default log until the test ends.
func (r *record) asDefault(t *testing.T) *record {
	before := slog.Default()
	slog.SetDefault(slog.New(r))
	t.Cleanup(func() { slog.SetDefault(before) })
	return r
}

// Panics of handlers and failures of connections are logged, by default to slog.Default, unless a
// hook receives them.
//
// Guarantees: G-0024.7
func TestFailuresAreLogged(t *testing.T) {
	const (
		panicked = `ERROR bowline: panic conn=search where=m panic=oops stack=present`
		refused  = `WARN bowline: connecting failed conn=search reason=open failed: refused`
		lost     = `WARN bowline: connection lost conn=search reason=link broken: cable`
	)
	silent := slog.New(slog.DiscardHandler)
	hooks := telemetry.Hooks{Panic: func(telemetry.Panic) {}, Transition: func(telemetry.Transition) {}}
	broken := telemetry.Hooks{Panic: func(telemetry.Panic) { panic("no") }, Transition: func(telemetry.Transition) { panic("no") }}
	for name, c := range map[string]struct {
		o    conn.Options
		want []string
	}{
		"by default":                   {conn.Options{}, []string{refused, panicked, lost}},
		"silenced":                     {conn.Options{Tuning: conn.Tuning{Log: silent}}, nil},
		"with hooks that take it":      {conn.Options{Tuning: conn.Tuning{Hooks: hooks}}, nil},
		"with a hook that takes panic": {conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{Panic: hooks.Panic}}}, []string{refused, lost}},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(record).asDefault(t)
			logFailures(t, c.o)
			if !slices.Equal(log.lines, c.want) {
				t.Errorf("logged %q, want %q", log.lines, c.want)
			}
		})
	}
	for name, hooks := range map[string]telemetry.Hooks{"with Options.Log": hooks, "with Options.Log, and hooks that panic": broken} {
		t.Run(name, func(t *testing.T) {
			other, own := new(record).asDefault(t), new(record)
			logFailures(t, conn.Options{Tuning: conn.Tuning{Hooks: hooks, Log: slog.New(own)}})
			if want := []string{refused, panicked, lost}; len(other.lines) > 0 || !slices.Equal(own.lines, want) {
				t.Errorf("logged %q, and %q to the default log; want %q and none", own.lines, other.lines, want)
			}
		})
	}
}

// When a lost connection is back, one line says after how long and how many attempts, unless a hook
// tells the program.
//
// Guarantees: G-0024.7, G-0024.13
func TestAConnectionThatIsBackIsLogged(t *testing.T) {
	const back = "INFO bowline: back after 7 s, 3 attempts conn=search"
	gap := func(telemetry.Gap) {}
	for name, c := range map[string]struct {
		o    conn.Options
		want int
	}{
		"by default":               {conn.Options{}, 1},
		"with a hook for the gap":  {conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{Gap: gap}}}, 0},
		"with hooks for the state": {conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{Transition: func(telemetry.Transition) {}}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(record).asDefault(t)
			bubble(t, func(t *testing.T) {
				s, attempts := &script{}, 0
				c.o.Name, c.o.BackoffJitter = "search", 1e-9
				r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
					if attempts++; attempts == 2 || attempts == 3 {
						return nil, errors.New("refused")
					}
					return s, nil
				}), c.o))
				synctest.Wait()
				s.lose(transport.Loss{Reason: errors.New("cable")})
				advance(10 * time.Second)
				r.Stop()
				<-r.ended
			})
			var infos []string
			for _, line := range log.lines {
				if strings.HasPrefix(line, "INFO") {
					infos = append(infos, line)
				}
			}
			if want := slices.Repeat([]string{back}, c.want); !slices.Equal(infos, want) {
				t.Errorf("logged %q, want %q", infos, want)
			}
		})
	}
}

// logFailures lets a connection fail, a handler panic, and the connection fail again.
func logFailures(t *testing.T, o conn.Options) {
	bubble(t, func(t *testing.T) {
		o.Name, o.Handler = "search", handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("oops") }}
		s, attempts := &script{}, 0
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			if attempts++; attempts != 2 {
				return nil, errors.New("refused")
			}
			return s, nil
		}), o))
		advance(2 * time.Second)
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		s.lose(transport.Loss{Reason: errors.New("cable")})
		synctest.Wait()
		r.Stop()
		<-r.ended
	})
}

// A long text of a peer is shortened before it is logged.
//
// Guarantees: G-0024.7
func TestLoggedTextIsCut(t *testing.T) {
	own := new(record)
	bubble(t, func(t *testing.T) {
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			return nil, errors.New(strings.Repeat("é", 4096))
		}), conn.Options{Tuning: conn.Tuning{Log: slog.New(own)}}))
		synctest.Wait()
		r.Stop()
		<-r.ended
	})
	if len(own.lines) != 1 || len(own.lines[0]) > 1200 || !strings.HasSuffix(own.lines[0], "é…") {
		t.Errorf("logged %.2000q, want one line of 1200 bytes at most that ends in …", own.lines)
	}
}

// A naming handler sets the target of each request to its params, and then waits for until.
type naming struct{ slow }

func (n naming) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if name := string(in.Params); name != `[]` {
		in.SetTarget(name)
	}
	return n.slow.ServeRequest(ctx, in)
}

// Each stuck handler is reported to the hook. Without a hook, the first one is logged.
//
// Guarantees: G-0003.17, G-0024.7
func TestStuckHandlersAreReported(t *testing.T) {
	logged := []string{`WARN bowline: a handler goes on although its context has ended conn=search method=m name=["a"]`}
	reported := []string{`["a"]`, "", `["b"]`}
	for name, c := range map[string]struct {
		hooked, own      bool
		logged, reported []string
	}{
		"by default":  {false, false, logged, nil},
		"with a hook": {true, false, nil, reported},
		"with both":   {true, true, logged, reported},
	} {
		t.Run(name, func(t *testing.T) {
			byDefault, own := new(record).asDefault(t), new(record)
			o := conn.Options{Dialect: cancelling{}, Tuning: conn.Tuning{Name: "search"}}
			var got []string
			if c.hooked {
				o.Hooks = telemetry.Hooks{Stuck: func(e telemetry.Stuck) {
					if got = append(got, e.Name); e.Conn != "search" || e.Epoch != 1 || e.Method != "m" {
						t.Errorf("the hook got %+v, want conn search, epoch 1, method m", e)
					}
				}}
			}
			log := byDefault
			if c.own {
				o.Log, log = slog.New(own), own
			}
			letHandlersStick(t, o)
			if !slices.Equal(log.lines, c.logged) || !slices.Equal(got, c.reported) {
				t.Errorf("logged %q, want %q; reported %q, want %q", log.lines, c.logged, got, c.reported)
			}
		})
	}
}

// letHandlersStick lets the peer send three requests and cancel them, while their handlers do not return.
func letHandlersStick(t *testing.T, o conn.Options) {
	bubble(t, func(t *testing.T) {
		s, handle := &script{}, naming{slow{make(chan struct{})}}
		o.Handler = handle
		r := scripted(t, s, o)
		for id, params := range []string{`["a"]`, `[]`, `["b"]`} {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":%s}`, id, params))
			synctest.Wait()
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","method":"cancel","params":[%d]}`, id))
		}
		advance(9 * time.Second)
		if serving := r.Stats().Depths.Serving; serving != 3 {
			t.Errorf("%d requests are served, want 3", serving)
		}
		advance(2 * time.Second)
		close(handle.until)
		r.Stop()
		<-r.ended
	})
}

// The context of a handler whose request the peer cancels ends with ErrPeerCancelled.
//
// Guarantees: G-0003.10
func TestCancelledHandlerGetsTheCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		why := make(chan error, 1)
		s := new(script)
		r := scripted(t, s, conn.Options{Dialect: cancelling{}, Handler: handler{
			"waits": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
				<-ctx.Done()
				why <- context.Cause(ctx)
				return nil, nil
			},
		}})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"waits"}`)
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[1]}`)
		advance(time.Second)
		select {
		case got := <-why:
			if !errors.Is(got, conn.ErrPeerCancelled) {
				t.Errorf("the cause is %v, want ErrPeerCancelled", got)
			}
		default:
			t.Error("the handler's context has not ended")
		}
		r.Stop()
		<-r.ended
	})
}

// A handler that still runs when the Conn ends is reported as stuck, once.
//
// Guarantees: G-0003.17
func TestHandlersThatOutliveTheirConnAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []string
		s, handle := &script{}, naming{slow{make(chan struct{})}}
		r := start(conn.Accept(s, conn.Options{
			Handler: handle,
			Dialect: cancelling{},
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{Stuck: func(e telemetry.Stuck) { reported = append(reported, e.Name) }},
			},
		}))
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m","params":["a"]}`)
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","method":"cancel","params":[1]}`)
		advance(time.Minute)
		s.deliver(`{"jsonrpc":"2.0","id":2,"method":"m","params":["b"]}`)
		synctest.Wait()
		s.lose(transport.Loss{Reason: errors.New("cable")})
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !slices.Contains(stuck.Tasks, `m ["b"]`) {
			t.Errorf("Run: %v, want a StuckError with \"m [\\\"b\\\"]\"", err)
		}
		if want := []string{`["a"]`, `["b"]`}; !slices.Equal(reported, want) {
			t.Errorf("reported %q, want %q", reported, want)
		}
		close(handle.until)
	})
}

// An unreadable Dialect panics in Classify, which runs on the goroutine of the link.
type unreadable struct{ dialect }

func (unreadable) Classify(jsonrpc.Message) conn.Class { panic("broken") }

// Panics on the goroutine of the link may be reported while the loop reports something else, without
// a data race.
//
// Guarantees: G-0024.4
func TestLinkAndLoopReportAtTheSameTime(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T) {
			s := &script{}
			r := scripted(t, s, conn.Options{Dialect: unreadable{}, Tuning: conn.Tuning{Log: slog.New(slog.DiscardHandler)}})
			go s.deliver(`{"jsonrpc":"2.0","method":"m"}`)
			go s.lose(transport.Loss{Reason: io.EOF})
			synctest.Wait()
			r.Stop()
			<-r.ended
		})
	}
}

// Frames that are no valid messages are logged by default, at most one in ten seconds, with what
// they seem to be and their size. The hook gets each, with a reason to count by.
//
// Guarantees: G-0024.7, G-0024.11
func TestMalformedFramesAreLogged(t *testing.T) {
	frames := []struct {
		frame         string
		reason, shape string
	}{
		{`Server started`, "not JSON", "unknown"},
		{"\ufeff" + `{"jsonrpc":"2.0","method":"m"}`, "not JSON", "notification"},
		{`{"jsonrpc":"1.0","id":9,"result":{}}`, "no message", "result"},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":7}`, "no message", "request"},
		{`[{"jsonrpc":"2.0","method":"m"}]`, "batch", "unknown"},
		{strings.Repeat("[", 600) + strings.Repeat("]", 600), "too deep", "unknown"},
	}
	for name, c := range map[string]struct {
		silent, hooked bool
		logs           int
	}{
		"by default": {logs: 3},
		"silenced":   {silent: true},
		"with hook":  {hooked: true},
	} {
		t.Run(name, func(t *testing.T) {
			log, o := new(record).asDefault(t), conn.Options{Tuning: conn.Tuning{Name: "search"}}
			var told []telemetry.Violation
			if c.silent {
				o.Log = slog.New(slog.DiscardHandler)
			}
			if c.hooked {
				o.Hooks.Violation = func(v telemetry.Violation) { told = append(told, v) }
			}
			bubble(t, func(t *testing.T) {
				s := &script{}
				r := scripted(t, s, o)
				for _, f := range frames {
					s.deliver(f.frame)
				}
				if c.hooked {
					s.receiver.Receive(transport.Inbound{Err: fmt.Errorf("sse: %w", &transport.OversizedError{Limit: 5, Size: 7})})
					synctest.Wait()
				}
				for range 2 {
					timer := time.NewTimer(10 * time.Second)
					<-timer.C
					s.deliver(`Still here`)
					synctest.Wait()
				}
				r.Stop()
				<-r.ended
			})
			logged := slices.DeleteFunc(log.lines, func(line string) bool { return !strings.Contains(line, "no valid message") })
			want := []string{
				`WARN bowline: a frame is no valid message conn=search direction=received reason=not JSON shape=unknown size=14 error=`,
				`WARN bowline: a frame is no valid message conn=search direction=received reason=not JSON shape=unknown size=10 error=`,
				`WARN bowline: a frame is no valid message conn=search direction=received reason=not JSON shape=unknown size=10 error=`,
			}[:c.logs]
			if !slices.EqualFunc(logged, want, strings.HasPrefix) || c.logs > 0 && (!strings.HasSuffix(logged[1], " unlogged=5") || strings.Contains(logged[2], "unlogged")) {
				t.Errorf("got the lines %q, want some that begin with %q, the second of them alone with 5 unlogged", logged, want)
			}
			if !c.hooked {
				return
			}
			if len(told) != len(frames)+3 {
				t.Fatalf("the hook got %d frames, want %d", len(told), len(frames)+3)
			}
			if got := told[len(frames)]; got.Reason != telemetry.ViolationOversized || got.Shape != "unknown" || got.Size != 7 || got.Conn != "search" || got.Epoch != 1 {
				t.Errorf("a frame above the limit: got %+v, want the reason %q, no known shape, and the size 7", got, telemetry.ViolationOversized)
			}
			for i, f := range frames {
				if got := told[i]; string(got.Reason) != f.reason || got.Shape != f.shape || got.Size != len(f.frame) {
					t.Errorf("%.40q: got the reason %q, the shape %q and the size %d, want %q, %q, %d", f.frame, got.Reason, got.Shape, got.Size, f.reason, f.shape, len(f.frame))
				}
			}
		})
	}
}
