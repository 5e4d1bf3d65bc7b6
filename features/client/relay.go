package client

import (
	"context"
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol"
)

// Relay makes a request of MCP in the name of another client, whose params it gets undecoded, and returns the result
// undecoded. It does what Request does, and this in addition:
//
//   - What that client says of itself to its own server does not go further: the revision, its name and capabilities, its log level and
//     progress token. This session puts its own in their place. All other members of _meta are kept.
//   - A call of a tool follows the mode of the tool, its annotations and its mirrored arguments, as CallTool does, if its list was
//     relayed or listed before.
//   - Asking finds the calls to which a question of the server may belong.
//
// The result may be input_required, or a task. The delivery of a failed call is in its *CallError, and the error of the server
// is in that.
func (s *Session) Relay(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	foreign, err := withoutSender(params)
	if err != nil {
		return nil, refusedUnsent(method, err)
	}
	known, ok := s.client.table.requests[method]
	if !ok {
		return s.Request(ctx, method, foreign)
	}
	options := s.options
	known.adjustRaw(s.session, params, &options)
	result, err := s.With(options).Request(ctx, method, foreign)
	if err == nil {
		known.learnRaw(s.session, result)
	}
	return result, err
}

// withoutSender drops from _meta what a client says of itself.
func withoutSender(params json.RawMessage) (*rawParams, error) {
	foreign := new(rawParams)
	if err := protocol.UnmarshalParams(params, foreign); err != nil {
		return nil, err
	}
	for _, own := range [...]string{
		protocol.MetaProgressToken, protocol.MetaProtocolVersion, protocol.MetaClientInfo, protocol.MetaClientCapabilities, protocol.MetaLogLevel,
	} {
		delete(foreign.Meta, own)
	}
	if len(foreign.Meta) == 0 {
		foreign.Meta = nil
	}
	return foreign, nil
}
