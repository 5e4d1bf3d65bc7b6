package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/bowline-mcp/bowline/transport/transcript"
)

// A checking is a *testing.T or a *rapid.T.
type checking interface {
	rapid.TB
	Cleanup(f func())
	Context() context.Context
}

// A world is a server and one client of it over HTTP, directly or through a gateway.
type world struct {
	prefix  string // of names: what a gateway puts before them
	server  *server.Server
	session *client.Session
	user    client.Options // who answers
	ctx     context.Context

	served    atomic.Int64  // requests that a gateway passes on, and the server has answered
	malformed atomic.Bool   // the client sends, on purpose, what the schema does not allow
	seen      chan struct{} // one for each progress that the client has seen
	updates   chan string   // resources
	began     chan struct{} // a call of hold
	ended     chan struct{} // one that was cancelled
	release   chan struct{} // ends a task
	logged    chan string   // messages that the client has got
	mu        sync.Mutex    // protects asked
	asked     []string      // of the client
}

// A cell is a pair of eras, and how the gateway reaches the server.
type cell struct {
	front, back string
	pipes       bool
	tasks       bool // the server has some, which only clients of its era can have
}

func cells() (all []cell) {
	for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, back := range []string{protocol.LatestLegacy, protocol.Latest} {
			all = append(all, cell{front, back, true, false}, cell{front, back, false, false})
		}
	}
	return all
}

// newWorld returns a world without a client.
func newWorld(t checking, tasks bool) *world {
	w := &world{
		seen: make(chan struct{}, 1), updates: make(chan string, 64),
		began: make(chan struct{}, 1), ended: make(chan struct{}, 1), release: make(chan struct{}), logged: make(chan string, 64),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w.ctx = ctx
	w.server = subject(w, tasks)
	t.Cleanup(func() { w.server.Close(context.Background()) })
	return w
}

// direct connects a client to a server.
func direct(t checking, c cell) *world {
	w := newWorld(t, c.tasks)
	w.connect(t, c.front, w.site(t, w.server))
	return w
}

// through connects a client to a gateway over a server.
func through(t checking, c cell, path string) *world {
	w := newWorld(t, c.tasks)
	w.prefix = "s__"
	child := &pipes{server: w.server, t: t}
	t.Cleanup(child.serving.Wait) // which the end of the gateway brings about
	quiet := client.Options{Conn: conn.Tuning{Log: slog.New(slog.DiscardHandler)}}
	g := gateway.New(gateway.Options{Client: quiet, Each: func(s *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion = c.back
		if c.pipes {
			s.Transport = w.watched(t, child)
		} else {
			s.Transport = w.watched(t, &streamable.Client{URL: w.site(t, w.server)})
		}
	}})
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	})
	file, err := mcpjson.Load(path)
	if err == nil {
		_, err = g.Apply(w.ctx, file)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.connect(t, c.front, w.site(t, g.Server()))
	return w
}

// connect connects the client.
func (w *world) connect(t checking, front, url string) {
	o := client.Options{ProtocolVersion: front, FailFast: true, CacheBytes: -1, Tasks: true, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
		switch e := e.(type) {
		case *client.ResourceUpdated:
			w.updates <- e.URI
		case *client.LogMessage:
			w.logged <- fmt.Sprintf("%s %s %s", e.Level, e.Logger, e.Data)
		}
	}}
	w.answers(&o)
	w.user = o
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(w.ctx, w.watched(t, &streamable.Client{URL: url}))
	if err != nil {
		t.Fatal(err)
	}
	w.session = session
	t.Cleanup(func() { session.Close(context.Background()) })
}

