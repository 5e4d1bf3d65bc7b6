package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// bowline calls one of three tools. Echo is made of a Go function, which does the floor's
// work: from a Go value to a Go value and back. Events does the same, but its response is a
// stream of events. Raw takes its arguments as they came.
func bowline(b bowlineTool) implementation {
	return implementation{
		agent:  agents + "bowline",
		memory: b.inMemory,
		stdio: func(ctx context.Context, revision string, command []string) (*session, error) {
			return b.connect(ctx, revision, &stdio.Command{Path: command[0], Args: command[1:]})
		},
		serveStdio: func(ctx context.Context) error {
			return newBowlineServer(serving{tools: hostedHere().tools}).Serve(ctx, &stdio.Server{})
		},
		http: func(ctx context.Context, revision, url string) (*session, error) {
			return b.connect(ctx, revision, &streamable.Client{URL: url})
		},
		handler: func(string) http.Handler { return newBowlineHandler() },
		serveHTTP: func(listener net.Listener) error {
			h := newBowlineHandler()
			return h.Serve(context.Background(), &http.Server{Handler: h}, listener)
		},
	}
}

// overOwnHTTP leaves the connections to net/http on both sides, as in a program that has a server and a client of its own.
func overOwnHTTP() implementation {
	b := bowline(echoTool)
	b.serveHTTP = nil
	b.http = func(ctx context.Context, revision, url string) (*session, error) {
		return echoTool.connect(ctx, revision, &streamable.Client{URL: url, HTTP: &http.Client{Transport: newPool()}})
	}
	return b
}

func bowlineInfo() protocol.Implementation {
	return protocol.Implementation{Name: "bowline", Version: "1"}
}

func newBowlineHandler() *streamable.Handler {
	return streamable.NewHandler(newBowlineServer(serving{tools: hostedHere().tools}), streamable.HandlerOptions{})
}

func newBowlineServer(o serving) *server.Server {
	options := server.Options{Conn: conn.Tuning{MaxServing: o.parks}, LogRate: -1}
	if o.notified != nil {
		options.Fallback = func(context.Context, *server.Request) (any, error) {
			o.notified()
			return nil, nil
		}
	}
	s := server.New(bowlineInfo(), options)
	server.AddTool(s, protocol.Tool{Name: string(echoTool)},
		func(_ context.Context, in arguments) (string, error) { return in.Message, nil })
	server.AddTool(s, protocol.Tool{Name: string(eventsTool)}, func(ctx context.Context, in arguments) (string, error) {
		server.Stream(ctx)
		return in.Message, nil
	})
	server.AddTool(s, protocol.Tool{Name: string(rawTool), InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, params *protocol.CallToolParams) (string, error) {
			return string(params.Arguments), nil
		})
	server.AddTool(s, protocol.Tool{Name: "order"}, func(_ context.Context, in order) (order, error) { return in, nil })
	server.AddTool(s, protocol.Tool{Name: "document"}, func(_ context.Context, in many) (string, error) { return foundText(in.Count), nil })
	server.AddTool(s, protocol.Tool{Name: "park"}, func(ctx context.Context, _ nothing) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	server.AddTool(s, protocol.Tool{Name: "flood"}, func(ctx context.Context, in many) (string, error) {
		log := server.Logger(ctx)
		for range in.Count {
			log.InfoContext(ctx, "news")
		}
		return "", nil
	})
	addBowlineLists(s, o)
	return s
}

// addBowlineLists adds what is there to be listed, and a tool with a large schema.
func addBowlineLists(s *server.Server, o serving) {
	for i := range o.resources {
		server.AddResource(s, protocol.Resource{URI: fmt.Sprintf("file:///archive/%06d.txt", i), Name: toolName(i), Description: toolDescription},
			func(context.Context) (string, error) { return "", nil })
	}
	if o.schema > 0 {
		server.AddTool(s, protocol.Tool{Name: "wide", InputSchema: wideSchema(o.schema)},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{}, nil
			})
	}
	for i := range o.tools {
		server.AddTool(s, protocol.Tool{Name: toolName(i), Description: toolDescription, InputSchema: json.RawMessage(toolSchema)},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{}, nil
			})
	}
}

// wideSchema is a schema of so many bytes.
func wideSchema(bytes int) json.RawMessage {
	const member = `"member%06d":{"type":"string","minLength":1,"description":"what to look for"}`
	var all []string
	for i := range bytes / len(member) {
		all = append(all, fmt.Sprintf(member, i))
	}
	return json.RawMessage(`{"type":"object","properties":{` + strings.Join(all, ",") + `}}`)
}

// A bowlineTool is the tool that echo calls.
type bowlineTool string

