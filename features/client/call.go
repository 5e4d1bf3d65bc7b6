package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/cache"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// This file is one call, from top to bottom. All of it runs on the goroutine of the caller.
// Each stage may call the next one any number of times, and adds one thing:
//
//	call                chooses the first stage
//	callWithMiddleware  shows the request to the program; skipped if there is no middleware
//	callCached          answers from the cache, and keeps the server's answer; skipped for
//	                    methods whose results are not kept
//	callWithRounds      makes several requests if one is not enough: after a refusal of its
//	                    headers, for questions of the server, and for a task
//	roundTrip           makes one request and reads its answer; the Conn repeats it after a
//	                    loss, if CallOptions.Retries permits
//
// A stage that does not apply is not on the stack of a call that waits.

// An attempt is the last try of a call: its id, and the server that it was for.
type attempt struct {
	id        int64
	peer      *peer
	raw       json.RawMessage // the result; nil without one
	asked     bool            // the call took more than one round
	fromCache bool            // the result comes from the cache
}

// call makes a request. The attempt is zero if middleware answered.
func (m *method[P, R, Q]) call(ctx context.Context, s *Session, params *P) (*R, attempt, error) {
	switch {
	case s.client.chain != nil:
		return m.callWithMiddleware(ctx, s, params)
	case m.cached != nil:
		return m.callCached(ctx, s, params)
	default:
		return m.callWithRounds(ctx, s, params, nil)
	}
}

// resultOf drops the attempt of a call.
func resultOf[R any](result *R, _ attempt, err error) (*R, error) { return result, err }

// callWithMiddleware passes a request through the middleware, once for the whole call.
// The innermost handler continues with callInside.
func (m *method[P, R, Q]) callWithMiddleware(ctx context.Context, s *Session, params *P) (*R, attempt, error) {
	one := new(struct { // one allocation, instead of one for the result alone
		request Request
		params  P
		sent    sent
		result  R
	})
	if params != nil {
		one.params = *params
	}
	one.sent.result = &one.result
	one.request = Request{Method: m.Name, Params: &one.params, Session: s, sent: &one.sent}
	result, err := as[R](s.client.chain(ctx, &one.request))
	last := one.sent.last
	one.sent.last.raw = nil // otherwise a result that the program keeps would keep its frame
	return result, last, err
}

// A sent is what becomes of a request with middleware.
type sent struct {
	last   attempt
	result any         // a pointer to memory for the result; nil if there is none
	inUse  atomic.Bool // the first result has this memory
}