// answers makes a client answer questions, and remember them.
func (w *world) answers(o *client.Options) {
	me := user("me")
	note := func(q protocol.InputRequest) {
		w.mu.Lock()
		defer w.mu.Unlock()
		params, _ := valueOf([]byte(encoded(q))).(map[string]any)
		delete(params, "_meta")         // is of the hop
		delete(params, "elicitationId") // is drawn by the server
		w.asked = append(w.asked, q.Method()+" "+encoded(params))
	}
	o.Elicit = func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		note(p)
		switch {
		case p.Message == "decline":
			return client.Decline()
		case p.Mode == protocol.ElicitURL:
			return &protocol.ElicitResult{Action: protocol.ElicitAccept}, nil
		}
		return me.Elicit(ctx, s, p)
	}
	o.ElicitURL = o.Elicit
	o.Sample = func(ctx context.Context, s *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
		note(p)
		return me.Sample(ctx, s, p)
	}
	o.Roots = func(ctx context.Context, s *client.Session) ([]protocol.Root, error) {
		note(&protocol.ListRootsParams{})
		return me.Roots(ctx, s)
	}
}

// watched checks what both sides of a link send against the schema.
func (w *world) watched(t checking, inner transport.Transport) transport.Transport {
	both := &specification.Checker{ThisSide: true, OtherSide: true, OnViolation: func(err error) {
		if !w.malformed.Load() {
			t.Errorf("%q: against the schema: %v", w.prefix, err)
		}
	}}
	return transcript.Tap(inner, both.Observe)
}

// site serves clients over HTTP.
func (w *world) site(t checking, s *server.Server) string {
	h := streamable.NewHandler(s, streamable.HandlerOptions{})
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond) // its client has left: there is nobody to refuse for a while
		defer cancel()
		s.Close(ctx)
		h.Close(0)
		web.Close()
	})
	return web.URL
}

// A pipes is the transport of a child process, whose server runs in this one.
type pipes struct {
	server  *server.Server
	t       checking
	serving sync.WaitGroup
}

// Open implements transport.Transport.
func (p *pipes) Open(ctx context.Context) (transport.Link, error) {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.serving.Go(func() {
		err := p.server.Serve(context.Background(), &stdio.Server{In: theirIn, Out: theirOut})
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			p.t.Errorf("the server ended with %v", err)
		}
	})
	return (&stdio.Server{In: ourIn, Out: ourOut}).Open(ctx) // frames are the same in both directions
}

// subject is the server of a world: it has a feature of each kind.
func subject(w *world, tasks bool) *server.Server {
	o := server.Options{
		PageSize: 3, OnSubscribe: func(context.Context, string) error { return nil },
		Audit: func(_ context.Context, r server.Record) {
			switch r.Method {
			case protocol.MethodCallTool, protocol.MethodGetPrompt, protocol.MethodReadResource, protocol.MethodComplete:
				w.served.Add(1)
			}
			if r.Name == "hold" { // counted by now, so none of the next step
				w.ended <- struct{}{}
			}
		},
	}
	if tasks {
		o.Tasks = &server.TaskOptions{Legacy: true}
	}
	s := server.New(protocol.Implementation{Name: "subject", Version: "1"}, o)
	if addTools(s, w); tasks {
		addTasks(s, w)
	}
	addAskers(s)
	completion := server.Completion{Argument: "Who", Values: func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
		return []string{typed + "a", typed + "b"}, nil
	}}
	server.AddPrompt(s, protocol.Prompt{Name: "greet", Title: "Greets"}, func(_ context.Context, in struct {
		Who  string
		More string `json:"More,omitzero"`
	}) (string, error) {
		return "hello " + in.Who + in.More, nil
	}, completion)
	server.AddPrompt(s, protocol.Prompt{Name: "broken"}, func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32050, Message: "broken", Data: []byte(`{"why":["a",1]}`)}
	})
	server.AddResource(s, protocol.Resource{URI: "s:/one", Name: "one"}, func(context.Context) (string, error) { return "text", nil })
	server.AddResource(s, protocol.Resource{URI: "s:/bytes", Name: "bytes"}, func(context.Context) ([]byte, error) { return []byte{0, 255}, nil })
	completion.Argument = "N"
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "s:/all/{N}", Name: "all"}, func(_ context.Context, in struct{ N string }) (string, error) {
		if in.N == "none" {
			return "", server.ErrNotFound
		}
		return in.N, nil
	}, completion)
	return s
}

