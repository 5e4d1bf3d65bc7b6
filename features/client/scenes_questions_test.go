package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// An order is a form that users fill in.
type order struct {
	Size  string `json:"size" enum:"small,large" default:"small"`
	Count int    `json:"count,omitzero" minimum:"1" maximum:"9"`
	Gift  bool   `json:"gift,omitzero"`
}

// askingServer has a tool for each way to ask, in each way to go on.
func (s *conversation) askingServer() *server.Server {
	post := s.server("post", server.Options{Asking: server.AskingOptions{MaxRounds: 3}})
	all := protocol.ClientCapabilities{}
	elicit := protocol.ClientCapabilities{Elicitation: new(protocol.ElicitationCapability)}
	note := func(what string, err error) { s.notef("post tool", "%s: %s", what, s.failure(err)) }
	type how struct {
		How string `json:"how"`
	}
	for name, way := range map[string]server.Asking{"waits": server.Waits, "reruns": server.Reruns} {
		server.AddTool(post, protocol.Tool{Name: "order_" + name}, func(ctx context.Context, in how) (string, error) {
			chosen, err := server.Elicit(ctx, in.How, order{Size: "large"})
			note("Elicit", err)
			if err != nil {
				return "", err
			}
			err = server.Confirm(ctx, "Order "+chosen.Size+"?")
			note("Confirm", err)
			return fmt.Sprint(chosen.Size, " ", chosen.Count, " ", chosen.Gift), err
		}, server.Asks(way, elicit), server.Form[order]())
	}
	server.AddTool(post, protocol.Tool{Name: "page"}, func(ctx context.Context, in how) (string, error) {
		err := server.ElicitURL(ctx, in.How, "https://example.org/"+in.How)
		note("ElicitURL", err)
		return "opened", err
	}, server.Asks(server.Waits, all))
	server.AddTool(post, protocol.Tool{Name: "draw"}, func(ctx context.Context, in how) (*protocol.CreateMessageResult, error) {
		params := &protocol.CreateMessageParams{SystemPrompt: "Draw.", MaxTokens: 50, Messages: []protocol.SamplingMessage{
			{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text(in.How)}},
		}}
		if in.How == "with a tool" {
			params.Tools = []*protocol.Tool{{Name: "pen", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		}
		result, err := server.Sample(ctx, params)
		note("Sample", err)
		return result, err
	}, server.Asks(server.Waits, all))
	server.AddTool(post, protocol.Tool{Name: "where"}, func(ctx context.Context, _ how) ([]protocol.Root, error) {
		roots, err := server.Roots(ctx)
		note("Roots", err)
		return roots, err
	}, server.Asks(server.Reruns, all))
	server.AddTool(post, protocol.Tool{Name: "unprepared"}, func(ctx context.Context, in how) (string, error) {
		err := server.Confirm(ctx, in.How)
		note("Confirm", err)
		return "", err
	})
	server.AddTool(post, protocol.Tool{Name: "endless"}, func(ctx context.Context, in how) (string, error) {
		var round int
		if _, err := server.RequestFrom(ctx).State(&round); err != nil {
			return "", err
		}
		s.notef("post tool", "round %d, answers %s", round, s.answers(server.RequestFrom(ctx).Answers))
		return "", &server.InputRequired{State: round + 1, Requests: protocol.InputRequests{"more": &protocol.ElicitParams{
			Message: in.How, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","default":4}}}`),
		}}}
	}, server.Asks(server.Reruns, elicit))
	server.AddPrompt(post, protocol.Prompt{Name: "letter"}, func(ctx context.Context, _ struct{}) (string, error) {
		err := server.Confirm(ctx, "accept")
		note("Confirm", err)
		return "Dear all", err
	}, server.Asks(server.Waits, elicit))
	return post
}

// answers returns what a handler was answered.
func (s *conversation) answers(all protocol.InputResponses) string {
	raw, err := protocol.Marshal(all)
	if err != nil {
		return s.failure(err)
	}
	return s.frame(raw)
}

// answering returns the options of somebody who does what the question says.
func (s *conversation) answering(who, version string) client.Options {
	act := func(ctx context.Context, how string) (stop bool, result *protocol.ElicitResult, err error) {
		switch how {
		case "decline":
			result, err = client.Decline()
		case "dismiss":
			result, err = client.Dismiss()
		case "fail":
			err = errors.New(who + " is not at home")
		case "misfit":
			result, err = client.Accept(map[string]any{"size": "huge", "count": 12})
		case "nothing":
		case "panic":
			panic("secret")
		case "slow":
			client.Progress(ctx, 1, 2, "thinking")
			<-ctx.Done()
			s.notef(who+" asked", "the question ends: %s", s.failure(context.Cause(ctx)))
			err = ctx.Err()
		default:
			return false, nil, nil
		}
		return true, result, err
	}
	elicit := func(ctx context.Context, _ *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		raw, _ := protocol.Marshal(p)
		s.notef(who+" asked", "%s", s.frame(raw))
		if stop, result, err := act(ctx, p.Message); stop {
			return result, err
		}
		if strings.Contains(string(p.RequestedSchema), "size") {
			return client.Accept(map[string]any{"size": "large", "count": 2})
		}
		return client.Accept(map[string]any{})
	}
	return client.Options{
		ProtocolVersion: version, Elicit: elicit, ElicitURL: elicit,
		Sample: func(ctx context.Context, _ *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			raw, _ := protocol.Marshal(p)
			s.notef(who+" asked", "%s", s.frame(raw))
			how := p.Messages[0].Content.Text()
			if stop, _, err := act(ctx, how); stop {
				return nil, err
			}
			content := protocol.SamplingContents{protocol.Text("a " + how)}
			if how == "two" {
				content = append(content, protocol.Text(" and another"))
			}
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Content: content, Model: "model-1", StopReason: "endTurn"}, nil
		},
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///home/" + who, Name: who}}, nil
		},
	}
}

