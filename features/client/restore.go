package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// restoreSteps ask a new server again for what the session asked of the one before
// (ADR-0030). They run in this order, once per server. Each returns what it could not
// ask. A feature that asks something lasting of a server adds a step.
var restoreSteps = []func(context.Context, *Session, *peer) []error{
	restoreLogLevel,
	restoreSubscriptions,
	restoreListening,
}

// A restorer knows what a session has asked of its server that must outlive the
// server.
type restorer struct {
	mu        sync.Mutex
	level     protocol.LogLevel
	resources map[string]*subscription // by URI
	watching  bool                     // the goroutine that restores runs
	first     bool                     // it has seen no server yet, and the program neither
	known     *peer                    // the newest that everything was asked of
	restoring *peer                    // one of which it is being asked

	version   int        // of what is to be listened to; grows with each change
	listening *listening // the newest subscriptions/listen; nil: none yet
	replaced  *listening // the one before, until the newest is acknowledged
	changed   chan struct{}
}

// A subscription says who wants the updates of one resource.
type subscription struct {
	explicit bool                   // Session.Subscribe
	watchers map[chan struct{}]bool // each has room for one token, which means: look again
}

// begin restores from now on, if the client wants something of every server: from
// first on, a server that the program knows of, or none.
func (r *restorer) begin(s *session, first *peer) {
	if s.events.wanted() || r.logLevel() != "" {
		r.watch(s, first, true)
	}
}

// watch starts the goroutine that restores. Nothing is missing on the server that is
// there unless fresh is set.
func (r *restorer) watch(s *session, first *peer, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watching {
		return
	}
	r.watching, r.known, r.first = true, first, fresh
	if first == nil {
		s.events.begin()
	}
	s.conn.Go("restore", func(ctx context.Context) { r.run(ctx, s) })
}