// addTools adds the tools that do not ask.
func addTools(s *server.Server, w *world) {
	type echoed struct {
		Text string   `json:"text"`
		N    int      `json:"n,omitzero"`
		List []string `json:"list,omitempty"`
	}
	server.AddTool(s, protocol.Tool{Name: "echo", Title: "Echo", Meta: protocol.Meta{"own": []byte(`{"a":1}`)}}, func(_ context.Context, in echoed) (echoed, error) { return in, nil })
	server.AddTool(s, protocol.Tool{Name: "fail"}, func(_ context.Context, in echoed) (string, error) { return "", errors.New(in.Text) })
	server.AddTool(s, protocol.Tool{Name: "fault"}, func(_ context.Context, in echoed) (string, error) {
		return "", &jsonrpc.Error{Code: int64(in.N), Message: in.Text, Data: fmt.Appendf(nil, `{"list":%q,"deep":{"n":[%d]}}`, in.Text, in.N)}
	})
	server.AddTool(s, protocol.Tool{Name: "content"}, func(context.Context, struct{}) (protocol.Contents, error) {
		text := "inner"
		return protocol.Contents{
			protocol.Text("a"), &protocol.ImageContent{Data: []byte{1}, MIMEType: "image/png"}, &protocol.AudioContent{Data: []byte{2}, MIMEType: "audio/wav"},
			&protocol.ResourceLink{URI: "s:/one", Name: "one"},
			&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "s:/one", Text: &text}},
		}, nil
	})
	server.AddTool(s, protocol.Tool{Name: "meta"}, func(ctx context.Context, _ struct{}) (*protocol.CallToolResult, error) {
		meta, params := protocol.Meta{}, server.RequestFrom(ctx).Params.(*protocol.CallToolParams)
		for name, value := range params.Meta {
			if strings.HasPrefix(name, "own/") {
				meta[name] = value
			}
		}
		result := &protocol.CallToolResult{Content: protocol.Texts("meta")}
		result.Meta = meta
		return result, nil
	})
	server.AddTool(s, protocol.Tool{Name: "steps"}, func(ctx context.Context, in echoed) (string, error) {
		for i := range in.N {
			server.Progress(ctx, float64(i)+0.5, float64(in.N), fmt.Sprint(in.Text, i))
			select {
			case <-w.seen: // so that none replaces another
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		return "done", nil
	})
	server.AddTool(s, protocol.Tool{Name: "log"}, func(ctx context.Context, in echoed) (string, error) {
		for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			server.Logger(ctx).Log(ctx, level, in.Text, "n", i)
		}
		return "logged", nil
	})
	server.AddTool(s, protocol.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
		w.began <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	})
}

// addAskers adds the tools that ask their client, in both ways in which a handler may.
func addAskers(s *server.Server) {
	for name, how := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(s, protocol.Tool{Name: "form-" + name}, func(ctx context.Context, in struct{ Ask []string }) (string, error) {
			var answers []string
			for _, message := range in.Ask {
				answer, err := server.Elicit[struct {
					Text string `json:"text"`
				}](ctx, message)
				if err != nil {
					return "", err
				}
				answers = append(answers, answer.Text)
			}
			return strings.Join(answers, ","), nil
		}, server.Asks(how, protocol.ClientCapabilities{}))
		server.AddTool(s, protocol.Tool{Name: "url-" + name}, func(ctx context.Context, _ struct{}) (string, error) {
			return "opened", server.ElicitURL(ctx, "open", "https://example.com/")
		}, server.Asks(how, protocol.ClientCapabilities{}))
		server.AddTool(s, protocol.Tool{Name: "sample-" + name}, func(ctx context.Context, _ struct{}) (string, error) {
			result, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 9, Messages: []protocol.SamplingMessage{
				{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}},
			}})
			if err != nil {
				return "", err
			}
			return result.Content.Text(), nil
		}, server.Asks(how, protocol.ClientCapabilities{}))
		server.AddTool(s, protocol.Tool{Name: "roots-" + name}, func(ctx context.Context, _ struct{}) (string, error) {
			roots, err := server.Roots(ctx)
			return fmt.Sprint(roots), err
		}, server.Asks(how, protocol.ClientCapabilities{}))
	}
}
