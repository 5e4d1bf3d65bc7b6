package protocol

import (
	"bytes"
	"cmp"
	stdjson "encoding/json"
	"errors"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A RequestContext is what every modern request says of its client, in _meta
// (2026-07-28 basic/index). Nothing of it holds for another request.
type RequestContext struct {
	ProtocolVersion    string             `json:"io.modelcontextprotocol/protocolVersion"`
	ClientCapabilities ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
	ClientInfo         *Implementation    `json:"io.modelcontextprotocol/clientInfo,omitzero"` // nil when the client does not say
	LogLevel           string             `json:"io.modelcontextprotocol/logLevel,omitzero"`   // as it came; empty: no log messages
}

// Members are what to put into _meta of a request. They can be encoded once and
// added to many.
func (c *RequestContext) Members() (Meta, error) {
	raw, err := Marshal(c)
	if err != nil {
		return nil, err
	}
	members := Meta{}
	return members, Unmarshal(raw, &members)
}

// ModernContext reads the context out of the params of a request. The request is
// modern when its _meta names a protocol version, be it of the wrong type; _meta
// that is absent or no object names none. Which versions are supported is for
// the caller to say: see UnsupportedVersion. A log level is not checked.
//
// The error is a *jsonrpc.Error of CodeInvalidParams: the version or the
// capabilities are missing, or one of the four members cannot be read. A name
// or log level that is null is absent.
//
// The params are those of a decoded message. Names given twice may pass: Unmarshal
// refuses them when the params themselves are read.
func ModernContext(params stdjson.RawMessage) (c *RequestContext, modern bool, err error) {
	if !mayBeModern(params) {
		return nil, false, nil
	}
	var read contextReader
	err = json.Unmarshal(params, &read, lenient)
	if errors.Is(err, errNoMeta) {
		return nil, false, nil
	}
	if !errors.Is(err, errMetaRead) || !read.complete() {
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

// lenient leaves names given twice to who reads the params themselves.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// mayBeModern is quick, and errs on one side only: the text has the key, or an
// escape that may hide a character of it. Some encoders escape every slash.
func mayBeModern(params []byte) bool {
	return bytes.Contains(params, []byte(MetaProtocolVersion)) ||
		bytes.Contains(params, []byte(`\/`)) || bytes.Contains(params, []byte(`\u`))
}

// How the reading of params ends: right after _meta, since clients put it before
// the arguments, which can be large.
var (
	errMetaRead = errors.New("protocol: _meta is read")
	errNoMeta   = errors.New("protocol: there is no _meta")
)

// A contextReader reads the first _meta of params, and nothing after it.
type contextReader struct {
	Version      *string             `json:"io.modelcontextprotocol/protocolVersion"`
	Capabilities *ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
	Info         *Implementation     `json:"io.modelcontextprotocol/clientInfo"`
	LogLevel     string              `json:"io.modelcontextprotocol/logLevel"`
}

func (r *contextReader) complete() bool { return r.Version != nil && r.Capabilities != nil }

// UnmarshalJSONFrom fails always: with errMetaRead, errNoMeta or what is wrong.
func (r *contextReader) UnmarshalJSONFrom(params *jsontext.Decoder) error {
	if opening, err := params.ReadToken(); err != nil || opening.Kind() != '{' {
		return errNoMeta
	}
	for params.PeekKind() == '"' {
		name, err := params.ReadToken()
		if err != nil {
			return err
		}
		if name.String() == "_meta" {
			type members contextReader // without this method
			return cmp.Or(json.UnmarshalDecode(params, (*members)(r)), errMetaRead)
		}
		if err := params.SkipValue(); err != nil {
			return err
		}
	}
	return errNoMeta
}

// contextFault is what hinders the reading of a modern context, if that is what
// it is.
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
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "_meta: " + key + " is missing or malformed"}
}