// run restores what each new server must be asked for, until the session is over.
func (r *restorer) run(ctx context.Context, s *session) {
	view := s.view()
	if first := r.known; first != nil && r.first {
		if failures := r.ask(ctx, view, first); len(failures) > 0 && first.isCurrent(s.conn.Status()) {
			s.events.pushRestored(failures)
		}
	}
	for ctx.Err() == nil {
		status, p := s.conn.Status(), s.peer.Load()
		switch {
		case p != nil && p != r.known && p.isCurrent(status):
			if r.known != nil { // its loss may have passed too quickly to be seen
				s.events.pushLost(r.known.incarnation.Epoch(), status.LastFailure, time.Time{})
			}
			failures := r.ask(ctx, view, p)
			if p.isCurrent(s.conn.Status()) {
				s.events.pushRestored(failures)
				r.updatedAll()
			}
			continue
		case r.known != nil && !r.known.isCurrent(status) && status.State != conn.Closing:
			s.events.pushLost(r.known.incarnation.Epoch(), status.Reason, status.NextAttempt)
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
}

// isCurrent reports whether the server is there still.
func (p *peer) isCurrent(status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == p.incarnation.Epoch()
}

// ask runs the steps for one server.
func (r *restorer) ask(ctx context.Context, s *Session, p *peer) (failures []error) {
	r.mu.Lock()
	r.restoring = p
	if r.first && r.known == p {
		r.restoring = nil // the program has looked at nothing yet that could be outdated
	}
	r.mu.Unlock()
	bound := s.With(CallOptions{Epoch: p.incarnation.Epoch()})
	for _, step := range restoreSteps {
		failures = append(failures, step(ctx, bound, p)...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.restoring, r.first = p, nil, false
	return failures
}

// sawEpoch tells of the loss of the known server before anything of a newer one.
func (r *restorer) sawEpoch(s *session, epoch uint64) {
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	if known != nil && known.incarnation.Epoch() < epoch {
		s.events.pushLost(known.incarnation.Epoch(), s.conn.Status().LastFailure, time.Time{})
	}
}

func (r *restorer) logLevel() protocol.LogLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.level
}

func restoreLogLevel(ctx context.Context, s *Session, p *peer) []error {
	level := s.restore.logLevel()
	if level == "" || p.offers(&setLogLevel.Method) != nil { // a modern request carries the level itself
		return nil
	}
	if _, err := setLogLevel.call(ctx, s, &protocol.SetLogLevelParams{Level: level}); err != nil {
		return []error{fmt.Errorf("log level %s: %w", level, err)}
	}
	return nil
}

func restoreSubscriptions(ctx context.Context, s *Session, p *peer) (failures []error) {
	if p.modern() {
		return nil
	}
	for _, uri := range s.restore.uris() {
		if _, err := subscribe.call(ctx, s, &protocol.SubscribeParams{URI: uri}); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}

func restoreListening(ctx context.Context, s *Session, p *peer) []error {
	r := &s.restore
	if !p.modern() || !s.events.wanted() && len(r.uris()) == 0 {
		return nil
	}
	r.mu.Lock()
	r.listen(s.session, false)
	awaits := r.restoring == p
	r.mu.Unlock()
	if !awaits {
		return nil
	}
	if err := r.awaitGrant(ctx, s, p, ""); err != nil && !errors.Is(err, errNothingToReport) {
		return []error{fmt.Errorf("reports of changes: %w", err)}
	}
	return nil
}

// uris returns the resources that are subscribed to, in order.
func (r *restorer) uris() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.resources))
}

// A listening is one subscriptions/listen with all of its attempts. The Conn makes it
// again whenever it ends (conn.Request.Retries).
type listening struct {
	version int // of what it asks for
	cancel  context.CancelFunc

	// Of the present attempt:
	id      int64
	epoch   uint64
	granted *protocol.SubscriptionFilter // nil until acknowledged
	failed  error                        // why it ended
	over    bool                         // there is no other
}

// errNothingToReport ends a subscriptions/listen that would ask for nothing.
var errNothingToReport = errors.New("client: the server reports no changes that the session wants")

// listen sees that one subscriptions/listen asks for all that is wanted. While it
// replaces another, the other goes on until the new one is acknowledged, so that
// no change is missed. The lock is held.
func (r *restorer) listen(s *session, changed bool) {
	if changed {
		r.version++
	}
	old := r.listening
	switch {
	case old != nil && !old.over && old.version == r.version:
		return
	case old == nil || old.over:
	case old.granted != nil && r.replaced == nil:
		r.replaced = old
	default:
		old.cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{version: r.version, cancel: cancel}
	r.listening = l
	if !s.conn.Go(protocol.MethodListen, func(session context.Context) {
		defer cancel()
		defer context.AfterFunc(session, cancel)()
		r.keepListening(ctx, s, l)
	}) {
		cancel()
	}
}

func (r *restorer) keepListening(ctx context.Context, s *session, l *listening) {
	_, err := s.conn.Call(ctx, conn.Request{
		Method: protocol.MethodListen, Streaming: true, Repeatable: true, WaitForReady: true, Retries: -1,
		MessageFor: func(id int64, epoch uint64) (conn.Message, error) { return r.listenMessage(s, l, id, epoch) },
		OnAttempt:  func(a conn.Attempt) { r.listenFailed(l, a.Err, false) },
	})
	r.listenFailed(l, explain(err), true)
}

// listenMessage asks the server that is there for all that is wanted and that it
// offers.
func (r *restorer) listenMessage(s *session, l *listening, id int64, epoch uint64) (m conn.Message, err error) {
	p := s.peer.Load()
	if p.incarnation.Epoch() != epoch {
		return m, conn.ErrStale
	}
	uris := r.uris()
	r.mu.Lock()
	l.id, l.epoch, l.granted, l.failed = id, epoch, nil, nil
	r.mu.Unlock()
	params := &protocol.ListenParams{}
	filter, offered := &params.Notifications, &p.server.Capabilities
	if s.events.wanted() {
		filter.ToolsListChanged = offered.Has("tools.listChanged")
		filter.PromptsListChanged = offered.Has("prompts.listChanged")
		filter.ResourcesListChanged = offered.Has("resources.listChanged")
	}
	if len(uris) > 0 && !offered.Has("resources.subscribe") {
		err = &CapabilityError{Capability: "resources.subscribe"}
	} else {
		filter.ResourceSubscriptions = uris
	}
	lists := filter.ToolsListChanged || filter.PromptsListChanged || filter.ResourcesListChanged
	switch {
	case !p.modern(), !lists && len(uris) == 0:
		return m, errNothingToReport
	case !lists && err != nil:
		return m, err
	}
	params.AddMeta(p.members)
	m.Version = p.server.ProtocolVersion
	m.Params, err = protocol.Marshal(params)
	return m, err
}

// listenFailed notes why an attempt has ended, or all of it is over.
func (r *restorer) listenFailed(l *listening, err error, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.granted, l.over = nil, over
	if l.failed = err; err == nil {
		l.failed = errors.New("client: the server ended the subscription")
	}
	r.signal()
}

// signal wakes those who wait for a change of the listening. The lock is held.
func (r *restorer) signal() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// acknowledged takes what a server grants. Between a loss of the stream and the
// acknowledgement something may have changed that nobody reported, so everything
// that is granted counts as changed. A Restored says the same of a new server.
func (r *restorer) acknowledged(s *session, in *conn.Incoming) {
	var params protocol.AcknowledgedParams
	var id jsonrpc.ID
	if protocol.Unmarshal(in.Params, &params) != nil || protocol.Unmarshal(params.Meta[protocol.MetaSubscriptionID], &id) != nil {
		return
	}
	number, _ := id.Int64()
	granted := params.Notifications
	r.mu.Lock()
	l := r.listening
	if l == nil || l.id != number || l.epoch != in.Epoch {
		r.mu.Unlock()
		return // of one that was replaced
	}
	l.granted = &granted
	seamless := false
	if old := r.replaced; old != nil {
		seamless = old.granted != nil && old.epoch == in.Epoch
		old.cancel()
		r.replaced = nil
	}
	seamless = seamless || r.restoring != nil && r.restoring.incarnation.Epoch() == in.Epoch
	r.signal()
	r.mu.Unlock()
	if seamless {
		return
	}
	for _, list := range []struct {
		granted bool
		event   Event
	}{
		{granted.ToolsListChanged, &ToolsChanged{}},
		{granted.PromptsListChanged, &PromptsChanged{}},
		{granted.ResourcesListChanged, &ResourcesChanged{}},
	} {
		if list.granted {
			s.events.push(list.event, false)
		}
	}
	for _, uri := range granted.ResourceSubscriptions {
		r.updated(uri)
		s.events.push(&ResourceUpdated{URI: uri}, false)
	}
}

// awaitGrant waits until the server p has acknowledged the newest listening, and
// reports an error if it does not grant a resource. An empty uri asks for none.
func (r *restorer) awaitGrant(ctx context.Context, s *Session, p *peer, uri string) error {
	for {
		status := s.conn.Status()
		r.mu.Lock()
		l := r.listening
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed, granted, failed := r.changed, l.granted, l.failed
		if l.epoch != p.incarnation.Epoch() { // it was not put to this server yet
			granted = nil
			if !l.over {
				failed = nil
			}
		}
		r.mu.Unlock()
		switch {
		case granted != nil && (uri == "" || slices.Contains(granted.ResourceSubscriptions, uri)):
			return nil
		case granted != nil:
			return fmt.Errorf("client: the server does not grant reports of %.200q", uri)
		case !p.isCurrent(status):
			return ErrStale
		case failed != nil:
			return failed
		}
		select {
		case <-changed:
		case <-status.Changed():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// updated wakes the watchers of a resource and of those that contain it.
func (r *restorer) updated(uri string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for watched, sub := range r.resources {
		if strings.HasPrefix(uri, watched) {
			sub.wake()
		}
	}
}

func (r *restorer) updatedAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sub := range r.resources {
		sub.wake()
	}
}

func (s *subscription) wake() {
	for watcher := range s.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it will look already
		}
	}
}

// SetLogLevel asks this server, and every later server of the session, for log
// messages of a level and above. They come as *LogMessage events. In the modern
// revisions every request carries the level, and the server logs only while it works
// on one.
func (s *Session) SetLogLevel(ctx context.Context, level protocol.LogLevel) error {
	if level.Severity() < 0 {
		return refusedUnsent(protocol.MethodSetLogLevel, fmt.Errorf("client: unknown log level %.100q", string(level)))
	}
	if err := s.await(ctx, protocol.MethodSetLogLevel); err != nil {
		return err
	}
	r, p := &s.restore, s.peer.Load()
	if p == nil || s.conn.State() != conn.Ready {
		return s.unavailable(protocol.MethodSetLogLevel)
	}
	if !p.server.Capabilities.Has("logging") {
		return refusedUnsent(protocol.MethodSetLogLevel, &CapabilityError{Capability: "logging"})
	}
	r.mu.Lock()
	before := r.level
	r.level = level
	r.mu.Unlock()
	r.watch(s.session, p, false)
	if p.modern() {
		return nil
	}
	_, err := setLogLevel.call(ctx, s.boundTo(p), &protocol.SetLogLevelParams{Level: level})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.level = before
	}
	return err
}

// Subscribe asks the server to report changes of a resource: they come as
// *ResourceUpdated events. The session asks every later server too, until Unsubscribe.
// It is one method for both eras: resources/subscribe in the legacy revisions,
// subscriptions/listen with all that the session wants in the modern ones.
func (s *Session) Subscribe(ctx context.Context, params *protocol.SubscribeParams) error {
	uri := copyOf(params).URI
	return s.subscribeTo(ctx, uri, func(sub *subscription) { sub.explicit = true })
}

// subscribeTo adds to who wants the updates of a resource, and asks the server if
// nobody wanted them before. If the server refuses, all is as before.
func (s *Session) subscribeTo(ctx context.Context, uri string, add func(*subscription)) error {
	if err := s.await(ctx, protocol.MethodSubscribe); err != nil {
		return err
	}
	r, p := &s.restore, s.peer.Load()
	if p == nil || s.conn.State() != conn.Ready {
		return s.unavailable(protocol.MethodSubscribe)
	}
	if !p.server.Capabilities.Has("resources.subscribe") {
		return refusedUnsent(protocol.MethodSubscribe, &CapabilityError{Capability: "resources.subscribe"})
	}
	r.watch(s.session, p, false)
	r.mu.Lock()
	sub, known := r.resources[uri]
	if !known {
		if r.resources == nil {
			r.resources = make(map[string]*subscription)
		}
		sub = new(subscription)
		r.resources[uri] = sub
	}
	if add(sub); !known && p.modern() {
		r.listen(s.session, true)
	}
	r.mu.Unlock()
	if known {
		return nil
	}
	err := s.askFor(ctx, p, uri)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.resources, uri); p.modern() {
			r.listen(s.session, true)
		}
	}
	return err
}

