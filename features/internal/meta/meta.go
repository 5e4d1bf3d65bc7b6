// Package meta recognizes the _meta of requests by its bytes, so that a server decodes it once and
// not with each request (ADR-0049).
//
// Most clients send the same _meta in all of their requests, with at most another trace context at
// its end. A Known holds what one _meta said. Where params begin with the same text, they are cut
// behind it, and only the rest is decoded. A Cut is made only if that gives the same value as
// decoding everything; in any doubt there is none, and the params are decoded as always, so that
// every error is the usual one. Nothing here changes or keeps the bytes of a request.
//
// Everything is a pure function.
package meta

import (
	"bytes"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	// longest is the maximum length of a _meta that is remembered, in bytes.
	longest = 2 << 10

	// longestRest is how many bytes may follow a _meta that is not decoded again. They are
	// searched for another _meta, which costs more than it saves in a longer text.
	longestRest = 4 << 10
)

// A Known is a _meta that was decoded once, without the trace context at its end. It does not
// change.
type Known struct {
	text    []byte // the object
	members protocol.Meta
}

// Remember returns the Known of a _meta. It returns nil for one that is too long, and for one with a
// progress token, which differs from request to request.
func Remember(text []byte) *Known {
	text = withoutTrace(text)
	if len(text) > longest || bytes.Contains(text, []byte(protocol.MetaProgressToken)) {
		return nil
	}
	k := &Known{text: text}
	if protocol.Unmarshal(text, &k.members) != nil {
		return nil
	}
	return k
}

// Is reports whether a _meta is the known one, whatever the trace context at its end.
func (k *Known) Is(text []byte) bool {
	_, behind := k.within(text)
	return behind != nil && len(behind) == 0
}

// A Cut is what is left of params whose _meta need not be decoded. The zero Cut means that it has to
// be.
type Cut struct {
	// Rest is what follows the _meta and a comma: members, and the brace that closes the params.
	Rest []byte

	trace []byte // the members of the trace context at the end of the _meta
	known *Known // the members before; nil: there are none
}

// Cut cuts params that begin with the known _meta.
func (k *Known) Cut(params []byte) Cut {
	if text, found := bytes.CutPrefix(params, []byte(`{"_meta":`)); found {
		trace, behind := k.within(text)
		return Cut{onlyRest(behind), trace, k}
	}
	return Cut{}
}

// CutTrace cuts params whose _meta consists of a trace context.
func CutTrace(params []byte) Cut {
	text, found := bytes.CutPrefix(params, []byte(`{"_meta":`))
	if !found {
		return Cut{}
	}
	size, _ := traceMembers(text, nil)
	if size <= 0 || size == len(text) || text[size] != '}' {
		return Cut{}
	}
	return Cut{Rest: onlyRest(text[size+1:]), trace: text[:size]}
}

// Keep copies what AddTo needs, so that a long call does not keep the frame of its request. After
// that there is no Rest.
func (c *Cut) Keep() { c.Rest, c.trace = nil, bytes.Clone(c.trace) }

// A Taker has params that may have a _meta.
type Taker interface{ AddMeta(members protocol.Meta) }

// AddTo adds to params a copy of the _meta that was cut off.
func (c *Cut) AddTo(params Taker) {
	var known protocol.Meta
	if c.known != nil {
		known = c.known.members
	}
	params.AddMeta(known)
	added := protocol.MetaOf(params)
	_, values := traceMembers(c.trace, nil)
	for i, name := range [...]string{protocol.MetaTraceparent, protocol.MetaTracestate, protocol.MetaBaggage} {
		if values[i] != nil {
			added[name] = values[i]
		}
	}
}

// onlyRest returns what is behind the _meta of params, and the comma after that. It returns nil
// if there may be another _meta.
func onlyRest(behind []byte) []byte {
	if len(behind) == 0 || len(behind) > longestRest || bytes.Contains(behind, []byte("_meta")) || bytes.Contains(behind, []byte(`\u`)) {
		return nil
	}
	return bytes.TrimPrefix(behind, []byte{','})
}

// within returns what follows the known _meta in a text that begins with it, and the trace context
// at the end of that _meta. What follows is nil if the text begins otherwise.
func (k *Known) within(text []byte) (trace, behind []byte) {
	if k == nil || len(k.text) == 0 {
		return nil, nil
	}
	behind, found := bytes.CutPrefix(text, k.text[:len(k.text)-1])
	if !found {
		return nil, nil
	}
	size, _ := traceMembers(behind, k.members)
	if size < 0 || size == len(behind) || behind[size] != '}' {
		return nil, nil
	}
	return behind[:size], behind[size+1:]
}

// traceMembers returns the size of the members of a trace context that text begins with, each
// behind a comma, or the first behind a brace, and their values. The size is negative if one of
// them has an escape, is there twice, or is among the members before.
func traceMembers(text []byte, before protocol.Meta) (size int, values [len(traceNames)][]byte) {
members:
	for size < len(text) && (text[size] == ',' || size == 0 && text[size] == '{') {
		for i, name := range traceNames {
			value, found := bytes.CutPrefix(text[size+1:], []byte(name))
			if !found {
				continue
			}
			length := plainLength(value)
			if _, own := before[name[len(`"`):len(name)-len(`":`)]]; own || values[i] != nil || length == 0 {
				return -1, values
			}
			values[i] = value[:length:length]
			size += len(`,`) + len(name) + length
			continue members
		}
		break
	}
	return size, values
}

// traceNames are the members of a trace context in _meta, with what surrounds their names.
var traceNames = [...]string{`"` + protocol.MetaTraceparent + `":`, `"` + protocol.MetaTracestate + `":`, `"` + protocol.MetaBaggage + `":`}

// plainLength returns the length of the JSON string that text begins with, or 0 if that has an
// escape, or text begins otherwise.
func plainLength(text []byte) int {
	if len(text) == 0 || text[0] != '"' {
		return 0
	}
	size, _ := scan.Plain(text[1:])
	if 1+size == len(text) || text[1+size] != '"' {
		return 0
	}
	return size + len(`""`)
}

// withoutTrace returns a copy of a _meta without the trace context at its end.
func withoutTrace(text []byte) []byte {
	if at := bytes.Index(text, []byte(`,`+traceNames[0])); at > 0 {
		if size, _ := traceMembers(text[at:], nil); size > 0 && at+size == len(text)-1 {
			return append(bytes.Clone(text[:at]), '}')
		}
	}
	return bytes.Clone(text)
}
