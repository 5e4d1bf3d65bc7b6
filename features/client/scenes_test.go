package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

var update = flag.Bool("update", false, "write what the scenes show to testdata/scenes")

// A conversation writes down all that clients and servers show: frames, events, hooks, logs, records, and what methods return. It is compared with
// a file, so that a change of any of it is seen. Nothing is left out but the stacks of panics; what is random has names.
type conversation struct {
	*scene
	t     *testing.T
	began time.Time
	brief bool // without the hooks that say what frames and records say, too

	mu     sync.Mutex
	values []string // long parts of frames, which are shown once
}

// play plays a story in a bubble, and compares what it shows with a file of testdata/scenes.
func play(t *testing.T, file, title string, story func(*conversation)) {
	t.Helper()
	testenv.Bubble(t, func(t *testing.T) {
		s := &conversation{scene: newScene(title), t: t, began: time.Now()}
		for _, who := range []string{"ada", "ben", "eve", "late", "post"} {
			for _, what := range []string{
				"returns", "progress", "asked", ">", "<", "=", ">2", "<2", "=2", ">3", "<3", "=3", "event", "counts", "Transition", "Gap", "RequestStarted",
				"Retried", "RequestStopped", "NotificationReceived", "LateReply", "UnknownReply", "Violation", "Shed", "Stalled", "BusyRetry", "Missed",
				"ServeStopped", "Stuck", "Panic", "record", "log", "OnSubscribe", "OnUnsubscribe", "OnRootsChanged", "OnLogLevel", "Fallback", "tool",
			} {
				s.Places(who + " " + what)
			}
		}
		s.Mask(`"requestState":"([^"]+)"`, "state")
		s.Mask(`Correlation=(\d+)`, "correlation")
		s.Mask(`\b[0-9A-Z]{26}\b`, "id") // of sessions, tasks and questions
		story(s)
		s.Compare(t, filepath.Join("testdata", "scenes", file+".txt"), *update)
	})
}

func (s *conversation) notef(place, format string, args ...any) {
	s.Note(place, fmt.Sprintf(format, args...))
}

// pass lets time pass, which is shown with what happens in it.
func (s *conversation) pass(d time.Duration) { pass(d) }

// call does something for somebody, and notes what it returns.
func (s *conversation) call(who, what string, f func(context.Context) (any, error)) {
	result, err := f(context.Background())
	s.notef(who+" returns", "%s: %s, %s", what, s.shown(reflect.ValueOf(result)), s.failure(err))
}

// start does what call does, on a goroutine. The function that it returns ends the context, and another one waits.
func (s *conversation) start(who, what string, f func(context.Context) (any, error)) (cancel context.CancelCauseFunc, wait func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.call(who, what, func(context.Context) (any, error) { return f(ctx) })
	}()
	return cancel, func() { <-done }
}

// server returns a server that notes what it sees.
func (s *conversation) server(who string, o server.Options) *server.Server {
	o.Conn.Hooks, o.Conn.Log = s.hooks(who), s.log(who)
	o.Audit = func(_ context.Context, r server.Record) {
		s.notef(who+" record", "%s", s.shown(reflect.ValueOf(r)))
	}
	return server.New(protocol.Implementation{Name: who, Version: "1.0"}, o)
}

// options returns the options of a client that notes what it sees.
func (s *conversation) options(who string, o client.Options) client.Options {
	o.Conn.Hooks, o.Conn.Log, o.Conn.Name = s.hooks(who), s.log(who), who
	o.Conn.BackoffJitter = 1e-30 // none
	if o.Conn.ProvenAfter == 0 {
		o.Conn.ProvenAfter = time.Hour // the wait after the loss of a proven link is random
	}
	if o.OnEvent == nil {
		o.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
			s.notef(who+" event", "%T %s", e, s.shown(reflect.ValueOf(e)))
		}
	}
	return o
}

// client returns a client whose sessions note what they see.
func (s *conversation) client(who string, o client.Options) *client.Client {
	return client.New(protocol.Implementation{Name: who, Version: "2.0"}, s.options(who, o))
}

// connect begins a session, and notes what comes of it.
func (s *conversation) connect(who string, c *client.Client, to transport.Transport) (session *client.Session) {
	s.call(who, "Connect", func(ctx context.Context) (_ any, err error) {
		if session, err = c.Connect(ctx, s.tap(who, to)); err != nil {
			return nil, err
		}
		return session.Server(), nil
	})
	return session
}

// tap notes the frames of somebody's links.
func (s *conversation) tap(who string, inner transport.Transport) transport.Transport {
	return transcript.Tap(inner, func(e transcript.Entry) {
		link := ""
		if e.Link > 1 {
			link = fmt.Sprint(e.Link)
		}
		switch e.Kind {
		case transcript.Sent:
			s.notef(who+" >"+link, "%s", s.frame(e.Frame))
		case transcript.Received:
			s.notef(who+" <"+link, "%s", s.frame(e.Frame))
		default:
			s.notef(who+" ="+link, "%v %s unsent %v", e.Kind, s.failure(e.Err), e.Unsent)
		}
	})
}

