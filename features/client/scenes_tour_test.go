package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// revisions are those whose conversations are compared.
var revisions = []string{protocol.Version20241105, protocol.Version20250618, protocol.Version20251125, protocol.Version20260728}

// A parcel is what the tools of a tour take and return.
type parcel struct {
	To     string   `json:"to" jsonschema:"who gets it"`
	Grams  int      `json:"grams,omitzero" jsonschema:"its weight" minimum:"1"`
	Labels []string `json:"labels,omitzero"`
}

// tourServer has some of everything that is listed.
func (s *conversation) tourServer() *server.Server {
	post := s.server("post", server.Options{
		Instructions: "Send parcels.", PageSize: 2, ListTTL: time.Minute, LoggerName: "office",
		OnSubscribe: func(ctx context.Context, uri string) error {
			s.notef("post OnSubscribe", "%s", uri)
			if uri == "box://locked" {
				return errors.New("it is locked")
			}
			return nil
		},
		OnUnsubscribe: func(_ context.Context, uri string) { s.notef("post OnUnsubscribe", "%s", uri) },
		OnRootsChanged: func(_ context.Context, session *server.Session) {
			s.notef("post OnRootsChanged", "%s", session.Client().Info.Name)
		},
		OnLogLevel: func(_ context.Context, session *server.Session) {
			s.notef("post OnLogLevel", "%s %s", session.Client().Info.Name, session.LogLevel())
		},
		Fallback: func(_ context.Context, r *server.Request) (any, error) {
			s.notef("post Fallback", "%s %s notification %t", r.Method, s.frame(r.Params.(json.RawMessage)), r.Notification)
			if r.Method == "parcels/lose" {
				return nil, &jsonrpc.Error{Code: -32099, Message: "lost for good", Data: json.RawMessage(`{"parcel":7}`)}
			}
			return map[string]any{"served": r.Method}, nil
		},
	})
	title := func(name string) protocol.Tool {
		return protocol.Tool{Name: name, Title: "Title of " + name, Description: "It does " + name}
	}
	server.AddTool(post, title("send"), func(_ context.Context, in parcel) (parcel, error) {
		in.Grams += 10
		return in, nil
	})
	server.AddTool(post, title("weigh"), func(ctx context.Context, in parcel) (string, error) {
		for i := range 2 {
			server.Progress(ctx, i+1, 2, "weighing "+in.To)
			pass(time.Second)
		}
		server.Logger(ctx).Warn("heavy", "grams", in.Grams)
		server.Logger(ctx).Debug("not wanted")
		server.Note(ctx, "weighed")
		return fmt.Sprint(in.Grams, " g"), nil
	})
	server.AddTool(post, title("refuse"), func(context.Context, struct{}) (string, error) { return "", errors.New("no parcels today") })
	server.AddTool(post, title("deny"), func(context.Context, struct{}) (string, error) {
		return "", &jsonrpc.Error{Code: -32050, Message: "denied", Data: json.RawMessage(`["by","rule"]`)}
	})
	server.AddTool(post, title("panic"), func(context.Context, struct{}) (string, error) { panic("secret") })
	server.AddTool(post, title("wait"), func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		s.notef("post tool", "wait ended: %s", s.failure(context.Cause(ctx)))
		pass(time.Second)
		return "too late", nil
	})
	server.AddTool(post, title("show"), func(context.Context, struct{}) (*protocol.CallToolResult, error) {
		return &protocol.CallToolResult{Content: protocol.Contents{
			protocol.Text("a picture"), &protocol.ImageContent{Data: []byte("png"), MIMEType: "image/png"},
			&protocol.AudioContent{Data: []byte("wav"), MIMEType: "audio/wav"}, &protocol.ResourceLink{URI: "box://a", Name: "a"},
		}, Result: protocol.Result{Meta: protocol.Meta{"example.org/shelf": json.RawMessage(`3`)}}}, nil
	})
	for _, name := range []string{"a", "b", "locked"} {
		server.AddResource(post, protocol.Resource{URI: "box://" + name, Name: "box " + name, MIMEType: "text/plain"}, func(context.Context) (string, error) {
			return "in " + name, nil
		})
	}
	server.AddTemplate(post, protocol.ResourceTemplate{URITemplate: "parcel://{number}", Name: "parcel"}, func(_ context.Context, in struct {
		Number int `json:"number"`
	}) ([]byte, error) {
		switch in.Number {
		case 1:
			return []byte{1, 2, 3}, nil
		case 2:
			return nil, errors.New("the shelf is broken")
		}
		return nil, server.ErrNotFound
	}, server.Completion{Argument: "number", Values: func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
		return []string{typed + "1", typed + "2"}, nil
	}})
	for _, name := range []string{"letter", "card", "stamp"} {
		server.AddPrompt(post, protocol.Prompt{Name: name, Description: "Writes a " + name}, func(_ context.Context, in struct {
			To   string `json:"to"`
			Tone string `json:"tone,omitzero" enum:"kind,harsh,short"`
		}) (string, error) {
			if in.To == "nobody" {
				return "", errors.New("nobody lives there")
			}
			return "Write a " + in.Tone + " " + name + " to " + in.To, nil
		})
	}
	server.AddMethod(post, "parcels/count", func(_ context.Context, in struct{ Shelf int }) (map[string]int, error) {
		if in.Shelf < 0 {
			return nil, errors.New("no such shelf")
		}
		return map[string]int{"count": in.Shelf * 2}, nil
	})
	return post
}

