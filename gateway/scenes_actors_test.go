package gateway_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// An actor is a client whose frames the scene writes.
type actor struct {
	s       *stage
	name    string
	version string
	able    string // its capabilities
	link    transport.Link
	next    int

	method, params string // of its last request

	mu     sync.Mutex
	asked  []jsonrpc.ID // requests of the gateway that wait for an answer
	state  string       // of the last result that asks
	keys   []string     // of what it asks
	begun  []string     // its tasks
	cursor string       // of the last result
}

// enters connects a client. A legacy one shakes hands.
func (s *stage) enters(name, version, able string) *actor {
	a := &actor{s: s, name: name, version: version, able: able}
	who := &transport.Origin{Identity: s.identity, Principal: s.principal}
	over := inmem.New(func(link transport.Link) {
		if who.Identity != "" {
			link = peertest.From(who, link)
		}
		s.Server().Accept(link)
	}, inmem.Options{})
	link, err := over.Open(context.Background())
	failOn(s.t, err)
	a.link = link
	link.Bind(a)
	link.Grant(transport.Main, 1<<20)
	if !protocol.IsModern(version) {
		a.asks(protocol.MethodInitialize, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1"}}`, version, able, name))
		a.tells("notifications/initialized", `{}`)
	}
	return a
}

// Receive implements transport.Receiver.
func (a *actor) Receive(in transport.Inbound) {
	a.s.Note(a.name, strings.TrimSpace("< "+frameText(in.Frame)))
	m, err := jsonrpc.Decode(bytes.Clone(in.Frame), jsonrpc.Limits{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil && m.Kind == jsonrpc.KindRequest {
		a.asked = append(a.asked, m.ID)
	}
	var result struct {
		RequestState, NextCursor string
		TaskID                   string
		Task                     struct{ TaskID string }
		InputRequests            map[string]any
	}
	if len(m.Result) > 0 && json.Unmarshal(m.Result, &result) == nil {
		a.cursor = result.NextCursor
		if id := cmp.Or(result.TaskID, result.Task.TaskID); id != "" && !slices.Contains(a.begun, id) {
			a.begun = append(a.begun, id)
		}
		if result.InputRequests != nil {
			a.state, a.keys = result.RequestState, slices.Sorted(maps.Keys(result.InputRequests))
		}
	}
}

// Lost implements transport.Receiver.
func (a *actor) Lost(l transport.Loss) { a.s.Note(a.name, "= lost "+reasonOf(l.Reason)) }

func (*actor) Writable()                                    {}
func (*actor) StreamOpened(transport.Stream, transport.Tag) {}
func (*actor) StreamLost(transport.StreamLoss)              {}
func (*actor) Failed(transport.Failure)                     {}
func (*actor) Ended()                                       {}

// asks sends a request, with these members of _meta. What a modern one says of its client is not shown.
func (a *actor) asks(method, params string, meta ...string) {
	synctest.Wait() // so that there is one order
	a.next++
	a.method, a.params = method, params
	all := strings.Join(meta, ",")
	if a.s.Note(a.name, strings.TrimSpace(fmt.Sprintf("> %d %s %s %s", a.next, method, params, all))); protocol.IsModern(a.version) {
		meta = append(meta, fmt.Sprintf(`%q:%q`, protocol.MetaProtocolVersion, a.version), fmt.Sprintf(`%q:%s`, protocol.MetaClientCapabilities, a.able),
			fmt.Sprintf(`%q:{"name":%q,"version":"1"}`, protocol.MetaClientInfo, a.name))
	}
	if len(meta) > 0 {
		params = strings.Replace(fmt.Sprintf(`{"_meta":{%s},%s`, strings.Join(meta, ","), params[1:]), ",}", "}", 1)
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.next, method, params))
}

// asksAll sends a request, and waits for the answer. It reads all pages of a list.
func (a *actor) asksAll(method, params string, meta ...string) {
	for {
		a.asks(method, params, meta...)
		synctest.Wait()
		a.mu.Lock()
		cursor := a.cursor
		a.mu.Unlock()
		if cursor == "" {
			return
		}
		params = fmt.Sprintf(`{"cursor":%q}`, cursor)
	}
}

// calls calls a tool.
func (a *actor) calls(tool, arguments string, meta ...string) {
	a.asks(protocol.MethodCallTool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments), meta...)
}

// tells sends a notification.
func (a *actor) tells(method, params string) {
	synctest.Wait()
	a.s.Note(a.name, "> "+method+" "+params)
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

// answers answers the oldest request of the gateway that has no answer.
func (a *actor) answers(result string) {
	synctest.Wait()
	a.mu.Lock()
	if len(a.asked) == 0 {
		a.mu.Unlock()
		a.s.Note(a.name, "is not asked")
		return
	}
	id := a.asked[0]
	a.asked = a.asked[1:]
	a.mu.Unlock()
	kind := "result"
	if strings.HasPrefix(result, `{"code"`) {
		kind = "error"
	}
	a.s.Note(a.name, fmt.Sprintf("> %s %s %s", id, kind, result))
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, id.Append(nil), kind, result))
}

// repeats makes the last request again, with this answer to all that its result has asked.
func (a *actor) repeats(answer string) {
	synctest.Wait()
	a.mu.Lock()
	state, answers := a.state, make([]string, len(a.keys))
	for i, key := range a.keys {
		answers[i] = fmt.Sprintf(`%q:%s`, key, answer)
	}
	a.mu.Unlock()
	before := a.params
	a.asks(a.method, fmt.Sprintf(`%s,"inputResponses":{%s},"requestState":%q}`, strings.TrimSuffix(before, "}"), strings.Join(answers, ","), state))
	a.params = before
}

func (a *actor) send(frame string) {
	if err := a.link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil && !errors.Is(err, transport.ErrClosed) {
		a.s.t.Error(err)
	}
}

// leaves ends the connection.
func (a *actor) leaves() {
	synctest.Wait()
	a.s.Note(a.name, "leaves")
	a.link.Close(0)
}