// to leads to a server of this process.
func to(s *server.Server) transport.Transport { return inmem.New(s.Accept, inmem.Options{}) }

// frame returns a frame as it is shown. The members of what it contains are sorted, because some come from maps, and what every request of
// 2026-07-28 says has a number.
func (s *conversation) frame(raw []byte) string {
	from := json.NewDecoder(bytes.NewReader(raw))
	text, _, err := s.sorted(from, 0)
	if err != nil || !json.Valid(raw) {
		return fmt.Sprintf("%q", raw)
	}
	return text
}

// sorted reads a value, or reports the end of an array or object.
func (s *conversation) sorted(from *json.Decoder, depth int) (text string, end bool, err error) {
	from.UseNumber()
	token, err := from.Token()
	delim, composed := token.(json.Delim)
	switch {
	case err != nil:
		return "", false, err
	case !composed:
		raw, err := json.Marshal(token)
		return string(raw), false, err
	case delim == '}' || delim == ']':
		return "", true, nil
	}
	var parts []string
	for {
		name, end, err := s.sorted(from, depth+1)
		switch {
		case err != nil:
			return "", false, err
		case end && delim == '[':
			return "[" + strings.Join(parts, ",") + "]", false, nil
		case end:
			if depth > 0 {
				slices.Sort(parts)
			}
			return "{" + strings.Join(parts, ",") + "}", false, nil
		case delim == '[':
			parts = append(parts, name)
			continue
		}
		value, _, err := s.sorted(from, depth+1)
		if err != nil {
			return "", false, err
		}
		if short, found := strings.CutPrefix(name, `"io.modelcontextprotocol/`); found {
			if name = `"io…/` + short; value[0] == '{' && len(value) > 20 {
				value = s.numbered(value)
			}
		}
		parts = append(parts, name+":"+value)
	}
}

func (s *conversation) numbered(value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.values, value)
	if i < 0 {
		i = len(s.values)
		s.values = append(s.values, value)
		s.notef("value", "%d is %s", i+1, value)
	}
	return fmt.Sprintf("value-%d", i+1)
}

// hooks notes all that a Conn reports.
func (s *conversation) hooks(who string) telemetry.Hooks {
	note := func(e any) {
		kind := reflect.TypeOf(e).Name()
		s.notef(who+" "+kind, "%s", s.shown(reflect.ValueOf(e)))
	}
	hooks := telemetry.Hooks{
		RequestStarted:       func(ctx context.Context, e telemetry.RequestStarted) context.Context { note(e); return ctx },
		Retried:              func(_ context.Context, e telemetry.Retried) { note(e) },
		RequestStopped:       func(_ context.Context, e telemetry.RequestStopped) { note(e) },
		ServeStopped:         func(_ context.Context, e telemetry.ServeStopped) { note(e) },
		Transition:           func(e telemetry.Transition) { note(e) },
		Gap:                  func(e telemetry.Gap) { note(e) },
		NotificationReceived: func(e telemetry.NotificationReceived) { note(e) },
		Shed:                 func(e telemetry.Shed) { note(e) },
		Stalled:              func(e telemetry.Stalled) { note(e) },
		BusyRetry:            func(e telemetry.BusyRetry) { note(e) },
		Missed:               func(e telemetry.Missed) { note(e) },
		Stuck:                func(e telemetry.Stuck) { note(e) },
		LateReply:            func(e telemetry.Reply) { note(e) },
		UnknownReply:         func(e telemetry.Reply) { note(e) },
		Violation:            func(e telemetry.Violation) { note(e) },
		Panic:                func(e telemetry.Panic) { note(e) },
	}
	if s.brief {
		hooks.RequestStarted, hooks.RequestStopped, hooks.ServeStopped, hooks.NotificationReceived = nil, nil, nil, nil
	}
	return hooks
}

// log notes log lines.
func (s *conversation) log(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(writing(func(line string) { s.Note(who+" log", line) }), &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch {
			case a.Key == slog.TimeKey:
				return slog.Attr{}
			case a.Key == "stack":
				return slog.String("stack", "…")
			case a.Value.Kind() == slog.KindTime:
				return slog.String(a.Key, s.at(a.Value.Time()))
			}
			return a
		},
	}))
}

type writing func(string)

func (w writing) Write(text []byte) (int, error) {
	w(string(bytes.TrimSuffix(text, []byte("\n"))))
	return len(text), nil
}

// at returns a time of the conversation.
func (s *conversation) at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return "at " + t.Sub(s.began).Round(time.Microsecond).String()
}

