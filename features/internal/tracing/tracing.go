// Package tracing puts the trace context of a context into messages.
package tracing

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/internal/scan"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Members returns the members to add to _meta for the trace context of ctx: those
// that _meta has not yet. It returns nil for none.
func Members(ctx context.Context, meta protocol.Meta) protocol.Meta {
	trace := telemetry.TraceFrom(ctx)
	if trace == nil {
		return nil
	}
	if _, own := meta[protocol.MetaTraceparent]; own || trace.Parent == "" {
		return nil
	}
	members := make(protocol.Meta, 3)
	for _, m := range [...]struct{ name, text string }{
		{protocol.MetaTraceparent, trace.Parent}, {protocol.MetaTracestate, trace.State}, {protocol.MetaBaggage, trace.Baggage},
	} {
		if _, own := meta[m.name]; own || m.text == "" {
			continue
		}
		if raw, err := json.Marshal(m.text); err == nil { // a string always can be
			members[m.name] = raw
		}
	}
	return members
}

// AddTo returns a _meta with the trace context of ctx: a copy of the text of a _meta that
// has none, or nil. The copy is written over memory, which becomes larger if that is necessary.
// AddTo returns meta itself if there is no trace context.
func AddTo(ctx context.Context, memory *[]byte, meta json.RawMessage) json.RawMessage {
	trace := telemetry.TraceFrom(ctx)
	if trace == nil || trace.Parent == "" {
		return meta
	}
	const names = len(`{"traceparent":"","tracestate":"","baggage":""}`)
	added := append(slices.Grow((*memory)[:0], len(meta)+names+len(trace.Parent)+len(trace.State)+len(trace.Baggage)), '{')
	if len(meta) > len("{}") {
		added = append(append(added[:0], meta[:len(meta)-1]...), ',')
	}
	added = scan.AppendQuote(append(added, `"`+protocol.MetaTraceparent+`":`...), trace.Parent)
	if trace.State != "" {
		added = scan.AppendQuote(append(added, `,"`+protocol.MetaTracestate+`":`...), trace.State)
	}
	if trace.Baggage != "" {
		added = scan.AppendQuote(append(added, `,"`+protocol.MetaBaggage+`":`...), trace.Baggage)
	}
	*memory = append(added, '}')
	return *memory
}

// anyParams has any members beside _meta.
type anyParams struct {
	protocol.RequestParams
	Others map[string]json.RawMessage `json:",unknown"`
}

// Inject adds the trace context of ctx to params that are encoded already; nil means
// none. Params that are no object stay as they are.
func Inject(ctx context.Context, raw json.RawMessage) json.RawMessage {
	members := Members(ctx, protocol.MetaOf(raw))
	if len(members) == 0 {
		return raw
	}
	params := new(anyParams)
	if len(raw) > 0 && protocol.Unmarshal(raw, params) != nil {
		return raw
	}
	params.AddMeta(members)
	added, err := protocol.Marshal(params)
	if err != nil {
		return raw
	}
	return added
}
