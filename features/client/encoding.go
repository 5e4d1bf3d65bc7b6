package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
)

// marshalParams encodes params, which must be an object or nothing. It returns nil
// for nothing.
func marshalParams(method string, params any) (json.RawMessage, error) {
	raw, isRaw := params.(json.RawMessage)
	if !isRaw && params != nil {
		var err error
		if raw, err = protocol.Marshal(params); err != nil {
			return nil, refusedUnsent(method, invalid(err))
		}
	}
	switch text := bytes.TrimSpace(raw); {
	case len(text) == 0, string(text) == "null": // for example the encoding of a nil pointer
		return nil, nil
	case text[0] != '{':
		return nil, refusedUnsent(method, invalid(errors.New("the params are no object")))
	}
	return raw, nil
}

func isObject(raw []byte) bool {
	text := bytes.TrimLeft(raw, " \t\r\n")
	return len(text) > 0 && text[0] == '{'
}

// unmarshalResult decodes a result, which must be an object.
func unmarshalResult(raw json.RawMessage, result any) error {
	if !isObject(raw) {
		return &ResultError{errors.New("it is no object")}
	}
	if err := protocol.Unmarshal(raw, result); err != nil {
		return &ResultError{err}
	}
	return nil
}

// checkType refuses a result whose type this client does not know (2026-07-28
// basic/index).
func checkType(result any, asks *protocol.InputRequired) error {
	typed, ok := result.(interface{ Type() string })
	switch {
	case !ok:
		return nil
	case asks != nil && typed.Type() != protocol.ResultInputRequired:
		return fmt.Errorf("it asks for input and is of type %.100q", typed.Type())
	case asks != nil, typed.Type() == protocol.ResultComplete:
		return nil
	default:
		return fmt.Errorf("it is of type %.100q, and this client takes %q only", typed.Type(), protocol.ResultComplete)
	}
}

func decodeDiscover(raw json.RawMessage) (*protocol.DiscoverResult, error) {
	result := new(protocol.DiscoverResult)
	if err := unmarshalResult(raw, result); err != nil {
		return nil, err
	}
	if err := checkType(result, nil); err != nil {
		return nil, &ResultError{err}
	}
	if result.SupportedVersions == nil {
		return nil, &ResultError{errors.New("it has no supportedVersions")}
	}
	return result, nil
}

// serverInfo returns the server's name, or the zero value if it is missing or malformed.
func serverInfo(meta protocol.Meta) (info protocol.Implementation) {
	if protocol.Unmarshal(meta[protocol.MetaServerInfo], &info) != nil {
		return protocol.Implementation{}
	}
	return info
}

// copyOf returns a copy that may be changed, or an empty value for nil.
func copyOf[P any](params *P) *P {
	if params == nil {
		return new(P)
	}
	copied := *params
	return &copied
}