// shown returns a value with the names of its fields, without those that are zero.
func (s *conversation) shown(v reflect.Value) string {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return "nil"
	}
	switch value := v.Interface().(type) {
	case time.Time:
		return s.at(value)
	case time.Duration:
		return value.Round(time.Microsecond).String()
	case json.RawMessage:
		return string(value)
	case conn.Reason:
		return string(value.Kind) + " " + s.failure(value.Err)
	case error:
		return s.failure(value)
	case jsonrpc.ID:
		return value.String()
	case *server.Session:
		return "session=" + value.ID()
	case *server.Client:
		return fmt.Sprint(value.Info.Name, " ", value.ProtocolVersion)
	case *transport.Origin:
		return value.RemoteAddr + value.Identity
	case fmt.Stringer:
		return value.String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return s.shown(v.Elem())
	case reflect.String:
		return v.String()
	case reflect.Struct:
		if strings.HasPrefix(v.Type().PkgPath(), "github.com/bowline-mcp/bowline/protocol") {
			raw, err := protocol.Marshal(v.Interface())
			return s.frame(raw) + strings.TrimSuffix(", "+s.failure(err), ", no error")
		}
		var fields []string
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case f.Name == "Stack":
				fields = append(fields, "Stack=…")
			case f.IsExported() && !v.Field(i).IsZero():
				if shown := s.shown(v.Field(i)); shown != "" {
					fields = append(fields, f.Name+"="+shown)
				}
			}
		}
		return strings.Join(fields, " ")
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, s.shown(v.Index(i)))
		}
		return "[" + strings.Join(all, ", ") + "]"
	default:
		return fmt.Sprint(v.Interface())
	}
}

// sentinels are the errors that errors.Is may find.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrUnavailable", client.ErrUnavailable}, {"ErrLost", client.ErrLost}, {"ErrDenied", client.ErrDenied}, {"ErrClosed", client.ErrClosed},
	{"ErrInvalid", client.ErrInvalid}, {"ErrUnsupported", client.ErrUnsupported}, {"ErrNotFound", client.ErrNotFound}, {"ErrTooMany", client.ErrTooMany},
	{"ErrDropped", client.ErrDropped}, {"ErrNoTask", client.ErrNoTask}, {"ErrTimedOut", client.ErrTimedOut}, {"ErrStale", client.ErrStale},
	{"ErrIncompatible", client.ErrIncompatible}, {"ErrTaskCancelled", client.ErrTaskCancelled}, {"ErrRepeatedCursor", client.ErrRepeatedCursor},
	{"ErrStaleCursor", client.ErrStaleCursor}, {"ErrSkill", client.ErrSkill}, {"conn.ErrDraining", conn.ErrDraining}, {"conn.ErrPeerCancelled", conn.ErrPeerCancelled},
	{"conn.ErrNotRunning", conn.ErrNotRunning}, {"transport.ErrBusy", transport.ErrBusy}, {"transport.ErrNoRoom", transport.ErrNoRoom},
	{"transport.ErrClosed", transport.ErrClosed}, {"transport.ErrPeerClosed", transport.ErrPeerClosed}, {"transport.ErrSessionExpired", transport.ErrSessionExpired},
	{"transport.ErrAuthRequired", transport.ErrAuthRequired}, {"transport.ErrNoRoute", transport.ErrNoRoute},
	{"server.ErrClosed", server.ErrClosed}, {"server.ErrNotFound", server.ErrNotFound}, {"server.ErrNoRequest", server.ErrNoRequest},
	{"server.ErrNotAsking", server.ErrNotAsking}, {"server.ErrUnsupported", server.ErrUnsupported}, {"server.ErrDeclined", server.ErrDeclined},
	{"server.ErrDismissed", server.ErrDismissed}, {"server.ErrUnanswered", server.ErrUnanswered}, {"server.ErrKeyUsed", server.ErrKeyUsed},
	{"server.ErrInputRequired", server.ErrInputRequired}, {"server.ErrTaskCancelled", server.ErrTaskCancelled}, {"server.ErrTaskExpired", server.ErrTaskExpired},
	{"context.Canceled", context.Canceled}, {"context.DeadlineExceeded", context.DeadlineExceeded},
}

// failure returns the text of an error, what it matches, and the types in it.
func (s *conversation) failure(err error) string {
	if err == nil {
		return "no error"
	}
	var matches []string
	for _, known := range sentinels {
		if errors.Is(err, known.err) {
			matches = append(matches, known.name)
		}
	}
	text := strings.ReplaceAll(err.Error(), "unable to", "cannot") // package json chooses one of them for each process
	text = fmt.Sprintf("%q is %v as %v", text, matches, typesOf(err))
	var call *conn.CallError
	if errors.As(err, &call) {
		text += fmt.Sprintf(" of call %d (%v, %v, %d before)", call.ID, call.Cause, call.Delivery, len(call.Attempts))
	}
	return text
}

// typesOf returns the types of the errors in an error that programs may look for.
func typesOf(err error) (types []string) {
	if name := fmt.Sprintf("%T", err); strings.Contains(name, "Error") && !slices.Contains([]string{"*errors.errorString", "*fmt.wrapError", "*errors.joinError", "*fmt.wrapErrors", "client.kindError", "*client.kindError"}, name) {
		types = append(types, name)
	}
	switch wrapped := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil {
			types = append(types, typesOf(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapped.Unwrap() {
			types = append(types, typesOf(inner)...)
		}
	}
	return types
}
