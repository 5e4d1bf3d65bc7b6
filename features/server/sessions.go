package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// sessions contains the peers that the server serves, from the opening of their links until
// everything of theirs has ended.
// A peer is counted in gone from enter until the end of leave. So Close knows of everything that may still run for a
// client. Its counts move to over in the step in which it leaves live, so that no sample counts it twice, or not at
// all.
type sessions struct {
	server *Server
	cancel context.CancelFunc // ends host.ctx

	mu     sync.Mutex
	closed bool // no more peers are accepted
	live   map[*peer]struct{}
	last   weak.Pointer[Client] // the client whose session began last; sessions keep it
	over   telemetry.ConnSample // the counts of peers that have left
	gone   sync.WaitGroup
}

// leaveAtOnce is leave for a goroutine that must not wait.
// It is called on the goroutine that ends a link, and nearly all sessions are idle at their end: only for those that
// have something to wait for is a goroutine started.
func (ss *sessions) leaveAtOnce(p *peer) {
	if p.changes.Stop() {
		ss.leave(p)
		return
	}
	go ss.leave(p)
}

// enter registers a peer until it leaves.
// If the server is closed, the peer was never there, and the caller closes the link.
func (ss *sessions) enter(p *peer) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return ErrClosed
	}
	ss.live[p] = struct{}{}
	ss.gone.Add(1)
	ss.server.subscriptions.Add(&p.changes)
	return nil
}

// leave ends what belongs to a peer, and may wait for code of the program. The hub forgets the listener first, so
// that no change reaches one that is ending. The counts are read when the Conn has ended, and do not change any more.
func (ss *sessions) leave(p *peer) {
	ss.server.subscriptions.Remove(&p.changes)
	p.end()
	left := p.conn.Control().Sample().Conn
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.over.Add(left)
	delete(ss.live, p)
	ss.gone.Done()
}

// all returns the peers that are served now, in no order.
func (ss *sessions) all() []*peer {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Keys(ss.live))
}

// close takes no more peers, and begins to close the connections of all. The function that
// it returns waits for them, and returns the first error.
func (ss *sessions) close(ctx context.Context) func() error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.closed = true
	var closing sync.WaitGroup
	var first atomic.Pointer[error]
	for p := range ss.live {
		// All at the same time: each may take until the deadline, and they share one.
		closing.Go(func() {
			if err := p.conn.Close(ctx); err != nil && !errors.Is(err, conn.ErrNotRunning) {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	return func() error {
		closing.Wait()
		if err := first.Load(); err != nil {
			return *err
		}
		return nil
	}
}

// wait waits for the ends of all sessions. Shortly before the deadline of ctx, and when ctx is
// cancelled, it ends the context of OnUnsubscribe. It then waits until the deadline, or for
// the grace if that is longer. It returns the names of what is still running.
func (ss *sessions) wait(ctx context.Context, grace time.Duration) []string {
	deadline, _ := ctx.Deadline()
	left := max(time.Until(deadline), 0)
	patience := left / 100 * 99 // as in conn.Conn.Close
	rest := max(left, grace) - patience
	over := places.WhenDone(&ss.gone)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-over:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		rest = grace
	}
	ss.cancel()
	timer.Reset(rest)
	select {
	case <-over:
		return nil
	case <-timer.C:
	}
	return ss.running()
}

// running names what the sessions that have not ended wait for.
func (ss *sessions) running() (names []string) {
	for _, p := range ss.all() {
		switch p.leaving.Load() {
		case aNotification:
			names = append(names, "a notification of a change")
		case onUnsubscribe:
			names = append(names, "OnUnsubscribe")
		default:
			names = append(names, "the end of a session")
		}
	}
	slices.Sort(names)
	return names
}

// sample returns the measurements of all connections together.
func (ss *sessions) sample() *telemetry.ServerSample {
	ss.mu.Lock()
	sample := &telemetry.ServerSample{Total: ss.over}
	sample.Total.Settled = slices.Clone(ss.over.Settled)
	// In the same step as over: a peer that leaves now is counted here, with what it has counted until its end.
	live := slices.Collect(maps.Keys(ss.live))
	ss.mu.Unlock()
	states := make(map[string]int)
	for _, p := range live {
		one := p.conn.Control().Sample().Conn
		states[one.State]++
		sample.Total.Add(one)
	}
	for state, count := range states {
		sample.Conns = append(sample.Conns, telemetry.ConnsSample{State: state, Count: count})
	}
	slices.SortFunc(sample.Conns, func(a, b telemetry.ConnsSample) int { return cmp.Compare(a.State, b.State) })
	return sample
}

// describe returns the description of a client for its session. Most clients of a server are
// of one kind and say the same, so sessions share a description with the one before them.
func (ss *sessions) describe(client *Client) *Client {
	ss.mu.Lock()
	last := ss.last.Value()
	ss.mu.Unlock()
	// Without the mutex, because a client decides how much there is to compare.
	if last != nil && reflect.DeepEqual(last, client) {
		return last
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	// Weak, so that the description of a client that has left does not stay with the server.
	ss.last = weak.Make(client)
	return client
}

// initialize negotiates a revision (2025-11-25 basic/lifecycle). A link has at most one
// session.
func (ss *sessions) initialize(_ context.Context, c *call, params *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	s, p := ss.server, c.peer
	supported := s.options.ProtocolVersions
	version := refusal.Negotiate(params.ProtocolVersion, supported)
	switch {
	case params.ProtocolVersion == "":
		return nil, refusal.New(jsonrpc.CodeInvalidParams, "initialize: protocolVersion is missing")
	case version == "":
		return nil, refusal.New(jsonrpc.CodeInvalidRequest, "this server has no initialize, since it speaks only %s", strings.Join(supported, ", "))
	}
	result := s.tasks.offerList(c, &s.capabilities.introduction(version).result)
	session := &Session{
		peer:    p,
		client:  ss.describe(&Client{ProtocolVersion: version, Info: params.ClientInfo, Capabilities: params.Capabilities}),
		offered: &result.Capabilities,
	}
	// What follows is done only for the session that there is. No other request of the session runs yet: the Conn
	// serves what the client has sent behind initialize after the answer to it.
	if !p.session.CompareAndSwap(nil, session) {
		return nil, refusal.New(jsonrpc.CodeInvalidRequest, "the session is initialized already")
	}
	if s.options.SessionContext != nil {
		ctx, cancel := context.WithCancel(context.Background())
		session.given.Store(&sessionContext{ctx, cancel}) // which end may find before SessionContext has returned
		if p.conn.State() == conn.Closing {               // or end was here before
			cancel()
		}
		session.given.Store(&sessionContext{cmp.Or(s.options.SessionContext(ctx, session), ctx), cancel})
	}
	p.dialect.Negotiated(version, nil)
	p.wantOffered(session.offered)
	// Last, since it reads what the session is, and lets the link keep it.
	p.begun(session)
	return result, nil
}
