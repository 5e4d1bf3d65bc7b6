package protocol

import (
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Marshal encodes a value for the wire. A nil slice becomes an empty array.
// Bytes that are not UTF-8 become U+FFFD, as in encoding/json, so one wrong
// byte in a tool's output does not make the whole result unusable.
func Marshal(value any) (stdjson.RawMessage, error) { return appendValue(nil, value) }

// Append is like Marshal, but appends to dst. If meta, an encoded object, is not nil, Append adds it as the first
// member, _meta. The value is then params or a result without _meta.
func Append(dst []byte, value any, meta stdjson.RawMessage) ([]byte, error) {
	if meta == nil {
		return appendValue(dst, value)
	}
	dst = append(append(slices.Grow(dst, SizeOf(value)+len(meta)+len(`{"_meta":,`)), `{"_meta":`...), meta...)
	at := len(dst)
	dst, err := appendValue(dst, value)
	if err == nil && (len(dst) < at+len("{}") || dst[at] != '{') {
		err = fmt.Errorf("protocol: encode %T: no object, which could have _meta", value)
	}
	if err != nil {
		return nil, err
	}
	return joined(dst, at), nil
}

func appendValue(dst []byte, value any) ([]byte, error) {
	if p, ok := value.(*CallToolParams); ok {
		value = p.written()
	}
	if raw, ok := appendFast(dst, value); ok {
		return raw, nil
	}
	raw, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("protocol: encode %T: %w", value, err)
	}
	if dst == nil {
		return raw, nil
	}
	return append(dst, raw...), nil
}

// SizeOf estimates how many bytes Append needs for a value, without encoding it. It is 0 for what is no message.
func SizeOf(value any) int {
	if raw, ok := value.(stdjson.RawMessage); ok {
		return len(raw)
	}
	return sizeHint(value)
}

// joined joins an object without its closing brace, raw[:at], and a second object, raw[at:],
// into one. It works in place.
func joined(raw []byte, at int) []byte {
	if raw[at] = ','; len(raw) == at+len("{}") {
		return append(raw[:at], '}')
	}
	return raw
}

// Unmarshal decodes a message from a peer. Member names are case-sensitive. Repeated
// names are refused, and unknown members are ignored. Empty input counts as an empty
// object, because params may be absent. Half of a surrogate pair, which some encoders
// produce, becomes U+FFFD. Unmarshal does not check UTF-8, because jsonrpc.Decode has
// done so (ADR-0016).
//
// Do not change raw afterwards, and do not reuse its memory: if the Arguments of
// CallToolParams, or the StructuredContent of a CallToolResult, are most of raw, they
// refer to it. If that is not possible, pass a copy. encoding/json always copies.
func Unmarshal(raw []byte, into any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if decodeFast(raw, false, into) {
		return nil
	}
	return unmarshalPlain(raw, into)
}

// UnmarshalMembers does what Unmarshal does for an object whose opening brace is missing: the
// text begins with its first member, if it has one.
func UnmarshalMembers(members []byte, into any) error {
	if decodeFast(members, true, into) {
		return nil
	}
	return unmarshalPlain(append([]byte{'{'}, members...), into)
}

func unmarshalPlain(raw []byte, into any) error {
	if err := json.Unmarshal(raw, into, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("protocol: decode %T: %w", into, err)
	}
	if p, ok := into.(*CallToolParams); ok && isNull(p.Arguments) {
		p.Arguments = nil
	}
	return nil
}

// isNull reports whether a value is null. Where a member is optional, null means
// absent.
func isNull(raw []byte) bool { return jsontext.Value(raw).Kind() == 'n' }

// Meta is the _meta member of a message. Unknown members are kept.
type Meta map[string]stdjson.RawMessage

// The members of _meta that the protocol names (2026-07-28 basic/index).
// MetaProgressToken belongs to every revision, the two task members to
// 2025-11-25, and the others to 2026-07-28.
const (
	MetaProgressToken      = "progressToken"                              // in a request: send me progress
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"    // in every request
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities" // in every request
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"         // in a request
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"           // in a request: send me log messages
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"         // in a result
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"     // in all messages of a subscriptions/listen

	MetaTraceparent = "traceparent" // trace context of W3C, in requests and notifications of every revision (SEP-414)
	MetaTracestate  = "tracestate"  // the same
	MetaBaggage     = "baggage"     // the same

	MetaRelatedTask            = "io.modelcontextprotocol/related-task"             // names the task that a message belongs to: RelatedTask
	MetaModelImmediateResponse = "io.modelcontextprotocol/model-immediate-response" // in LegacyCreateTaskResult: text for the model meanwhile
)

