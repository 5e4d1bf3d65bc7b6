package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A caller is the Conn, or an Incarnation for a request that is for its server
// session and no other.
type caller interface {
	Call(context.Context, conn.Request) (json.RawMessage, error)
}

// requestParams are params that can carry a progress token.
type requestParams interface {
	SetMeta(key string, value json.RawMessage)
	AddMeta(members protocol.Meta)
}

// orNew is a copy of params to change, or empty params for nil.
func orNew[P any](params *P) *P {
	if params == nil {
		return new(P)
	}
	copied := *params
	return &copied
}

// call makes one request: encode, wait, decode, all on the calling goroutine.
// What check misses in the result makes it unreadable.
func call[R any](ctx context.Context, s *Session, via caller, method string, params requestParams, check func(*R) error) (*R, error) {
	request := conn.Request{
		Method: method, ID: s.conn.NextID(),
		Timeout: s.options.Timeout, WaitForReady: s.options.WaitForReady && via == s.conn,
		ProgressRestarts: s.options.ProgressRestarts, MaxTimeout: s.options.MaxTimeout,
	}
	if s.options.OnProgress != nil {
		request.OnProgress = s.onProgress
	}
	if s.options.OnProgress != nil || s.options.ProgressRestarts {
		params.SetMeta(protocol.MetaProgressToken, jsonrpc.IntegerID(request.ID).Append(nil))
	}
	latest := s.latest.Load()
	modern := latest != nil && latest.modern()
	if modern {
		params.AddMeta(latest.members)
	}
	var err error
	if request.Params, err = protocol.Marshal(params); err != nil {
		return nil, &conn.CallError{Method: method, ID: request.ID, Cause: conn.Refused, Delivery: conn.NotSent, Err: err}
	}
	raw, err := via.Call(ctx, request)
	if err != nil {
		return nil, err
	}
	result, err := decode(raw, modern, check)
	if err != nil {
		return nil, answered(method, request.ID, err)
	}
	return result, nil
}

// answered is the failure of a call whose answer is of no use.
func answered(method string, id int64, err error) error {
	return &conn.CallError{Method: method, ID: id, Cause: conn.Answered, Delivery: conn.Sent, Err: err}
}

// decode reads a result, which is an object, and fails with a *ResultError.
func decode[R any](raw json.RawMessage, modern bool, check func(*R) error) (*R, error) {
	if object := bytes.TrimLeft(raw, " \t\r\n"); len(object) == 0 || object[0] != '{' {
		return nil, &ResultError{errors.New("it is no object")}
	}
	result := new(R)
	if err := protocol.Unmarshal(raw, result); err != nil {
		return nil, &ResultError{err}
	}
	if err := complete(result); modern && err != nil {
		return nil, &ResultError{err}
	}
	if err := check(result); err != nil {
		return nil, &ResultError{err}
	}
	return result, nil
}

// complete refuses what is no result yet, or of a kind unknown here (2026-07-28
// basic/index). The legacy revisions have no types of results.
func complete(result any) error {
	typed, ok := result.(interface{ Type() string })
	if !ok || typed.Type() == protocol.ResultComplete {
		return nil
	}
	return fmt.Errorf("it is of type %.100q, and this client takes %q only", typed.Type(), protocol.ResultComplete)
}

func anything(*protocol.EmptyResult) error { return nil }

// onProgress hands on progress. What is malformed is ignored, as the
// specification asks.
func (s *Session) onProgress(params json.RawMessage) {
	var told struct {
		protocol.ProgressParams
		Progress *float64 `json:"progress"` // in place of the one that cannot be absent
	}
	if protocol.Unmarshal(params, &told) != nil || told.Progress == nil {
		return
	}
	told.ProgressParams.Progress = *told.Progress
	s.options.OnProgress(&told.ProgressParams)
}