const (
	echoTool   bowlineTool = "echo"
	eventsTool bowlineTool = "events"
	rawTool    bowlineTool = "raw"
)

// inMemory has queues with a place for each caller: on a machine that is held up
// a full link refuses some (ADR-0007).
func (b bowlineTool) inMemory(revision string, o serving) dial {
	s := newBowlineServer(o)
	over := inmem.New(s.Accept, inmem.Options{QueueFrames: max(8192, o.parks)})
	c := newBowlineClient(revision, o)
	return func(ctx context.Context) (*session, error) { return b.open(ctx, c, revision, over) }
}

func (b bowlineTool) connect(ctx context.Context, revision string, over transport.Transport) (*session, error) {
	return b.open(ctx, newBowlineClient(revision, serving{}), revision, over)
}

// revisionToAsk is none for the latest, as users do.
func revisionToAsk(revision string) string {
	if revision == modern {
		return ""
	}
	return revision
}

// newBowlineClient makes a client that does not try again.
func newBowlineClient(revision string, o serving) *client.Client {
	options := client.Options{ProtocolVersion: revisionToAsk(revision), FailFast: true}
	if o.many {
		options.Supervisor = supervisor.New(supervisor.Options{})
	}
	if o.received != nil {
		options.LogLevel = protocol.LogInfo
		options.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
			if _, ok := e.(*client.LogMessage); ok {
				o.received()
			}
		}
	}
	return client.New(bowlineInfo(), options)
}

func (b bowlineTool) open(ctx context.Context, c *client.Client, revision string, over transport.Transport) (*session, error) {
	s, err := connectBowline(ctx, c, revision, over)
	if err != nil {
		return nil, err
	}
	return b.session(s), nil
}

func connectBowline(ctx context.Context, c *client.Client, revision string, over transport.Transport) (*client.Session, error) {
	s, err := c.Connect(ctx, over)
	if err != nil {
		return nil, err
	}
	if got := s.Server().ProtocolVersion; got != revision {
		return nil, errors.Join(fmt.Errorf("it speaks %s", got), s.Close(ctx))
	}
	return s, nil
}

func (b bowlineTool) session(s *client.Session) *session {
	patient := s.With(client.CallOptions{Timeout: -1})
	return &session{
		echo: func(text string) call { return b.echo(s, text) },
		order: func(o order) call {
			return func(ctx context.Context) error {
				got, err := client.Call[order](ctx, s, "order", o)
				return cmp.Or(err, sameOrder(got, o))
			}
		},
		list: func(ctx context.Context) (tools int, err error) {
			for _, err := range s.Tools(ctx) {
				if err != nil {
					return 0, err
				}
				tools++
			}
			return tools, nil
		},
		resources: func(ctx context.Context) (resources int, err error) {
			for _, err := range s.Resources(ctx) {
				if err != nil {
					return 0, err
				}
				resources++
			}
			return resources, nil
		},
		wide: func(ctx context.Context) error {
			_, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "wide", Arguments: json.RawMessage(`{"member000001":"x"}`)})
			return err
		},
		notify: func(ctx context.Context) error { return s.Notify(ctx, "notifications/news", nothing{}) },
		park: func(ctx context.Context) error {
			_, err := patient.CallTool(ctx, &protocol.CallToolParams{Name: "park", Arguments: json.RawMessage(`{}`)})
			return err
		},
		fetch: func(ctx context.Context, bytes int) error {
			text, err := client.Call[string](ctx, s, "document", many{bytes})
			if err != nil {
				return err
			}
			return sameText(text, foundText(bytes))
		},
		flood: func(ctx context.Context, count int) error {
			_, err := client.Call[string](ctx, patient, "flood", many{count})
			return err
		},
		close: func() error { return s.Close(context.Background()) },
	}
}

// echo encodes its text each time, as the floor does, unless the tool is raw.
func (b bowlineTool) echo(s *client.Session, text string) call {
	if b == rawTool {
		raw, err := protocol.Marshal(arguments{text}) // as our client sends it, so that it comes back the same
		if err != nil {
			return func(context.Context) error { return err }
		}
		return func(ctx context.Context) error { return callBowline(ctx, s, b, raw, string(raw)) }
	}
	return func(ctx context.Context) error {
		arguments, err := json.Marshal(arguments{text})
		if err != nil {
			return err
		}
		return callBowline(ctx, s, b, arguments, text)
	}
}

func callBowline(ctx context.Context, s *client.Session, tool bowlineTool, arguments json.RawMessage, want string) error {
	result, err := s.CallTool(ctx, &protocol.CallToolParams{Name: string(tool), Arguments: arguments})
	if err != nil {
		return err
	}
	return sameText(result.Content.Text(), want)
}
