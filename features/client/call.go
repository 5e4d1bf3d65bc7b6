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

// requestParams are params that can carry a progress token.
type requestParams[P any] interface {
	*P
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

// An exchange is one call of a method: what is asked, and of whom.
type exchange[P any, Q requestParams[P]] struct {
	session    *Session
	params     *P // the caller's: never changed
	capability func(*protocol.ServerCapabilities) error
	asked
}

// asked is the last attempt of a call: its id, and the server it was for.
type asked struct {
	id  int64
	met *meeting
}

// encode makes the params of one attempt, for the server that is there now. It
// may be of another era than the one of the attempt before.
func (x *exchange[P, Q]) encode(id int64, epoch uint64) (conn.Message, error) {
	x.asked = asked{id, x.session.latest.Load()}
	if x.met.incarnation.Epoch() != epoch {
		return conn.Message{}, conn.ErrStale // it was replaced just now
	}
	if err := x.capability(&x.met.server.Capabilities); err != nil {
		return conn.Message{}, err
	}
	params := Q(orNew(x.params))
	if x.session.options.wantsProgress() {
		params.SetMeta(protocol.MetaProgressToken, jsonrpc.IntegerID(id).Append(nil))
	}
	var m conn.Message
	if x.met.modern() {
		params.AddMeta(x.met.members)
		m.Version = x.met.server.ProtocolVersion
	}
	if call, ok := any(params).(*protocol.CallToolParams); ok {
		m.Name = call.Name
	}
	var err error
	m.Params, err = protocol.Marshal(params)
	return m, err
}

// call makes one request: encode, wait, decode, all on the calling goroutine.
// What check misses in the result makes it unreadable.
func call[R, P any, Q requestParams[P]](
	ctx context.Context, s *Session, method string, params *P,
	capability func(*protocol.ServerCapabilities) error, check func(*R) error,
) (*R, asked, error) {
	x := exchange[P, Q]{session: s, params: params, capability: capability}
	raw, err := s.conn.Call(ctx, s.options.request(method, x.encode))
	if err != nil {
		return nil, x.asked, err
	}
	result, err := decode(raw, x.met.modern(), check)
	if err != nil {
		return nil, x.asked, answered(method, x.id, err)
	}
	return result, x.asked, nil
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

// nothing is what the server has to offer for a method that every server has.
func nothing(*protocol.ServerCapabilities) error { return nil }

// progressTo hands on progress. What is malformed is ignored, as the
// specification asks.
func progressTo(tell func(*protocol.ProgressParams)) func(json.RawMessage) {
	return func(params json.RawMessage) {
		var told struct {
			protocol.ProgressParams
			Progress *float64 `json:"progress"` // in place of the one that cannot be absent
		}
		if protocol.Unmarshal(params, &told) != nil || told.Progress == nil {
			return
		}
		told.ProgressParams.Progress = *told.Progress
		tell(&told.ProgressParams)
	}
}
