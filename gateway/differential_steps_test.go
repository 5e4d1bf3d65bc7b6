package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A step is something that a client does.
type step struct {
	called string
	do     func(*world) seen
}

// String is for the report of a failure.
func (s step) String() string { return s.called }

// request is a step that sends params, in which @ stands for the prefix of names.
func request(method, params string, malformed bool) step {
	return step{method + " " + params, func(w *world) seen {
		w.malformed.Store(malformed)
		var progress []string
		o := w.session.Calls()
		o.OnProgress = func(p *protocol.ProgressParams) {
			progress = append(progress, fmt.Sprint(p.Progress, " of ", p.Total, " ", p.Message))
			w.seen <- struct{}{}
		}
		own, view := strings.ReplaceAll(params, "@", w.prefix), w.session.With(o)
		result, err := view.Request(w.ctx, method, json.RawMessage(own))
		for err == nil && strings.Contains(string(result), `"input_required"`) {
			result, err = view.Request(w.ctx, method, w.answered(own, result))
		}
		s := w.see(result, err)
		s.Progress = progress
		return s
	}}
}

// answered returns the params of the next round of a call, with answers to the questions of the last.
func (w *world) answered(params string, result json.RawMessage) json.RawMessage {
	var asks protocol.InputRequired
	next := make(map[string]any)
	if err := errors.Join(protocol.Unmarshal(result, &asks), json.Unmarshal([]byte(params), &next)); err != nil {
		panic(err)
	}
	answers := make(protocol.InputResponses)
	for key, question := range asks.InputRequests { // the server asks one at a time
		answers[key] = w.answer(question)
	}
	next["inputResponses"] = answers
	if asks.RequestState != nil {
		next["requestState"] = *asks.RequestState
	}
	return json.RawMessage(encoded(next))
}

// answer does what the client does with a question.
func (w *world) answer(question protocol.InputRequest) (answer protocol.InputResponse) {
	var err error
	switch q := question.(type) {
	case *protocol.ElicitParams:
		answer, err = w.user.Elicit(w.ctx, w.session, q)
	case *protocol.CreateMessageParams:
		answer, err = w.user.Sample(w.ctx, w.session, q)
	default:
		var roots []protocol.Root
		roots, err = w.user.Roots(w.ctx, w.session)
		answer = &protocol.ListRootsResult{Roots: roots}
	}
	if err != nil {
		panic(err)
	}
	return answer
}

// stepOf draws a step: mostly a request that a server understands.
func stepOf(t *rapid.T) step {
	return rapid.OneOf(
		rapid.Custom(listStep), rapid.Custom(callStep), rapid.Custom(callStep), rapid.Custom(askingStep), rapid.Custom(otherStep),
		rapid.Custom(malformedStep), rapid.Custom(changeStep), rapid.Custom(logStep),
	).Draw(t, "step")
}

func listStep(t *rapid.T) step {
	kind := rapid.SampledFrom([][2]string{
		{protocol.MethodListTools, "tools"}, {protocol.MethodListPrompts, "prompts"},
		{protocol.MethodListResources, "resources"}, {protocol.MethodListResourceTemplates, "resourceTemplates"},
	}).Draw(t, "list")
	return step{kind[0], func(w *world) seen {
		w.malformed.Store(false)
		return w.list(kind[0], kind[1])
	}}
}

// callStep draws a call of a tool that does not ask.
func callStep(t *rapid.T) step {
	tool := rapid.SampledFrom([]string{"echo", "fail", "fault", "content", "meta", "steps", "echo", "nobody", ""}).Draw(t, "tool")
	arguments := map[string]any{"text": textOf(t, "text")}
	switch tool {
	case "fault":
		arguments["n"] = rapid.SampledFrom([]int{-32050, -32099, -31999, -32603, -32602, 1, 7}).Draw(t, "n") // -32050: overloaded
	case "steps":
		arguments["n"] = rapid.IntRange(0, 5).Draw(t, "n")
	case "meta", "content":
		arguments = map[string]any{}
	default:
		arguments["n"] = rapid.IntRange(-9, 9).Draw(t, "n")
		arguments["list"] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return textOf(t, "item") }), 0, 3).Draw(t, "list")
	}
	if rapid.IntRange(0, 4).Draw(t, "wrong") == 0 { // the schema of the tool does not allow it
		arguments["n"] = "no number"
	}
	params := map[string]any{"name": "@" + tool, "arguments": arguments}
	if rapid.Bool().Draw(t, "with meta") {
		params["_meta"] = map[string]any{"own/a": map[string]any{"b": []any{1, "x"}}, "own/c": nil}
	}
	return request(protocol.MethodCallTool, encoded(params), false)
}

// askingStep draws a call of a tool that asks.
func askingStep(t *rapid.T) step {
	tool := rapid.SampledFrom([]string{"form", "url", "sample", "roots"}).Draw(t, "kind") + rapid.SampledFrom([]string{"-waits", "-reruns"}).Draw(t, "how")
	arguments := map[string]any{}
	if strings.HasPrefix(tool, "form") {
		arguments["Ask"] = rapid.SliceOfN(rapid.SampledFrom([]string{"first", "second", "decline", "third"}), 0, 4).Draw(t, "ask")
	}
	return request(protocol.MethodCallTool, encoded(map[string]any{"name": "@" + tool, "arguments": arguments}), false)
}

