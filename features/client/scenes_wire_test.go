package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A client sends a server what is malformed in every way, in a legacy session and without one.
func TestSceneOfAMalformedClient(t *testing.T) {
	play(t, "malformed-client", "Eve sends frames that are wrong", func(s *conversation) {
		post := s.tourServer()
		for _, one := range []struct {
			step   string
			frames []string
		}{
			{"Before she has a session", []string{
				`x`, ``, `null`, `7`, `"text"`, `[]`, `{}`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":3}`,
				`{"jsonrpc":"2.0","id":4,"method":7}`, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `{"jsonrpc":"2.0","id":"a","method":"ping"}`, `{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}`,
				`{"jsonrpc":"2.0","id":6,"method":"ping","params":"x"}`, `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`,
				`{"jsonrpc":"2.0","id":10,"method":"none/such"}`, `{"jsonrpc":"2.0","method":"notifications/none"}`, `{"jsonrpc":"2.0","id":11,"result":{}}`,
				`{"jsonrpc":"2.0","id":12,"error":{"code":1,"message":"x"}}`, `{"jsonrpc":"2.0","id":13,"result":{},"error":{"code":1,"message":"x"}}`,
				`[{"jsonrpc":"2.0","id":14,"method":"ping"}]`, `{"jsonrpc":"2.0","id":15,"method":"ping"} x`, "{\"jsonrpc\":\"2.0\",\"id\":16,\"method\":\"p\xff\"}",
				`{"jsonrpc":"2.0","id":17,"method":"ping","params":{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}}`,
			}},
			{"She opens a session, at last", []string{
				`{"jsonrpc":"2.0","id":20,"method":"initialize"}`, `{"jsonrpc":"2.0","id":21,"method":"initialize","params":{}}`,
				`{"jsonrpc":"2.0","id":22,"method":"initialize","params":{"protocolVersion":7,"capabilities":{},"clientInfo":{"name":"eve","version":"1"}}}`,
				`{"jsonrpc":"2.0","id":23,"method":"initialize","params":{"protocolVersion":"1999-01-01","capabilities":{},"clientInfo":{"name":"eve","version":"1"}}}`,
				`{"jsonrpc":"2.0","id":24,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"eve","version":"1"}}}`,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			}},
			{"In her session", []string{
				`{"jsonrpc":"2.0","id":30,"method":"tools/call","params":{}}`, `{"jsonrpc":"2.0","id":31,"method":"tools/call","params":{"name":7}}`,
				`{"jsonrpc":"2.0","id":32,"method":"tools/call","params":{"name":"send","arguments":7}}`, `{"jsonrpc":"2.0","id":33,"method":"resources/read","params":{}}`,
				`{"jsonrpc":"2.0","id":34,"method":"prompts/get","params":{"arguments":{"to":7}}}`, `{"jsonrpc":"2.0","id":35,"method":"completion/complete","params":{"ref":7}}`,
				`{"jsonrpc":"2.0","id":36,"method":"logging/setLevel","params":{"level":"loud"}}`, `{"jsonrpc":"2.0","id":37,"method":"resources/subscribe","params":{}}`,
				`{"jsonrpc":"2.0","id":38,"method":"resources/unsubscribe","params":{"uri":"box://never"}}`, `{"jsonrpc":"2.0","id":39,"method":"tools/list","params":{"cursor":7}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`,
				`{"jsonrpc":"2.0","id":40,"method":"tools/call","params":{"name":"wait","_meta":{"progressToken":{}}}}`,
				`{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{"name":"weigh","arguments":{"to":"x"},"_meta":{"progressToken":"mine"}}}`,
				`{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"wait"}}`, `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"wait"}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":42,"reason":"enough"}}`,
				`[{"jsonrpc":"2.0","id":43,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/none"}]`, `[7]`, `[]`,
				`{"jsonrpc":"2.0","id":45,"method":"server/discover","params":{}}`, `{"jsonrpc":"2.0","id":46,"method":"subscriptions/listen","params":{"notifications":{}}}`,
			}},
			{"Without a session", []string{
				`{"jsonrpc":"2.0","id":50,"method":"tools/list","params":{` + modern + `,"cursor":"x"}}`,
				`{"jsonrpc":"2.0","id":51,"method":"tools/list","params":{` + strings.Replace(modern, "2026-07-28", "2027-01-01", 1) + `}}`,
				`{"jsonrpc":"2.0","id":52,"method":"tools/list","params":{` + strings.Replace(modern, `"2026-07-28"`, "7", 1) + `}}`,
				`{"jsonrpc":"2.0","id":53,"method":"tools/list","params":{` + strings.Replace(modern, `{"elicitation":{"form":{}}}`, "7", 1) + `}}`,
				`{"jsonrpc":"2.0","id":54,"method":"tools/list","params":{` + strings.Replace(modern, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}`, `"a":1`, 1) + `}}`,
				`{"jsonrpc":"2.0","id":55,"method":"ping","params":{` + modern + `}}`, `{"jsonrpc":"2.0","id":56,"method":"resources/subscribe","params":{` + modern + `,"uri":"box://a"}}`,
				`{"jsonrpc":"2.0","id":57,"method":"logging/setLevel","params":{` + modern + `,"level":"info"}}`,
				`{"jsonrpc":"2.0","id":58,"method":"subscriptions/listen","params":{` + modern + `}}`,
				`{"jsonrpc":"2.0","id":59,"method":"subscriptions/listen","params":{` + modern + `,"notifications":{"resourceSubscriptions":["box://a",7]}}}`,
				`{"jsonrpc":"2.0","id":60,"method":"subscriptions/listen","params":{` + modern + `,"notifications":{"resourceSubscriptions":["box://a","box://locked"],"toolsListChanged":true}}}`,
				`{"jsonrpc":"2.0","id":60,"method":"subscriptions/listen","params":{` + modern + `,"notifications":{}}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":60}}`,
				`{"jsonrpc":"2.0","id":61,"method":"tasks/get","params":{` + modern + `,"taskId":"x"}}`, `{"jsonrpc":"2.0","id":62,"method":"tools/call","params":{` + modern + `,"name":"send"}}`,
				`{"jsonrpc":"2.0","id":63,"method":"server/discover","params":{` + modern + `}}`, `{"jsonrpc":"2.0","id":64,"method":"roots/list","params":{` + modern + `}}`,
			}},
		} {
			s.Step(one.step)
			eve := s.raw("eve", post)
			if one.step == "In her session" {
				eve.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{"roots":{}},"clientInfo":{"name":"eve","version":"1"}}}`)
			}
			for _, frame := range one.frames {
				eve.send(frame)
			}
			eve.link.Close(0)
			s.pass(20 * time.Second)
		}
		s.Step("She sends nothing but nonsense until she is cut off, and the server closes")
		limited := s.server("post", server.Options{Conn: conn.Tuning{MaxMalformed: 3}})
		eve := s.raw("eve", limited)
		for range 5 {
			eve.send("nonsense")
		}
		s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, limited.Close(ctx) })
		s.call("post", "Close", func(ctx context.Context) (any, error) { return nil, post.Close(ctx) })
	})
}

// scripted connects a client to a server that answers by a script.
func (s *conversation) scripted(who string, o client.Options, answer func(frame) []string) (*client.Client, *client.Session, *fakeServer) {
	fake := &fakeServer{answer: answer}
	c := s.client(who, o)
	return c, s.connect(who, c, fake), fake
}

// Servers answer the handshake in every way that is wrong, or not at all.
func TestSceneOfHandshakes(t *testing.T) {
	play(t, "handshakes", "Ada tries servers whose answers to the handshake are wrong", func(s *conversation) {
		s.brief = true
		for _, version := range []string{"", protocol.Version20251125, protocol.Latest} {
			for _, answer := range []string{
				`"result":{}`, `"result":[]`, `"result":{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"f","version":"0"}}`,
				`"result":{"resultType":"complete","supportedVersions":["2030-01-01"],"capabilities":{}}`, `"result":{"resultType":"other"}`, `"error":{"code":-32601,"message":"no"}`,
				`"error":{"code":-32022,"message":"no","data":{"supported":["2025-06-18"],"requested":"2026-07-28"}}`, `"error":{"code":-32603,"message":"broken"}`, `"error":{}`,
			} {
				s.Step("Revision " + version + ": " + answer)
				c, session, fake := s.scripted("ada", client.Options{ProtocolVersion: version, FailFast: true, Conn: conn.Tuning{InitTimeout: 3 * time.Second}}, func(f frame) []string {
					if len(f.ID) == 0 {
						return nil
					}
					return []string{`{"jsonrpc":"2.0","id":` + string(f.ID) + `,` + answer + `}`}
				})
				if session != nil {
					s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, c.Close(ctx) })
				}
				fake.close()
			}
		}
		s.Step("A server says nothing")
		_, _, silent := s.scripted("ada", client.Options{FailFast: true}, noResponse)
		silent.close()
	})
}

// A server answers calls in every way that is wrong.
func TestSceneOfAMalformedServer(t *testing.T) {
	play(t, "malformed-server", "A server answers wrongly", func(s *conversation) {
		s.brief = true
		var silent atomic.Bool
		s.Step("Ada connects to a server that knows no discovery")
		c, session, fake := s.scripted("ada", client.Options{Conn: conn.Tuning{Liveness: -1}, Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "http://elsewhere"}}, nil
		}}, s.wrongly(&silent))
		s.pass(time.Second)
		s.wrong(session, fake)
		s.call("ada", "Close", func(ctx context.Context) (any, error) { return nil, c.Close(ctx) })
		fake.close()
		s.Step("Ben's server falls silent, and Ben notices")
		ben, _, other := s.scripted("ben", client.Options{Conn: conn.Tuning{Liveness: 2 * time.Second, InitTimeout: 7 * time.Second}}, s.wrongly(&silent))
		s.pass(3 * time.Second)
		silent.Store(true)
		s.pass(30 * time.Second)
		s.call("ben", "Close", func(ctx context.Context) (any, error) { return nil, ben.Close(ctx) })
		other.close()
	})
}

// wrongly returns a server that answers the call of a tool with what its name says.
func (s *conversation) wrongly(silent *atomic.Bool) func(frame) []string {
	initialized := probedServer(withFault(-32601, "null")).answer
	return func(f frame) []string {
		if silent.Load() {
			return nil
		}
		switch f.Method {
		case protocol.MethodCallTool:
			_, name, _ := strings.Cut(string(f.Params), `"name":"`)
			name, _, _ = strings.Cut(name, `"`)
			if name == "silence" {
				return nil
			}
			return []string{strings.ReplaceAll(wrongAnswers[name], "ID", string(f.ID)), f.result(`{"content":[]}`)}
		case protocol.MethodListTools:
			return []string{f.result(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"same"}`)}
		case protocol.MethodPing:
			return []string{f.result(`{}`)}
		}
		return initialized(f)
	}
}

// wrongAnswers are frames that come before the right answer.
var wrongAnswers = map[string]string{
	"text": `text`, "empty": ``, "array": `[]`, "batch": `[{"jsonrpc":"2.0","id":ID,"result":{}}]`, "result": `{"jsonrpc":"2.0","id":ID,"result":7}`,
	"null": `{"jsonrpc":"2.0","id":ID,"result":null}`, "both": `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`, "neither": `{"jsonrpc":"2.0","id":ID}`,
	"code": `{"jsonrpc":"2.0","id":ID,"error":{"code":"x","message":7}}`, "error": `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no","data":{"a":1}}}`,
	"version": `{"jsonrpc":"1.0","id":ID,"result":{}}`, "unknown": `{"jsonrpc":"2.0","id":4711,"result":{}}`, "named": `{"jsonrpc":"2.0","id":"ID","result":{}}`,
	"content": `{"jsonrpc":"2.0","id":ID,"result":{"content":7}}`, "block": `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"hologram","x":1},{"type":"text"}]}}`,
	"progress":     `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"none","progress":1}}`,
	"notification": `{"jsonrpc":"2.0","method":"notifications/strange","params":{"a":1}}`, "message": `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":7}}`,
	"updated": `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":7}}`, "cancelled": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`,
	"request": `{"jsonrpc":"2.0","id":"q","method":"none/such"}`, "roots": `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`, "ping": `{"jsonrpc":"2.0","id":7,"method":"ping"}`,
	"elicit": `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"message":"x","requestedSchema":{}}}`, "sample": `{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":7}`,
	"overloaded": `{"jsonrpc":"2.0","id":ID,"error":{"code":-32050,"message":"busy"}}`, "dropped": `{"jsonrpc":"2.0","id":ID,"error":{"code":-32051,"message":"dropped"}}`,
	"url": `{"jsonrpc":"2.0","id":ID,"error":{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x","message":"m"}]}}}`,
}