// askFor asks one server to report the changes of a resource.
func (s *Session) askFor(ctx context.Context, p *peer, uri string) error {
	if !p.modern() {
		_, err := subscribe.call(ctx, s.boundTo(p), &protocol.SubscribeParams{URI: uri})
		return err
	}
	if limit := s.timeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrTimedOut)
		defer cancel()
	}
	err := s.restore.awaitGrant(ctx, s, p, uri)
	var failed *conn.CallError
	if err == nil || errors.As(err, &failed) {
		return err
	}
	cause := conn.Answered
	switch {
	case errors.Is(err, ErrTimedOut):
		cause = conn.TimedOut
	case ctx.Err() != nil:
		cause = waitEnded(ctx)
	case errors.Is(err, ErrStale):
		cause = conn.LinkLost
	}
	return explain(&conn.CallError{Method: protocol.MethodListen, Cause: cause, Delivery: conn.Unknown, Err: err})
}

// timeout returns how long a request may take; negative: as long as its context.
func (s *Session) timeout() time.Duration {
	switch own := s.client.options.Conn.RequestTimeout; {
	case s.options.Timeout != 0:
		return s.options.Timeout
	case own > 0:
		return own
	default:
		return 30 * time.Second
	}
}

// Unsubscribe ends what Subscribe began. A Watch of the resource goes on. If there is
// no server at present, the next one is not asked for reports, and Unsubscribe
// returns nil.
func (s *Session) Unsubscribe(ctx context.Context, params *protocol.UnsubscribeParams) error {
	uri := copyOf(params).URI
	return s.unsubscribeFrom(ctx, uri, func(sub *subscription) { sub.explicit = false })
}

// unsubscribeFrom takes away from who wants the updates of a resource, and tells the
// server if nobody is left.
func (s *Session) unsubscribeFrom(ctx context.Context, uri string, remove func(*subscription)) error {
	r, p := &s.restore, s.peer.Load()
	r.mu.Lock()
	sub, known := r.resources[uri]
	last := false
	if known {
		remove(sub)
		last = !sub.explicit && len(sub.watchers) == 0
	}
	if last {
		delete(r.resources, uri)
		if p != nil && p.modern() {
			r.listen(s.session, true)
		}
	}
	r.mu.Unlock()
	if !last || p == nil || p.modern() || !p.isCurrent(s.conn.Status()) {
		return nil
	}
	_, err := unsubscribe.call(ctx, s.boundTo(p), &protocol.UnsubscribeParams{URI: uri})
	return err
}