// Two clients use everything that a server offers, in each revision.
func TestSceneOfATour(t *testing.T) {
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			play(t, "tour-"+version, "Two clients use all that a server offers, in "+version, tour(version))
		})
	}
}

func tour(version string) func(*conversation) {
	return func(s *conversation) {
		s.brief = true
		post := s.tourServer()
		s.Step("Ada connects")
		ada := s.client("ada", client.Options{ProtocolVersion: version, LogLevel: protocol.LogInfo, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home/ada", Name: "home"}}, nil
		}})
		a := s.connect("ada", ada, to(post))
		s.Step("Ben connects, who declares nothing and asks for no events")
		bare := s.options("ben", client.Options{ProtocolVersion: version})
		bare.OnEvent = nil
		ben := client.New(protocol.Implementation{Name: "ben", Version: "0.1"}, bare)
		b := s.connect("ben", ben, to(post))
		s.listed(a)
		s.called(a, b)
		s.Step("Ada reads resources, and some that are not there")
		for _, uri := range []string{"box://a", "parcel://1", "parcel://2", "parcel://3", "parcel://x", "nowhere://"} {
			s.call("ada", "ReadResource "+uri, func(ctx context.Context) (any, error) {
				return a.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
			})
		}
		s.reported(post, a, b)
		s.Step("Prompts and completions")
		for _, params := range []*protocol.GetPromptParams{
			{Name: "letter", Arguments: map[string]string{"to": "Eve", "tone": "kind"}}, {Name: "letter", Arguments: map[string]string{"to": "nobody"}},
			{Name: "letter"}, {Name: "letter", Arguments: map[string]string{"to": "Eve", "tone": "loud"}}, {Name: "novel"},
		} {
			s.call("ada", fmt.Sprint("GetPrompt ", params.Name, params.Arguments), func(ctx context.Context) (any, error) { return a.GetPrompt(ctx, params) })
		}
		for _, params := range []*protocol.CompleteParams{
			{Ref: protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "card"}, Argument: protocol.CompleteArgument{Name: "tone", Value: "k"}},
			{Ref: protocol.CompleteReference{Type: protocol.ReferenceResource, URI: "parcel://{number}"}, Argument: protocol.CompleteArgument{Name: "number", Value: "4"}},
			{Ref: protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "novel"}, Argument: protocol.CompleteArgument{Name: "tone"}},
			{Ref: protocol.CompleteReference{Type: "ref/other", Name: "card"}, Argument: protocol.CompleteArgument{Name: "tone"}},
		} {
			s.call("ada", fmt.Sprint("Complete ", params.Ref, params.Argument), func(ctx context.Context) (any, error) { return a.Complete(ctx, params) })
		}
		s.others(version, ada, a, b)
		s.Step("Ben closes his session, then Ada hers, and the server closes")
		s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, b.Close(ctx) })
		s.call("ben", "Ping", func(ctx context.Context) (any, error) { return nil, b.Ping(ctx) })
		s.Step("Ada closes her client, and the server closes")
		s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, ada.Close(ctx) })
		s.call("ada", "Wait", func(context.Context) (any, error) { return nil, a.Wait() })
		s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
		s.call("ada", "Connect to a closed server", func(ctx context.Context) (any, error) {
			late := s.options("late", client.Options{ProtocolVersion: version, FailFast: true})
			session, err := client.New(protocol.Implementation{Name: "late", Version: "1"}, late).Connect(ctx, s.tap("late", to(post)))
			if err == nil {
				err = session.Close(ctx)
			}
			return nil, err
		})
	}
}