// wrong makes a call for each wrong answer.
func (s *conversation) wrong(session *client.Session, fake *fakeServer) {
	for _, name := range strings.Fields("text empty array batch result null both neither code error version unknown named content block progress notification message " +
		"updated cancelled request roots ping elicit sample overloaded dropped url") {
		s.Step("Before its answer comes " + name)
		s.call("ada", name, func(ctx context.Context) (any, error) {
			return session.CallTool(ctx, &protocol.CallToolParams{Name: name})
		})
		s.pass(time.Second)
	}
	s.Step("A list whose cursor stays the same, and answers that come late")
	s.call("ada", "Tools", func(ctx context.Context) (any, error) {
		n := 0
		for _, err := range session.Tools(ctx) {
			if n++; err != nil {
				return n, err
			}
		}
		return n, nil
	})
	for i := range 2 {
		s.call("ada", "silence", func(ctx context.Context) (any, error) {
			return session.With(client.CallOptions{Timeout: time.Second}).CallTool(ctx, &protocol.CallToolParams{Name: "silence"})
		})
		calls := fake.received(protocol.MethodCallTool)
		fake.mu.Lock()
		link := fake.links[len(fake.links)-1]
		fake.mu.Unlock()
		for range i + 1 {
			if err := link.Send(outbound(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, calls[len(calls)-1].ID))); err != nil {
				s.t.Error(err)
			}
			s.pass(time.Second)
		}
		s.pass(2 * time.Minute)
	}
}
