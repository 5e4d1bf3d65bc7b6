package protocol

import "encoding/json"

// Types of results. Extensions add others, so the set is open; a type that was
// not negotiated makes a result invalid.
const (
	ResultComplete      = "complete"       // also what an empty type means
	ResultInputRequired = "input_required" // the request is to be made again, with what the result asks for
)

// Scopes of a cached result (2026-07-28 server/utilities/caching).
const (
	CachePrivate = "private" // for the authorization context that asked
	CachePublic  = "public"  // for everybody
)

// A ModernResult can be sent under a modern revision.
type ModernResult interface {
	// Stamp sets what every modern result says, where it is not set already: the
	// type ResultComplete, serverInfo, which is an encoded Implementation, in
	// _meta unless it is nil, and for a complete result that can be cached a
	// lifetime of 0 and CachePrivate. It never changes a map that is shared; a
	// result that is shared is copied before.
	Stamp(serverInfo json.RawMessage)
}

// Result are the members that every result may have.
type Result struct {
	Meta       Meta   `json:"_meta,omitzero"`
	ResultType string `json:"resultType,omitzero"` // since 2026-07-28, where servers must send it
}

// Type is the result's type: ResultComplete when it says none.
func (r *Result) Type() string {
	if r.ResultType == "" {
		return ResultComplete
	}
	return r.ResultType
}

// Stamp makes it a modern result, as ModernResult says.
func (r *Result) Stamp(serverInfo json.RawMessage) {
	if r.ResultType == "" {
		r.ResultType = ResultComplete
	}
	if _, set := r.Meta[MetaServerInfo]; set || serverInfo == nil {
		return
	}
	r.Meta = r.Meta.with(1)
	r.Meta[MetaServerInfo] = serverInfo
}

// CacheableResult is a result that a client may keep for a while. Servers of
// 2026-07-28 and later must say so when it is complete.
type CacheableResult struct {
	Result
	TTLMs      *int64 `json:"ttlMs,omitzero"`      // milliseconds from receipt; nil and negative mean 0
	CacheScope string `json:"cacheScope,omitzero"` // CachePrivate or CachePublic
}

// Stamp makes it a modern result, as ModernResult says.
func (r *CacheableResult) Stamp(serverInfo json.RawMessage) {
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

// EmptyResult says that a request was done, and nothing else.
type EmptyResult struct {
	Result
}