// listed lists everything, page by page and as a whole.
func (s *conversation) listed(a *client.Session) {
	s.Step("Ada lists the tools page by page, and one page that is not there")
	var cursor *string
	for more := true; more; {
		s.call("ada", "ListTools", func(ctx context.Context) (any, error) {
			page, err := a.ListTools(ctx, &protocol.ListToolsParams{Cursor: cursor})
			if more = err == nil && page.NextCursor != nil; more {
				cursor = page.NextCursor
			}
			return page, err
		})
	}
	wrong := "nonsense"
	s.call("ada", "ListTools with a wrong cursor", func(ctx context.Context) (any, error) {
		return a.ListTools(ctx, &protocol.ListToolsParams{Cursor: &wrong})
	})
	s.Step("Ada lists the rest")
	s.call("ada", "Resources", func(ctx context.Context) (any, error) {
		var all []string
		for r, err := range a.Resources(ctx) {
			if err != nil {
				return all, err
			}
			all = append(all, r.URI)
		}
		return all, nil
	})
	s.call("ada", "ListResourceTemplates", func(ctx context.Context) (any, error) { return a.ListResourceTemplates(ctx, nil) })
	s.call("ada", "ListPrompts", func(ctx context.Context) (any, error) { return a.ListPrompts(ctx, nil) })
}

// called calls tools, with every kind of end.
func (s *conversation) called(a, b *client.Session) {
	s.Step("Ada sends a parcel, then some that are wrong")
	for _, arguments := range []string{`{"to":"Eve","grams":5,"labels":["x","y"]}`, `{}`, `{"to":7}`, `{"to":"Eve","size":1}`, `[]`, ``} {
		s.call("ada", "CallTool send "+arguments, func(ctx context.Context) (any, error) {
			return a.CallTool(ctx, &protocol.CallToolParams{Name: "send", Arguments: json.RawMessage(arguments)})
		})
	}
	for _, name := range []string{"refuse", "deny", "panic", "show", "unknown"} {
		s.Step("Tool " + name)
		s.call("ada", "CallTool "+name, func(ctx context.Context) (any, error) { return a.CallTool(ctx, &protocol.CallToolParams{Name: name}) })
	}
	s.Step("Typed calls")
	s.call("ada", "Call send", func(ctx context.Context) (any, error) { return client.Call[parcel](ctx, a, "send", parcel{To: "Eve"}) })
	s.call("ada", "Call send into an int", func(ctx context.Context) (any, error) { return client.Call[int](ctx, a, "send", parcel{To: "Eve"}) })
	s.call("ada", "Call refuse", func(ctx context.Context) (any, error) { return client.Call[string](ctx, a, "refuse", nil) })
	s.Step("Both weigh at the same time, with progress")
	var ends []func()
	for _, one := range []struct {
		name    string
		session *client.Session
	}{{"ada", a}, {"ben", b}} {
		watching := one.session.With(client.CallOptions{OnProgress: func(p *protocol.ProgressParams) {
			s.notef(one.name+" progress", "%v of %v %s", p.Progress, p.Total, p.Message)
		}})
		_, wait := s.start(one.name, "weigh", func(ctx context.Context) (any, error) {
			return watching.CallTool(ctx, &protocol.CallToolParams{Name: "weigh", Arguments: json.RawMessage(`{"to":"` + one.name + `","grams":7}`)})
		})
		ends = append(ends, wait)
		s.pass(100 * time.Millisecond)
	}
	for _, wait := range ends {
		wait()
	}
	s.Step("A call that Ada leaves, and one that takes too long")
	leave, wait := s.start("ada", "wait, and leave", func(ctx context.Context) (any, error) {
		return a.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
	})
	s.pass(time.Second)
	leave(errors.New("ada has gone"))
	wait()
	s.pass(2 * time.Second)
	impatient := a.With(client.CallOptions{Timeout: 3 * time.Second})
	s.call("ada", "wait for 3 s", func(ctx context.Context) (any, error) {
		return impatient.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
	})
	s.pass(2 * time.Second)
}

