package protocol

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// UnmarshalParams decodes the params of a message from a peer. It does what Unmarshal
// does, but it does not refuse a call because of its trace context: a traceparent,
// tracestate or baggage that _meta has more than once becomes an empty list. No tracer
// can use that, so it is ignored and counted as malformed.
func UnmarshalParams(raw []byte, into any) error {
	err := Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	if single := withoutRepeatedTrace(raw); single != nil {
		return Unmarshal(single, into)
	}
	return err
}

// withoutRepeatedTrace returns a copy of params in which each repeated member of a trace
// context is an empty list. It returns nil if there is no such member.
func withoutRepeatedTrace(params []byte) []byte {
	meta, again := jsonrpc.Member(params, "_meta")
	if meta == nil || again {
		return nil
	}
	var repeated []string
	for _, name := range [...]string{MetaTraceparent, MetaTracestate, MetaBaggage} {
		if _, again := jsonrpc.Member(meta, name); again {
			repeated = append(repeated, name)
		}
	}
	if repeated == nil {
		return nil
	}
	return replaced(params, []string{"_meta"}, replaced(meta, repeated, []byte("[]")))
}

// replaced returns a copy of an object in which the members with the given names are
// replaced, each by a single one with that value. All other members stay as they are,
// repeated ones too, so Unmarshal still refuses those.
func replaced(object []byte, names []string, value []byte) []byte {
	copied := []byte{'{'}
	member := func(name, value []byte) {
		if len(copied) > 1 {
			copied = append(copied, ',')
		}
		copied = append(append(append(copied, name...), ':'), value...)
	}
	from := jsontext.NewDecoder(bytes.NewReader(object), lenient)
	_, err := from.ReadToken() // the brace
	for err == nil && from.PeekKind() == '"' {
		var quoted, kept jsontext.Value
		if quoted, err = from.ReadValue(); err != nil {
			break
		}
		name, _ := jsontext.AppendUnquote(nil, quoted)
		if slices.Contains(names, string(name)) {
			err = from.SkipValue()
			continue
		}
		quoted = quoted.Clone() // ReadValue uses its memory again
		if kept, err = from.ReadValue(); err == nil {
			member(quoted, kept)
		}
	}
	for _, name := range names {
		member([]byte(`"`+name+`"`), value)
	}
	return append(copied, '}')
}