// callInside continues a call that has passed the middleware. Middleware may pass a call
// on several times: the first result gets the memory that callWithMiddleware has made.
func (m *method[P, R, Q]) callInside(ctx context.Context, r *Request) (any, error) {
	params, ok := r.Params.(*P)
	if !ok || params == nil {
		return nil, fmt.Errorf("client: %s: middleware passed on %T, not a %T", m.Name, r.Params, params)
	}
	if r.sent == nil {
		return nil, refusedUnsent(m.Name, errors.New("middleware passed on a Request that it has made: it must copy the one that it got"))
	}
	var into *R
	if r.sent.inUse.CompareAndSwap(false, true) {
		into, _ = r.sent.result.(*R)
	}
	var result *R
	var err error
	if m.cached != nil {
		result, r.sent.last, err = m.callCached(ctx, r.Session, params)
	} else {
		result, r.sent.last, err = m.callWithRounds(ctx, r.Session, params, into)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// callCached returns a kept result, or makes the request and keeps its result. While the
// server is away, it returns an old result if CallOptions.MaxStale permits.
func (m *method[P, R, Q]) callCached(ctx context.Context, s *Session, params *P) (*R, attempt, error) {
	asked := copyOf(params)
	if !m.mayCache(s, asked) {
		return m.callWithRounds(ctx, s, params, nil)
	}
	about, _ := m.cached.about(asked)
	key := cache.KeyOf(m.Name, about)
	if result, last, ok := m.fresh(s, key); ok {
		return result, last, nil
	}
	if s.conn.State() != conn.Ready { // before the request: an old result does not wait for a server
		if result, last, ok := m.stale(s, key); ok {
			return result, last, nil
		}
	}
	begun := s.cache.Begin(m.Name)
	result, last, err := m.callWithRounds(ctx, s, params, nil)
	switch {
	case err == nil:
		m.keep(s, key, begun, result, last)
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrLost):
		if result, last, ok := m.stale(s, key); ok {
			return result, last, nil
		}
	case m.cached.next != nil && about != nil && errors.As(err, new(*jsonrpc.Error)): // the cursor is no longer valid
		s.cache.Forget(m.Name)
	}
	return result, last, err
}

// cached says which results of a method are kept.
type cached[P, R any] struct {
	about func(*P) (*string, protocol.Meta) // what the result depends on: the cursor or URI
	hints func(*R) *protocol.CacheableResult
	next  func(*R) *string // the cursor of the next page; nil if the result is not a list
}

// mayCache reports whether the result of a request may come from the cache, and be kept.
// It may not if the session has no cache or is ending, or if the request has _meta of its
// own or answers to questions, on which the result may depend.
func (m *method[P, R, Q]) mayCache(s *Session, params *P) bool {
	if s.cache.Limit < 0 || s.isOver() || s.conn.State() == conn.Closing {
		return false
	}
	if _, meta := m.cached.about(params); len(meta) > 0 {
		return false
	}
	return m.input == nil || m.input(params).InputResponses == nil && m.input(params).RequestState == nil
}

// keep keeps the result of a request, unless questions led to it or it asks some.
func (m *method[P, R, Q]) keep(s *Session, key cache.Key, begun cache.Changes, result *R, last attempt) {
	if last.asked || m.asksIn(result) != nil {
		return
	}
	e := cache.Entry[*peer]{Raw: last.raw, Server: last.peer}
	if m.cached.next != nil {
		e.Next = m.cached.next(result)
	}
	s.cache.Keep(key, begun, e, cache.Lifetime(m.cached.hints(result), last.peer.Modern()), s.options.MaxStale)
}

// fresh finds a result that the server allows to be used now.
func (m *method[P, R, Q]) fresh(s *Session, key cache.Key) (*R, attempt, bool) {
	e := s.cache.Now(key, s.peer.Load(), s.options.cacheUse())
	if e == nil || s.options.Epoch != 0 && e.Server.Epoch() != s.options.Epoch {
		return nil, attempt{}, false
	}
	return m.reuse(s, e)
}

// stale finds a result for a caller that accepts an old one while the server is away.
func (m *method[P, R, Q]) stale(s *Session, key cache.Key) (*R, attempt, bool) {
	if s.options.Epoch != 0 {
		return nil, attempt{}, false
	}
	e := s.cache.Away(key, s.options.cacheUse())
	if e == nil {
		return nil, attempt{}, false
	}
	return m.reuse(s, e)
}

// reuse decodes a kept result again, so that each caller gets its own.
func (m *method[P, R, Q]) reuse(s *Session, e *cache.Entry[*peer]) (*R, attempt, bool) {
	result, err := m.read(s.session, e.Raw, new(R), e.Server, false)
	if err != nil {
		return nil, attempt{}, false
	}
	m.cached.hints(result).Received = e.Received
	return result, attempt{peer: e.Server, raw: e.Raw, fromCache: true}, true
}

// callWithRounds makes the requests of one call, and returns what the last one returned:
// one more if the server refuses the headers, one for each round of questions, and
// those that wait for a task. It writes the result of the first into into, which may be nil.
func (m *method[P, R, Q]) callWithRounds(ctx context.Context, s *Session, params *P, into *R) (*R, attempt, error) {
	result, last, err := m.roundTrip(ctx, s, params, into)
	if err != nil && m.again != nil && m.again(ctx, s, err) {
		result, last, err = m.roundTrip(ctx, s, params, nil)
	}
	if err == nil && m.asksIn(result) != nil && last.peer.Modern() && !s.options.ManualInput {
		result, last, err = m.answerRounds(ctx, s, params, result, last)
		last.asked, err = true, begun(err)
	}
	if err == nil && m.await != nil {
		result, err = m.await(ctx, s, result)
		err = begun(err)
	}
	return result, last, err
}

// asksIn returns the questions in a result; nil for none.
func (m *method[P, R, Q]) asksIn(result *R) *protocol.InputRequired {
	if m.required == nil {
		return nil
	}
	return m.required(result)
}

// answerRounds answers the questions in the result of a call and repeats the call with the
// answers, until the server asks nothing more (2026-07-28 basic/patterns/mrtr). Each
// round is a separate request with its own id and timeout; the context limits all of
// them together.
func (m *method[P, R, Q]) answerRounds(ctx context.Context, s *Session, params *P, result *R, last attempt) (*R, attempt, error) {
	delay := retryMin
	for round := 1; ; round++ {
		asks := m.required(result)
		if asks == nil {
			return result, last, nil
		}
		if round > s.client.options.MaxRounds {
			return nil, last, answered(m.Name, last.id, ErrTooMany)
		}
		if err := s.canAnswer(asks); err != nil {
			return nil, last, answered(m.Name, last.id, &ResultError{err})
		}
		var answers protocol.InputResponses
		var err error
		if len(asks.InputRequests) > 0 {
			answers, err = s.answerFor(ctx, m.Name, last, asks.InputRequests)
		} else if err = s.sleep(ctx, about(delay), m.Name, last.id); err == nil {
			delay = min(2*delay, retryMax)
		}
		if err != nil {
			return nil, last, err
		}
		again := copyOf(params)
		*m.input(again) = protocol.InputParams{InputResponses: answers, RequestState: asks.RequestState}
		if result, last, err = m.roundTrip(ctx, s, again, nil); err != nil {
			return nil, last, err
		}
	}
}

// roundTrip makes one request: it encodes, waits and decodes. The Conn calls back MakeMessage
// and AppendJSON of the outgoing for each attempt.
func (m *method[P, R, Q]) roundTrip(ctx context.Context, s *Session, params *P, into *R) (*R, attempt, error) {
	c := m.newOutgoing(s.client)
	defer m.release(s.client, c)
	c.method, c.session, c.params, c.options = m, s.session, params, s.options
	c.options.Repeatable = c.options.Repeatable || m.repeatable
	if m.adjust != nil && params != nil {
		m.adjust(s.session, m.name(params), &c.options)
	}
	c.prepare()
	raw, err := s.conn.Call(ctx, c.request)
	if err != nil {
		return nil, c.attempt, explain(err)
	}
	c.raw = raw
	if into == nil {
		into = new(R)
	}
	result, err := m.read(s.session, raw, into, c.peer, c.asTask || c.peer.Modern() && s.client.options.Tasks)
	if err != nil {
		return nil, c.attempt, answered(m.Name, c.id, err)
	}
	return result, c.attempt, nil
}
