package protocol

import (
	"bytes"
	stdjson "encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A RequestContext describes the client that makes a modern request. Every modern
// request contains it in _meta. It applies only to that request (2026-07-28
// basic/index).
type RequestContext struct {
	ProtocolVersion    string             `json:"io.modelcontextprotocol/protocolVersion"`
	ClientCapabilities ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
	ClientInfo         *Implementation    `json:"io.modelcontextprotocol/clientInfo,omitzero"` // nil when absent
	LogLevel           LogLevel           `json:"io.modelcontextprotocol/logLevel,omitzero"`   // unchecked; empty: send no log messages
}

// Members returns the members to add to _meta of a request. They can be added to
// many requests.
func (c *RequestContext) Members() (Meta, error) {
	raw, err := Marshal(c)
	if err != nil {
		return nil, err
	}
	members := Meta{}
	return members, Unmarshal(raw, &members)
}

// ModernContext decodes the RequestContext in the params of a request. It reports
// whether the request is modern, that is whether _meta has the member
// MetaProtocolVersion, of any type. It does not check whether the version is
// supported (see UnsupportedVersion) and whether the log level is known.
//
// ModernContext fails with a *jsonrpc.Error of CodeInvalidParams and ReasonMeta if the
// version or the capabilities are missing, or if one of the four members is malformed.
// Null in place of a name or log level means absent.
//
// The params must come from a decoded message. ModernContext does not notice
// repeated names; Unmarshal refuses them when it decodes the params.
func ModernContext(params stdjson.RawMessage) (c *RequestContext, modern bool, err error) {
	if !mayBeModern(params) {
		return nil, false, nil
	}
	meta, _ := jsonrpc.Member(params, "_meta")
	if meta == nil {
		return nil, false, nil
	}
	var read contextReader
	if json.Unmarshal(meta, &read, lenient) != nil || !read.complete() {
		modern, err = contextFault(params)
		return nil, modern, err
	}
	return &RequestContext{
		ProtocolVersion:    *read.Version,
		ClientCapabilities: *read.Capabilities,
		ClientInfo:         read.Info,
		LogLevel:           read.LogLevel,
	}, true, nil
}

// lenient tolerates repeated names, which decoding the params refuses later.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// mayBeModern is a quick test without false negatives: the text has the key, or
// an escape that may hide a character of it. Some encoders escape every slash.
func mayBeModern(params []byte) bool {
	return bytes.Contains(params, []byte(MetaProtocolVersion)) ||
		bytes.Contains(params, []byte(`\/`)) || bytes.Contains(params, []byte(`\u`))
}

// A contextReader reads _meta.
type contextReader struct {
	Version      *string             `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities *ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
	Info         *Implementation     `json:"io.modelcontextprotocol/clientInfo"`
	LogLevel     LogLevel            `json:"io.modelcontextprotocol/logLevel"`
}

func (r *contextReader) complete() bool { return r.Version != nil && r.Capabilities != nil }

// contextFault says why the context of a modern request cannot be read. It
// reports whether the request is modern at all.
func contextFault(params []byte) (modern bool, err error) {
	var given struct {
		Meta Meta `json:"_meta"`
	}
	if json.Unmarshal(params, &given, lenient) != nil {
		return false, nil
	}
	if _, modern = given.Meta[MetaProtocolVersion]; !modern {
		return false, nil
	}
	for _, member := range []struct {
		key      string
		optional bool
		into     any
	}{
		{MetaProtocolVersion, false, new(string)},
		{MetaClientCapabilities, false, new(ClientCapabilities)},
		{MetaClientInfo, true, new(Implementation)},
	} {
		value, given := given.Meta[member.key]
		if absent := !given || isNull(value); absent && member.optional {
			continue
		} else if absent || json.Unmarshal(value, member.into, lenient) != nil {
			return true, refuseMember(member.key)
		}
	}
	return true, refuseMember(MetaLogLevel)
}

func refuseMember(key string) error {
	return InvalidParams(ReasonMeta, "_meta: "+key+" is missing or malformed")
}