// RequestParams holds the members that the params of every request may have.
type RequestParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// NotificationParams holds the members that the params of every notification may
// have. A list_changed notification has no others.
type NotificationParams struct {
	Meta Meta `json:"_meta,omitzero"`
}

// MetaOf returns the _meta of params, which are a pointer to the params of a method or a
// json.RawMessage. It returns nil if there is no _meta, or if it cannot be decoded. The
// map belongs to the params. The bytes of its values may be shared, so replace a value
// and do not write into it.
func MetaOf(params any) Meta {
	switch params := params.(type) {
	case interface{ meta() Meta }:
		return params.meta()
	case stdjson.RawMessage:
		var members struct {
			Meta Meta `json:"_meta"`
		}
		if len(params) == 0 || UnmarshalParams(params, &members) != nil {
			return nil
		}
		return members.Meta
	default:
		return nil
	}
}

func (p *RequestParams) meta() Meta { return p.Meta }

func (p *NotificationParams) meta() Meta { return p.Meta }

// SetMeta sets one member of _meta. It copies the map first, so a map shared
// with other params does not change.
func (p *RequestParams) SetMeta(key string, value stdjson.RawMessage) {
	p.Meta = p.Meta.with(1)
	p.Meta[key] = value
}

// AddMeta sets several members of _meta. It copies the map first, so a map shared with
// other params does not change. It does not keep the map members.
func (p *RequestParams) AddMeta(members Meta) {
	p.Meta = p.Meta.with(len(members))
	maps.Copy(p.Meta, members)
}

// HasMeta reports whether there is a _meta, which may be empty.
func (p *RequestParams) HasMeta() bool { return p.Meta != nil }

// with returns a copy with room for some members more.
func (m Meta) with(more int) Meta {
	meta := make(Meta, len(m)+more)
	maps.Copy(meta, m)
	return meta
}

// The types of results. The set is open: extensions add types. A client must
// refuse a result of a type that was not negotiated.
const (
	ResultComplete      = "complete"       // the final result; an absent type means this
	ResultInputRequired = "input_required" // the server asks for input: see InputRequired
	ResultTask          = "task"           // the tasks extension: see CreateTaskResult
)

// The scopes of a result that may be cached (2026-07-28 server/utilities/caching).
const (
	CachePrivate = "private" // only for the authorization context that asked
	CachePublic  = "public"  // for everybody
)

// A ModernResult can be sent in the modern revisions.
type ModernResult interface {
	// Stamp sets the members that every modern result needs, unless they are set
	// already: the result type, serverInfo in _meta, and for a complete result
	// that may be cached a lifetime of 0 and CachePrivate. ServerInfo is an
	// encoded Implementation; Stamp adds none if it is nil. Stamp copies the _meta
	// map before it changes it. It does change the result itself: copy a result
	// that is shared.
	Stamp(serverInfo stdjson.RawMessage)
}

// Result holds the members that every result may have.
type Result struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"` // required from servers since 2026-07-28, see Stamp
}

// Type returns the result type, and ResultComplete if there is none.
func (r *Result) Type() string {
	if r.ResultType == "" {
		return ResultComplete
	}
	return r.ResultType
}

// HasMeta reports whether there is a _meta, which may be empty.
func (r *Result) HasMeta() bool { return r.Meta != nil }

// Stamp implements ModernResult.
func (r *Result) Stamp(serverInfo stdjson.RawMessage) {
	if r.ResultType == "" {
		r.ResultType = ResultComplete
	}
	if _, set := r.Meta[MetaServerInfo]; set || serverInfo == nil {
		return
	}
	r.Meta = r.Meta.with(1)
	r.Meta[MetaServerInfo] = serverInfo
}

// A CacheableResult may be kept by the client for a while. Servers of 2026-07-28
// must send both members in a complete result.
type CacheableResult struct {
	Result
	TTLMs      *int64 `json:"ttlMs,omitzero"`      // lifetime in milliseconds from receipt; nil and negative mean 0
	CacheScope string `json:"cacheScope,omitzero"` // CachePrivate or CachePublic

	// Received says when a client got the result, if it kept it from an earlier call.
	// It is zero for a result of this call, and does not travel.
	Received time.Time `json:"-"`
}

// Stamp implements ModernResult.
func (r *CacheableResult) Stamp(serverInfo stdjson.RawMessage) {
	r.Result.Stamp(serverInfo)
	if r.ResultType != ResultComplete {
		return
	}
	if r.TTLMs == nil {
		r.TTLMs = new(int64)
	}
	if r.CacheScope == "" {
		r.CacheScope = CachePrivate
	}
}

// An EmptyResult acknowledges a request and says nothing else.
type EmptyResult struct {
	Result
}