// A server asks its clients in every way, and gets every kind of answer.
func TestSceneOfQuestions(t *testing.T) {
	for _, version := range revisions[1:] {
		t.Run(version, func(t *testing.T) {
			play(t, "questions-"+version, "A server asks, in "+version, func(s *conversation) { s.questions(version) })
		})
	}
}

func (s *conversation) questions(version string) {
	s.brief = true
	post := s.askingServer()
	s.Step("Ada connects, who answers, and then Ben, who does not")
	ada := s.client("ada", s.answering("ada", version))
	a := s.connect("ada", ada, to(post))
	s.pass(time.Second)
	ben := s.client("ben", client.Options{ProtocolVersion: version})
	b := s.connect("ben", ben, to(post))
	ask := func(who string, session *client.Session, tool, how string) {
		s.call(who, tool+" "+how, func(ctx context.Context) (any, error) {
			return session.CallTool(ctx, &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"how":"` + how + `"}`)})
		})
		s.pass(time.Second)
	}
	for _, one := range []struct{ tool, hows string }{
		{"order_waits", "accept,decline,dismiss,fail,misfit,nothing,panic"}, {"order_reruns", "accept,decline,fail"}, {"page", "accept,decline,fail"},
		{"draw", "cat,two,with a tool,fail,nothing"}, {"where", "ever"}, {"unprepared", "accept"}, {"endless", "accept"},
	} {
		for _, how := range strings.Split(one.hows, ",") {
			s.Step(one.tool + " for Ada: " + how)
			ask("ada", a, one.tool, how)
		}
	}
	s.Step("Ben cannot be asked")
	for _, tool := range []string{"order_waits", "order_reruns", "page", "draw", "where", "endless"} {
		ask("ben", b, tool, "accept")
	}
	s.Step("A prompt asks")
	s.call("ada", "GetPrompt", func(ctx context.Context) (any, error) {
		return a.GetPrompt(ctx, &protocol.GetPromptParams{Name: "letter"})
	})
	s.Step("Ada leaves a call while a question is open")
	leave, wait := s.start("ada", "order", func(ctx context.Context) (any, error) {
		return a.CallTool(ctx, &protocol.CallToolParams{Name: "order_waits", Arguments: json.RawMessage(`{"how":"slow"}`)})
	})
	s.pass(time.Second)
	leave(errors.New("ada has gone"))
	wait()
	s.pass(12 * time.Second)
	if version == protocol.Version20260728 {
		s.tampered(post)
	} else {
		s.askedBySessions(post, version)
	}
	s.Step("The server closes while a question is open")
	s.Sort() // both sessions end at the same time
	_, wait = s.start("ada", "order", func(ctx context.Context) (any, error) {
		return a.CallTool(ctx, &protocol.CallToolParams{Name: "order_waits", Arguments: json.RawMessage(`{"how":"slow"}`)})
	})
	s.pass(time.Second)
	_, closed := s.start("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
	wait()
	closed()
	s.Step("Both close")
	s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, ada.Close(ctx) })
	s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, ben.Close(ctx) })
}

// askedBySessions asks outside of calls.
func (s *conversation) askedBySessions(post *server.Server, version string) {
	s.Step("The server turns to its sessions by itself")
	sessions := slices.SortedFunc(post.Sessions(), func(a, b *server.Session) int {
		return strings.Compare(a.Client().Info.Name, b.Client().Info.Name)
	})
	for _, session := range sessions {
		who := session.Client().Info.Name
		s.call("post", "Ping "+who, func(ctx context.Context) (any, error) { return nil, session.Ping(ctx) })
		s.pass(time.Second)
		s.call("post", "Roots of "+who, func(ctx context.Context) (any, error) { return session.Roots(ctx) })
		s.pass(time.Second)
		s.call("post", "ElicitationComplete for "+who, func(ctx context.Context) (any, error) { return nil, session.ElicitationComplete(ctx, "e-1") })
		s.pass(time.Second)
		session.Log(context.Background(), &protocol.LogMessageParams{Level: protocol.LogAlert, Logger: "fire", Data: json.RawMessage(`"in " `)})
		s.pass(time.Second)
	}
}

// A rawPeer sends frames by itself.
type rawPeer struct {
	s    *conversation
	who  string
	link transport.Link
	got  []string
	inbox
}

func (s *conversation) raw(who string, post *server.Server) *rawPeer {
	ours, theirs := inmem.Pipe(inmem.Options{})
	p := &rawPeer{s: s, who: who, link: ours}
	ours.Bind(p)
	ours.Grant(transport.Main, 1000)
	post.Accept(theirs)
	return p
}

func (p *rawPeer) Receive(in transport.Inbound) {
	p.got = append(p.got, string(in.Frame))
	p.s.notef(p.who+" <", "%s", p.s.frame(in.Frame))
}

func (p *rawPeer) Lost(l transport.Loss) { p.s.notef(p.who+" =", "lost: %s", p.s.failure(l.Reason)) }

// send sends a frame, and lets a second pass.
func (p *rawPeer) send(frame string) {
	p.s.notef(p.who+" >", "%s", p.s.frame([]byte(frame)))
	if err := p.link.Send(outbound(frame)); err != nil {
		p.s.notef(p.who+" =", "not sent: %s", p.s.failure(err))
	}
	p.s.pass(time.Second)
	synctest.Wait()
}

// modern is what eve says of herself in each request.
const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"eve","version":"3"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`

// tampered uses states in ways that are wrong.
func (s *conversation) tampered(post *server.Server) {
	s.Step("Eve asks for a state, and uses it wrongly")
	eve := s.raw("eve", post)
	id := 0
	call := func(tool, how, more string) (state string) {
		id++
		eve.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s,"name":%q,"arguments":{"how":%q}%s}}`, id, modern, tool, how, more))
		var answer struct{ Result struct{ RequestState string } }
		if err := json.Unmarshal([]byte(eve.got[len(eve.got)-1]), &answer); err != nil {
			s.t.Error(err)
		}
		return answer.Result.RequestState
	}
	yes := `,"inputResponses":{"more":{"action":"accept","content":{"n":1}}}`
	for _, tool := range []string{"endless", "order_waits"} {
		state := call(tool, "x", "")
		call(tool, "x", yes+`,"requestState":"`+state[:len(state)-2]+`AA"`)
		call(tool, "y", yes+`,"requestState":"`+state+`"`)
		call("order_reruns", "x", yes+`,"requestState":"`+state+`"`)
		call(tool, "x", `,"inputResponses":{"other":{"action":"accept"}},"requestState":"`+state+`"`)
		state = call(tool, "x", "")
		call(tool, "x", `,"requestState":"`+state+`"`)
		state = call(tool, "x", "")
		call(tool, "x", `,"inputResponses":{"1":{"action":"accept","content":{"size":"small"}},"more":{"action":"perhaps"}},"requestState":"`+state+`"`)
		state = call(tool, "x", "")
		call(tool, "x", `,"inputResponses":{"1":{"action":"decline"},"more":{"action":"decline"}},"requestState":"`+state+`"`)
		call(tool, "x", `,"inputResponses":{"1":{"action":"decline"},"more":{"action":"decline"}},"requestState":"`+state+`"`)
		state = call(tool, "x", "")
		s.pass(11 * time.Minute)
		call(tool, "x", yes+`,"requestState":"`+state+`"`)
		call(tool, "x", yes)
		call(tool, "x", `,"requestState":7`)
	}
	eve.link.Close(0)
	s.pass(time.Second)
}