// reported changes what is listed, and resources that are subscribed to.
func (s *conversation) reported(post *server.Server, a, b *client.Session) {
	s.Step("Both subscribe; one resource is locked")
	s.Sort() // listenings that are replaced end at the same time
	s.call("ada", "Subscribe a", func(ctx context.Context) (any, error) {
		return nil, a.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://a"})
	})
	s.pass(2 * time.Second)
	s.call("ada", "Subscribe locked", func(ctx context.Context) (any, error) {
		return nil, a.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://locked"})
	})
	s.pass(2 * time.Second)
	s.call("ben", "Subscribe b", func(ctx context.Context) (any, error) {
		return nil, b.Subscribe(ctx, &protocol.SubscribeParams{URI: "box://b"})
	})
	s.Step("Resources change")
	for _, uri := range []string{"box://a", "box://b", "box://c"} {
		post.ResourceUpdated(uri)
		s.pass(time.Second)
	}
	s.Step("The lists change")
	server.AddTool(post, protocol.Tool{Name: "added"}, func(context.Context, struct{}) (string, error) { return "added", nil })
	s.pass(time.Second)
	post.RemovePrompts("stamp")
	s.pass(time.Second)
	post.RemoveResources("box://b")
	s.pass(time.Second)
	s.call("ada", "ListPrompts", func(ctx context.Context) (any, error) { return a.ListPrompts(ctx, nil) })
	s.Step("Ada unsubscribes, twice")
	for range 2 {
		s.call("ada", "Unsubscribe a", func(ctx context.Context) (any, error) {
			return nil, a.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "box://a"})
		})
		s.pass(2 * time.Second)
	}
	post.ResourceUpdated("box://a")
	s.pass(time.Second)
}

// others does what has no place elsewhere.
func (s *conversation) others(version string, ada *client.Client, a, b *client.Session) {
	s.Step("Own methods, and notifications")
	for _, one := range []struct {
		method string
		params any
	}{
		{"parcels/count", map[string]int{"Shelf": 4}}, {"parcels/count", map[string]int{"Shelf": -1}}, {"parcels/count", map[string]string{"Shelf": "x"}},
		{"parcels/lose", nil}, {"parcels/find", map[string]int{"n": 1}}, {"rpc.reserved", nil},
	} {
		s.call("ada", "Request "+one.method, func(ctx context.Context) (any, error) { return a.Request(ctx, one.method, one.params) })
	}
	s.call("ada", "Notify", func(ctx context.Context) (any, error) {
		return nil, a.Notify(ctx, "notifications/knock", map[string]int{"times": 3})
	})
	s.call("ben", "Ping", func(ctx context.Context) (any, error) { return nil, b.Ping(ctx) })
	s.Step("Levels of the log, and roots that change")
	s.call("ada", "SetLogLevel", func(ctx context.Context) (any, error) { return nil, a.SetLogLevel(ctx, protocol.LogError) })
	s.call("ada", "weigh without its warning", func(ctx context.Context) (any, error) {
		return client.Call[string](ctx, a, "weigh", parcel{To: "Eve", Grams: 9})
	})
	s.call("ada", "SetLogLevel to nonsense", func(ctx context.Context) (any, error) { return nil, a.SetLogLevel(ctx, "loud") })
	s.call("ada", "RootsChanged", func(ctx context.Context) (any, error) { return nil, ada.RootsChanged(ctx) })
	s.Step("What the connections have counted")
	for name, session := range map[string]*client.Session{"ada": a, "ben": b} {
		counts := session.Conn().Stats()
		s.notef(name+" counts", "calls %d ended %d late %d unknown %d malformed %d shed %d, in %d out %d", counts.Calls, counts.Ended(), counts.Late,
			counts.Unknown, counts.Malformed, counts.Shed, counts.BytesIn, counts.BytesOut)
		if state := session.Status().State; state != conn.Ready {
			s.t.Errorf("%s is %v in %s", name, state, version)
		}
	}
}