// otherStep draws a request of any other method.
func otherStep(t *rapid.T) step {
	text := textOf(t, "text")
	uri := rapid.SampledFrom([]string{"s:/one", "s:/bytes", "s:/all/7", "s:/all/none", "s:/nothing", "other:/x", "", "s:/all/" + text}).Draw(t, "uri")
	prompt := rapid.SampledFrom([]string{"greet", "greet", "broken", "nobody"}).Draw(t, "prompt")
	argument := rapid.SampledFrom([]string{"Who", "N", "none"}).Draw(t, "argument")
	given := map[string]any{"argument": map[string]any{"name": argument, "value": text}}
	switch rapid.IntRange(0, 6).Draw(t, "method") {
	case 0:
		return request(protocol.MethodReadResource, encoded(map[string]any{"uri": uri}), false)
	case 1:
		return request(protocol.MethodGetPrompt, encoded(map[string]any{"name": "@" + prompt, "arguments": map[string]any{"Who": text}}), false)
	case 2:
		return request(protocol.MethodGetPrompt, encoded(map[string]any{"name": "@" + prompt}), false)
	case 3:
		given["ref"] = map[string]any{"type": protocol.ReferencePrompt, "name": "@" + prompt}
		return request(protocol.MethodComplete, encoded(given), false)
	case 4:
		given["ref"] = map[string]any{"type": protocol.ReferenceResource, "uri": rapid.SampledFrom([]string{"s:/all/{N}", "s:/one", "s:/x/{N}"}).Draw(t, "template")}
		return request(protocol.MethodComplete, encoded(given), false)
	case 5:
		return request("own/method", encoded(map[string]any{"x": text}), true)
	default:
		return step{protocol.MethodPing, func(w *world) seen { return w.see(nil, w.session.Ping(w.ctx)) }}
	}
}

// malformedStep draws a request that no schema allows.
func malformedStep(t *rapid.T) step {
	method := rapid.SampledFrom([]string{
		protocol.MethodCallTool, protocol.MethodGetPrompt, protocol.MethodReadResource, protocol.MethodComplete, protocol.MethodListTools,
	}).Draw(t, "method")
	wrong := []string{`{"cursor":7}`, `{"cursor":"made up"}`, `{"_meta":7}`}
	if method != protocol.MethodListTools {
		wrong = append(wrong, `{}`, `{"name":7}`, `{"name":"@echo","arguments":[1]}`, `{"name":"@greet","arguments":{"Who":1}}`, `{"uri":{}}`,
			`{"ref":{}}`, `{"ref":7}`, `{"ref":{"type":"ref/none","name":"@greet"},"argument":{"name":"Who","value":"x"}}`,
			`{"ref":{"type":"ref/prompt","name":"@greet"}}`, `{"name":"@echo","name":"@greet","uri":"s:/one"}`)
	}
	return request(method, rapid.SampledFrom(wrong).Draw(t, "params"), true)
}

// changeStep draws something that happens at the server, or to a call.
func changeStep(t *rapid.T) step {
	switch rapid.IntRange(0, 2).Draw(t, "change") {
	case 0:
		return step{"a new tool", addTool}
	case 1:
		return step{"an update of a resource", update}
	default:
		return step{"a cancelled call", cancelled}
	}
}

// addTool adds a tool, and waits until it is listed.
func addTool(w *world) seen {
	w.malformed.Store(false)
	const name = "added"
	server.AddTool(w.server, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "added", nil })
	for !w.has(name) && w.ctx.Err() == nil {
	}
	return w.see(w.session.Request(w.ctx, protocol.MethodCallTool, json.RawMessage(`{"name":"`+w.prefix+name+`"}`)))
}

// update subscribes to a resource, and waits for an update.
func update(w *world) seen {
	w.malformed.Store(false)
	for len(w.updates) > 0 {
		<-w.updates
	}
	if err := w.session.Subscribe(w.ctx, &protocol.SubscribeParams{URI: "s:/one"}); err != nil {
		return w.see(nil, err)
	}
	w.server.ResourceUpdated("s:/one")
	var s seen
	select {
	case uri := <-w.updates:
		s.Result = uri
	case <-w.ctx.Done():
		s.Other = "not told"
	}
	if err := w.session.Unsubscribe(w.ctx, &protocol.UnsubscribeParams{URI: "s:/one"}); err != nil {
		return w.see(nil, err)
	}
	return s
}

// cancelled ends a call while the server works on it.
func cancelled(w *world) seen {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-w.began:
			cancel()
		case <-stop:
		}
	}()
	_, err := client.Call[string](ctx, w.session, w.prefix+"hold", nil)
	s := seen{Result: err != nil && ctx.Err() != nil}
	select {
	case <-w.ended:
	case <-w.ctx.Done():
		s.Other = "the server still runs the call"
	}
	return s
}

func textOf(t *rapid.T, what string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune("aB0 _-/é\"\\<\u2028\n")), 0, 8, -1).Draw(t, what)
}

func encoded(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(raw)
}
