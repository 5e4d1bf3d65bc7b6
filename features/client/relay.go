package client

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Relay makes a request of MCP in the name of another client, whose params it gets undecoded, and returns the result
// undecoded. It does what Request does, and this in addition:
//
//   - What that client says of itself to its own server does not go further: the revision, its name, its log level and
//     progress token. This session puts its own in their place. All other members of _meta are kept. Of the capabilities of this session,
//     a modern server is told those that the client has as well, so that it asks nothing that nobody can answer. It makes a task of a call
//     only if the client has said that it can have one, and Options.Tasks is set.
//   - A call of a tool follows the mode of the tool, its annotations and its mirrored arguments, as CallTool does, if its list was
//     relayed or listed before.
//
// The result may be input_required, or a task. The delivery of a failed call is in its *CallError, and the error of the server
// is in that.
func (s *Session) Relay(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	foreign, err := s.withoutSender(params)
	if err != nil {
		return nil, refusedUnsent(method, err)
	}
	known, ok := s.client.table.requests[method]
	if !ok {
		return s.pass(ctx, method, foreign)
	}
	info, _ := protocol.MethodInfo(method)
	options := s.options
	foreign.subject = info.NameOf(params)
	known.adjustRaw(s.session, foreign.subject, &options)
	result, err := s.With(options).pass(ctx, method, foreign)
	if err == nil {
		known.learnRaw(s.session, result)
	}
	return result, err
}

// pass does what Request does. Middleware gets params, so only for that they are encoded again.
func (s *Session) pass(ctx context.Context, method string, foreign *rawParams) (json.RawMessage, error) {
	if s.client.chain == nil {
		return s.sendParams(ctx, method, foreign)
	}
	if foreign.capabilities != nil {
		foreign.SetMeta(protocol.MetaClientCapabilities, foreign.capabilities)
	}
	return s.Request(ctx, method, json.RawMessage(foreign.appendTo(nil, foreign.meta)))
}

// withoutSender drops from _meta what a client says of itself. A modern server gets the capabilities that this session has as well; a legacy
// one was told of those of the session when it began.
func (s *Session) withoutSender(params json.RawMessage) (*rawParams, error) {
	foreign := new(rawParams)
	if err := foreign.read(params, protocol.UnmarshalParams); err != nil {
		return foreign, err
	}
	to := s.peer.Load()
	isModern := to != nil && to.Modern()
	if isModern && s.client.options.Tasks {
		var err error
		if foreign.capabilities, err = s.client.silent(); err != nil {
			return foreign, err
		}
	}
	if foreign.meta == nil {
		return foreign, nil
	}
	said, _ := jsonrpc.Member(foreign.meta, protocol.MetaClientCapabilities)
	others := scan.AppendMembers(append(make([]byte, 0, len(foreign.meta)), '{'), foreign.meta,
		protocol.MetaProgressToken, protocol.MetaProtocolVersion, protocol.MetaClientInfo, protocol.MetaClientCapabilities, protocol.MetaLogLevel)
	if foreign.meta = nil; len(others) > len("{") {
		foreign.meta = append(others, '}')
	}
	if said == nil || !isModern {
		return foreign, nil
	}
	var err error
	foreign.capabilities, err = s.client.sharedWith(said)
	return foreign, err
}

// encodeSilent encodes what a server is told for a client that has said nothing of itself, as legacy ones do: what the session has, but for
// tasks, which nobody there could fetch.
func (c *Client) encodeSilent() (json.RawMessage, error) {
	own := c.context.ClientCapabilities
	own.Extensions = withoutTasks(own.Extensions)
	return protocol.Marshal(&own)
}

func withoutTasks(extensions map[string]json.RawMessage) map[string]json.RawMessage {
	others := maps.Clone(extensions)
	delete(others, protocol.ExtensionTasks)
	if len(others) == 0 {
		return nil
	}
	return others
}

// sharedWith returns the encoded capabilities that both have. Most clients say the same in each request.
func (c *Client) sharedWith(said json.RawMessage) (json.RawMessage, error) {
	if last := c.shared.Load(); last != nil && bytes.Equal(last.said, said) {
		return last.both, nil
	}
	var theirs protocol.ClientCapabilities
	if err := protocol.Unmarshal(said, &theirs); err != nil {
		return nil, err
	}
	both, err := protocol.Marshal(shared(c.context.ClientCapabilities, &theirs))
	if err == nil && len(said) <= maxMemory {
		c.shared.Store(&sharedCapabilities{bytes.Clone(said), both})
	}
	return both, err
}

// shared returns what a session can do that another client can do as well. Only what a server may ask for, and whether it may make a
// task of a call, depends on that client.
func shared(own protocol.ClientCapabilities, theirs *protocol.ClientCapabilities) *protocol.ClientCapabilities {
	if theirs.Roots == nil {
		own.Roots = nil
	}
	if !theirs.Has("extensions." + protocol.ExtensionTasks) {
		own.Extensions = withoutTasks(own.Extensions)
	}
	switch {
	case theirs.Sampling == nil:
		own.Sampling = nil
	case own.Sampling != nil && theirs.Sampling.Tools == nil:
		own.Sampling = &protocol.SamplingCapability{Context: own.Sampling.Context}
	}
	if own.Elicitation != nil {
		both := new(protocol.ElicitationCapability)
		if own.Elicitation.CanForm() && theirs.Elicitation.CanForm() {
			both.Form = new(protocol.Capability)
		}
		if own.Elicitation.CanURL() && theirs.Elicitation.CanURL() {
			both.URL = new(protocol.Capability)
		}
		if own.Elicitation = both; both.Form == nil && both.URL == nil {
			own.Elicitation = nil
		}
	}
	return &own
}
