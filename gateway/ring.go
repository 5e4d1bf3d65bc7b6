package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A gateway may be a server of another one, and by mistake of itself. What such a ring would do is to list its tools again and again, under ever
// longer names, and to pass calls on without end. So gateways tell each other what ordinary servers never see.

const (
	// MetaHops is the member of _meta that counts how many gateways a request has passed. Only gateways are sent it.
	MetaHops = "io.github.bowline-mcp/hops"
	mostHops = 8

	capability = "io.github.bowline-mcp/gateway"  // experimental: this is a gateway, which counts hops
	metaPassed = "io.github.bowline-mcp/gateways" // in a list for a gateway: which ones its entries may have passed
	mostPassed = 64
)

// isGateway reports whether a server says that it is a gateway.
func isGateway(session *client.Session) bool {
	capabilities := session.Server().Capabilities
	_, is := capabilities.Experimental[capability]
	return is
}

// tooFarError is that of a request that has passed too many gateways. This one answers in place of the server.
type tooFarError struct{ fault *jsonrpc.Error }

func (e *tooFarError) Error() string { return e.fault.Message }

// withHop returns params as they go to a server, with one hop more if that is a gateway.
func withHop(session *client.Session, params json.RawMessage) (json.RawMessage, error) {
	if !isGateway(session) {
		return params, nil
	}
	var asked struct {
		Meta   map[string]json.RawMessage `json:"_meta,omitzero"`
		Others map[string]json.RawMessage `json:",unknown"`
	}
	if err := protocol.UnmarshalParams(params, &asked); err != nil {
		return nil, err
	}
	passed, err := strconv.Atoi(string(asked.Meta[MetaHops]))
	if asked.Meta[MetaHops] != nil && err != nil || passed < 0 || passed >= mostHops {
		return nil, &tooFarError{&jsonrpc.Error{
			Code: jsonrpc.CodeInternalError, Data: fmt.Appendf(nil, `{%q:%d}`, MetaHops, mostHops),
			Message: fmt.Sprintf("the request has passed %d gateways: one of them has a server that leads back to it", mostHops),
		}}
	}
	if asked.Meta == nil {
		asked.Meta = make(map[string]json.RawMessage)
	}
	asked.Meta[MetaHops] = strconv.AppendInt(nil, int64(passed)+1, 10)
	return protocol.Marshal(&asked)
}

// A RingError says that a server leads back to this gateway.
type RingError struct{ Server string }

// Error says what to do about it.
func (e *RingError) Error() string {
	return fmt.Sprintf("gateway: the server %q leads back to this gateway: what it offers is left out; take it out of one of the files", e.Server)
}

// passed returns a gateway and those that are known behind its servers.
func passed(self string, servers map[string]*upstream) []string {
	all := []string{self}
	for _, u := range servers {
		if behind := u.behind.Load(); behind != nil {
			all = append(all, *behind...)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), mostPassed)]
}

// withPassed adds to a list for a gateway what its entries may have passed.
func withPassed(list json.RawMessage, passed []string) (json.RawMessage, error) {
	meta, err := protocol.Marshal(map[string][]string{metaPassed: passed})
	if err != nil {
		return nil, err
	}
	return append(append(append(slices.Clip(list[:len(list)-1]), `,"_meta":`...), meta...), '}'), nil
}

// setBehind keeps which gateways are behind a server. The error is a *RingError if this one is, or was since the server was connected: if it
// could be taken back, the gateways of a ring would for ever make each other change their lists.
func (u *upstream) setBehind(self string, behind []string) error {
	if u.ring.Load() || slices.Contains(behind, self) {
		u.ring.Store(true)
		u.behind.Store(nil)
		return &RingError{u.Name}
	}
	if len(behind) > 0 || u.behind.Load() != nil {
		behind = slices.Clone(behind[:min(len(behind), mostPassed)])
		u.behind.Store(&behind)
	}
	return nil
}

// urlOf returns the URL of a server; "": it has none.
func urlOf(s *mcpjson.Server) string {
	switch t := s.Transport.(type) {
	case *streamable.Client:
		return t.URL
	case *sse.Client:
		return t.URL
	default:
		return ""
	}
}
