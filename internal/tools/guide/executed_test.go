package guide

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A scenario is a server and a client whose call fails.
type scenario struct {
	*testing.T
	server  *server.Server
	session *client.Session
	ran     atomic.Int32                                           // how many handlers have begun
	links   atomic.Value                                           // the server's end of the newest link in memory
	refuses func(http.ResponseWriter, *http.Request, http.Handler) // in front of a server over HTTP; nil: nothing
	noLogin atomic.Bool                                            // a request needs a login
	asked   func()                                                 // called when the server asks; nil: nothing
}

// Authorize and Challenged implement transport.Authorizer.
func (s *scenario) Authorize(context.Context, *http.Request) error {
	if s.noLogin.Load() {
		return &auth.LoginError{Resource: "x", Err: auth.ErrUnanswered}
	}
	return nil
}

func (*scenario) Challenged(context.Context, *http.Request, *transport.StatusError) (bool, error) {
	return false, nil
}

func (s *scenario) cut() { s.links.Load().(transport.Link).Close(0) }

// offer adds a tool that has the name "work".
func (s *scenario) offer(f func(context.Context) (string, error), o ...server.FeatureOption) {
	tool := protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}
	server.AddTool(s.server, tool, func(ctx context.Context, _ struct {
		Size int `json:"size,omitzero"`
	}) (string, error) {
		s.ran.Add(1)
		return f(ctx)
	}, o...)
}

func untilCancelled(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// callAsked calls a tool that runs again after a question. What happens does so before the
// answer.
func (s *scenario) callAsked(session *client.Session, happens func()) error {
	s.asked = happens
	s.offer(confirms(1), server.Asks(server.Reruns, forms))
	return s.call(s.Context(), session)
}

func (s *scenario) call(ctx context.Context, session *client.Session) error {
	_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "work"})
	return err
}

// respond makes a proxy in front of the server answer tool calls with a status, before or
// after the server has handled them.
func (s *scenario) respond(status int, handles bool) {
	s.refuses = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if handles {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		http.Error(w, "no", status)
	}
}

func ok(context.Context) (string, error) { return "done", nil }

var forms = protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}

func confirms(times int) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		for range times {
			if err := server.Confirm(ctx, "Sure?"); err != nil {
				return "", err
			}
		}
		return "", nil
	}
}

// An outcome is one way to get the error of a row.
type outcome struct {
	is   func(error) bool
	ran  bool // the handler
	http bool // the server is behind HTTP
	fail func(*scenario) error
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func as[T error](err error) bool { return errors.As(err, new(T)) }

// outcomes contains the outcomes by the first cell of their row.
var outcomes = map[string][]outcome{
	"`client.ErrUnavailable`": {{is(client.ErrUnavailable), false, false, func(s *scenario) error {
		away, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{}).Start(s.Context(), "away", downTransport{})
		if err != nil {
			s.Fatal(err)
		}
		defer away.Stop()
		return s.call(s.Context(), away)
	}}, {is(client.ErrUnavailable), true, false, func(s *scenario) error {
		return s.callAsked(s.session, func() {
			s.cut()
			synctest.Wait()
		})
	}}},
	"`client.ErrStale`": {{is(client.ErrStale), false, false, func(s *scenario) error {
		s.offer(ok)
		pinned := s.session.Pin()
		s.cut()
		synctest.Wait()
		if err := s.session.AwaitReady(s.Context()); err != nil {
			s.Fatal(err)
		}
		return s.call(s.Context(), pinned)
	}}, {is(client.ErrStale), true, false, func(s *scenario) error {
		return s.callAsked(s.session.Pin(), func() {
			s.cut()
			synctest.Wait()
			if err := s.session.AwaitReady(s.Context()); err != nil {
				s.Error(err)
			}
		})
	}}},
	"`client.ErrLost`": {{is(client.ErrLost), true, false, func(s *scenario) error {
		s.offer(func(ctx context.Context) (string, error) {
			s.cut()
			return untilCancelled(ctx)
		})
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrTimedOut`": {{is(client.ErrTimedOut), true, false, func(s *scenario) error {
		s.offer(untilCancelled)
		return s.call(s.Context(), s.session.With(client.CallOptions{Timeout: time.Second}))
	}}, {is(client.ErrTimedOut), false, false, func(s *scenario) error {
		s.offer(ok)
		s.cut()
		synctest.Wait()
		limited, cancel := context.WithTimeout(s.Context(), time.Millisecond)
		defer cancel()
		return s.call(limited, s.session.With(client.CallOptions{WaitForReady: true}))
	}}},
	"`context.Canceled`, or the cause of your context": {{is(context.Canceled), true, false, func(s *scenario) error {
		ctx, cancel := context.WithCancel(s.Context())
		s.offer(func(ctx context.Context) (string, error) {
			cancel()
			return untilCancelled(ctx)
		})
		return s.call(ctx, s.session)
	}}, {is(context.Canceled), false, false, func(s *scenario) error {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		s.offer(ok)
		return s.call(ctx, s.session)
	}}},
	"`client.ErrClosed`": {{is(client.ErrClosed), true, false, func(s *scenario) error {
		s.offer(func(ctx context.Context) (string, error) {
			s.session.Stop()
			return untilCancelled(ctx)
		})
		return s.call(s.Context(), s.session)
	}}, {is(client.ErrClosed), false, false, func(s *scenario) error {
		s.offer(ok)
		if err := s.session.Close(s.Context()); err != nil {
			s.Error(err)
		}
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrDenied`": {{is(client.ErrDenied), false, true, func(s *scenario) error {
		s.offer(ok)
		s.respond(http.StatusForbidden, false)
		return s.call(s.Context(), s.session)
	}}, {is(client.ErrDenied), true, true, func(s *scenario) error {
		return s.callAsked(s.session, func() { s.respond(http.StatusForbidden, false) })
	}}},
	"`*auth.LoginError`": {{as[*auth.LoginError], false, true, func(s *scenario) error {
		s.offer(ok)
		s.noLogin.Store(true)
		return s.call(s.Context(), s.session)
	}}, {as[*auth.LoginError], true, true, func(s *scenario) error {
		return s.callAsked(s.session, func() { s.noLogin.Store(true) })
	}}},
	"`*transport.StatusError`": {{as[*transport.StatusError], false, true, func(s *scenario) error {
		s.offer(ok)
		s.respond(http.StatusTooManyRequests, false)
		return s.call(s.Context(), s.session)
	}}, {as[*transport.StatusError], true, true, func(s *scenario) error {
		s.offer(ok)
		s.respond(http.StatusBadGateway, true)
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrInvalid`": {{is(client.ErrInvalid), false, false, func(s *scenario) error {
		s.offer(ok)
		_, err := client.Call[string](s.Context(), s.session, "work", func() {})
		return err
	}}, {is(client.ErrInvalid), false, false, func(s *scenario) error {
		s.offer(ok)
		_, err := client.Call[string](s.Context(), s.session, "unknown", nil)
		return err
	}}, {is(client.ErrInvalid), true, false, func(s *scenario) error {
		s.offer(func(context.Context) (string, error) {
			return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no"}
		})
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrUnsupported`, `*client.CapabilityError`": {{is(client.ErrUnsupported), false, false, func(s *scenario) error {
		_, err := s.session.Request(s.Context(), "x/unknown", nil)
		return err
	}}, {as[*client.CapabilityError], false, false, func(s *scenario) error {
		_, err := s.session.GetPrompt(s.Context(), &protocol.GetPromptParams{Name: "p"})
		return err
	}}},
	"`client.ErrNotFound`": {{is(client.ErrNotFound), true, false, func(s *scenario) error {
		server.AddTemplate(s.server, protocol.ResourceTemplate{Name: "t", URITemplate: "x://{id}"}, func(context.Context, map[string]string) (string, error) {
			s.ran.Add(1)
			return "", server.ErrNotFound
		})
		_, err := s.session.ReadResource(s.Context(), &protocol.ReadResourceParams{URI: "x://1"})
		return err
	}}, {is(client.ErrNotFound), false, false, func(s *scenario) error {
		_, err := s.session.ReadResource(s.Context(), &protocol.ReadResourceParams{URI: "x://b"})
		return err
	}}},
	"`*jsonrpc.Error`": {{as[*jsonrpc.Error], true, false, func(s *scenario) error {
		s.offer(func(context.Context) (string, error) { return "", &jsonrpc.Error{Code: 7, Message: "no"} })
		return s.call(s.Context(), s.session)
	}}, {is(&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}), false, false, func(s *scenario) error {
		s.offer(ok)
		_, err := s.session.CallTool(s.Context(), &protocol.CallToolParams{Name: "unknown"})
		return err
	}}},
	"`*client.ToolError`": {{as[*client.ToolError], true, false, func(s *scenario) error {
		s.offer(func(context.Context) (string, error) { return "", errors.New("it broke") })
		_, err := client.Call[string](s.Context(), s.session, "work", nil)
		return err
	}}, {as[*client.ToolError], false, false, func(s *scenario) error {
		s.offer(ok)
		_, err := client.Call[string](s.Context(), s.session, "work", map[string]any{"size": "large"})
		return err
	}}},
	"`*client.ResultError`": {{as[*client.ResultError], true, false, func(s *scenario) error {
		s.offer(ok)
		_, err := client.Call[int](s.Context(), s.session, "work", nil)
		return err
	}}},
	"`*client.InputError`": {{as[*client.InputError], true, false, func(s *scenario) error {
		s.offer(confirms(1), server.Asks(server.Waits, forms))
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrTooMany`": {{is(client.ErrTooMany), true, false, func(s *scenario) error {
		s.offer(confirms(5), server.Asks(server.Waits, forms))
		return s.call(s.Context(), s.session)
	}}},
	"`client.ErrTaskCancelled`": {{is(client.ErrTaskCancelled), true, false, func(s *scenario) error {
		s.offer(untilCancelled)
		task, err := s.session.StartTool(s.Context(), &protocol.CallToolParams{Name: "work"})
		if err != nil {
			s.Fatal(err)
		}
		synctest.Wait()
		if err := task.Cancel(s.Context()); err != nil {
			s.Error(err)
		}
		_, err = task.Wait(s.Context())
		return err
	}}},
	"`client.ErrDropped`": {{is(client.ErrDropped), true, false, func(s *scenario) error {
		s.offer(func(context.Context) (string, error) { return strings.Repeat("x", storeSize), nil })
		return s.call(s.Context(), s.session)
	}}},
	"`*protocol.LimitError`": {{as[*protocol.LimitError], true, false, func(s *scenario) error {
		server.AddResource(s.server, protocol.Resource{Name: "a", URI: "x://a"}, func(context.Context) (*protocol.ReadResourceResult, error) {
			s.ran.Add(1)
			text := ""
			contents := slices.Repeat([]protocol.ResourceContents{{URI: "x://a", Text: &text}}, protocol.MaxItems+1)
			return &protocol.ReadResourceResult{Contents: contents}, nil
		})
		_, err := s.session.ReadResource(s.Context(), &protocol.ReadResourceParams{URI: "x://a"})
		return err
	}}},
	"`*transport.OversizedError`": {{as[*transport.OversizedError], false, false, func(s *scenario) error {
		s.offer(ok)
		_, err := client.Call[string](s.Context(), s.session, "work", map[string]any{"text": strings.Repeat("x", largest)})
		return err
	}}, {as[*transport.OversizedError], true, true, func(s *scenario) error {
		s.offer(func(context.Context) (string, error) { return strings.Repeat("x", largest), nil })
		return s.call(s.Context(), s.session)
	}}},
}

const (
	largest   = 1 << 20 // bytes of a message
	storeSize = 1 << 20 // bytes of all tasks
)

// A downTransport is a transport to a server that is down.
type downTransport struct{}

func (downTransport) Open(context.Context) (transport.Link, error) { return nil, errors.New("away") }

// check runs one outcome and checks it.
func (o *outcome) check(t *testing.T) (notExecuted bool) {
	s := &scenario{T: t}
	s.server = server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Tasks: &server.TaskOptions{Store: &server.MemoryTaskStore{MaxBytes: storeSize}}})
	server.AddTool(s.server, protocol.Tool{Name: "other"}, func(context.Context, struct{}) (string, error) { return "", nil })
	server.AddResource(s.server, protocol.Resource{Name: "other", URI: "x://other"}, ok)
	var to transport.Transport
	if o.http {
		endpoint := streamable.NewHandler(s.server, streamable.HandlerOptions{})
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.refuses != nil {
				s.refuses(w, r, endpoint)
				return
			}
			endpoint.ServeHTTP(w, r)
		}))
		defer front.Close()
		to = &streamable.Client{URL: front.URL, Authorizer: s, MaxFrame: largest}
	} else {
		to = inmem.New(func(link transport.Link) {
			s.links.Store(link)
			s.server.Accept(link)
		}, inmem.Options{MaxFrame: largest})
	}
	elicit := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		if o.is(new(client.InputError)) {
			return nil, errors.New("nobody is here")
		}
		if s.asked != nil {
			s.asked()
		}
		return client.Accept(nil)
	}
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{Tasks: o.is(client.ErrTaskCancelled) || o.is(client.ErrDropped), Elicit: elicit, MaxRounds: 2})
	session, err := c.Connect(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	s.session = session
	err = o.fail(s)
	s.refuses = nil
	if !o.is(err) {
		t.Errorf("got %v", err)
	}
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := errors.Join(c.Close(closing), s.server.Close(closing)); err != nil {
		t.Error(err)
	}
	if ran := s.ran.Load() > 0; ran != o.ran {
		t.Errorf("%v: the handler ran: %t", err, ran)
	}
	if client.NotExecuted(err) && o.ran {
		t.Errorf("the handler ran, and NotExecuted is true for %v", err)
	}
	return client.NotExecuted(err)
}

// TestExecutedOfErrors checks the column "Executed?" of docs/guide/errors.md.
func TestExecutedOfErrors(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs", "guide", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "| Executed? |")
	rows := strings.Split(table, "\n")[2:]
	checked := 0
	for _, row := range rows {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 {
			break
		}
		name, executed := strings.TrimPrefix(cells[0], "| "), cells[2]
		if executed == "–" { // it is not the error of a call
			continue
		}
		t.Run(strings.ReplaceAll(name, "`", ""), func(t *testing.T) {
			checked++
			var ran, not, notExecuted bool
			for _, o := range outcomes[name] {
				ran, not = ran || o.ran, not || !o.ran
				check := func(t *testing.T) { notExecuted = o.check(t) || notExecuted }
				if o.http {
					check(t)
				} else {
					synctest.Test(t, check)
				}
			}
			var right bool
			switch executed {
			case "no":
				right = not && !ran
			case "yes", "in part":
				right = ran && !not
			case "ask `NotExecuted`":
				right = ran && not == notExecuted
			default:
				right = ran && not
			}
			if !right {
				t.Errorf("the page says %q: ran %t, did not run %t, NotExecuted %t", executed, ran, not, notExecuted)
			}
		})
	}
	if checked != len(outcomes) {
		t.Errorf("%d rows, and outcomes of %d", checked, len(outcomes))
	}
}
