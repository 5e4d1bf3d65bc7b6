package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A listening is one subscriptions/listen with all of its attempts. The Conn sends it
// again whenever it ends (conn.Request.Retries).
type listening struct {
	version int // the version of the subscriptions that it asks for
	cancel  context.CancelFunc

	// Of the present attempt:
	id      int64
	epoch   uint64
	wanted  []string                     // the resources that the session wanted when it was made, sorted
	granted *protocol.SubscriptionFilter // what the server has granted; nil before the acknowledgement
	failed  error                        // why it ended
	over    bool                         // no other attempt follows
}

// errNothingToReport ends a subscriptions/listen that has nothing to ask for.
var errNothingToReport = errors.New("client: the server reports no changes that the session wants")

// listen ensures that one subscriptions/listen asks for everything that the session
// wants. While a new one replaces another, the old one continues until the new one is
// acknowledged, so that no change is missed. The caller holds the lock.
func (r *restorer) listen(s *session, changed bool) {
	if changed {
		r.version++
	}
	old := r.listening
	switch {
	case old == nil:
	case !old.over && old.version == r.version:
		return
	case old.granted != nil: // so it has replaced the one before
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
		MessageFor: conn.MessageFunc(func(_ context.Context, id int64, epoch uint64) (conn.Message, error) {
			return r.listenMessage(s, l, id, epoch)
		}),
		OnAttempt: func(a conn.Attempt) { r.listenFailed(l, a.Err, false) },
	})
	r.listenFailed(l, explain(err), true)
}

// listenMessage asks the present server for everything that the session wants and the
// server offers.
func (r *restorer) listenMessage(s *session, l *listening, id int64, epoch uint64) (m conn.Message, err error) {
	p := s.peer.Load()
	if p.incarnation.Epoch() != epoch {
		return m, conn.ErrStale
	}
	var uris []string // none for a legacy server, which gets resources/subscribe instead
	if p.modern() {
		uris = r.uris()
	}
	r.mu.Lock()
	l.id, l.epoch, l.wanted, l.granted, l.failed = id, epoch, uris, nil, nil
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

// listenFailed records why an attempt has ended, or that there will be no other.
func (r *restorer) listenFailed(l *listening, err error, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.granted, l.over = nil, over
	if l.failed = err; err == nil {
		l.failed = errors.New("client: the server ended the subscription")
	}
	earlier := r.replaced != nil && r.replaced.granted != nil // it continues to report
	if over && r.listening == l && !earlier {
		r.refused(l.wanted)
	}
	r.signal()
}

// signal wakes callers that wait for a change of the listening. The caller holds the
// lock.
func (r *restorer) signal() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// acknowledged handles the server's acknowledgement. Between the loss of the stream and
// the acknowledgement, changes may have gone unreported, so everything that is granted
// counts as changed. For a new server, a Restored says the same.
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
		return // the acknowledgement is for a listening that was replaced
	}
	reported, refused := l.compare(granted.ResourceSubscriptions)
	granted.ResourceSubscriptions = reported
	l.granted = &granted
	r.refused(refused)
	seamless := false
	if old := r.replaced; old != nil {
		seamless = old.granted != nil && old.epoch == in.Epoch
		old.cancel()
		r.replaced = nil
	}
	seamless = seamless || r.known == nil || r.known.incarnation.Epoch() != in.Epoch // the Restored event says that everything may have changed
	r.signal()
	r.mu.Unlock()
	if seamless {
		return
	}
	s.cache.granted(&granted)
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

// compare divides the wanted resources into those that are granted and those that are not.
// A server may name any others. The caller holds the lock.
func (l *listening) compare(granted []string) (reported, refused []string) {
	granted = slices.Sorted(slices.Values(granted))
	for _, uri := range l.wanted {
		if _, found := slices.BinarySearch(granted, uri); found {
			reported = append(reported, uri)
		} else {
			refused = append(refused, uri)
		}
	}
	return reported, refused
}

// awaitGrant waits until the server p has acknowledged the newest listening. It returns
// an error if the server does not grant the resource; an empty uri means no resource.
func (r *restorer) awaitGrant(ctx context.Context, s *Session, p *peer, uri string) error {
	for {
		status := s.conn.Status()
		r.mu.Lock()
		l := r.listening
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed, granted, failed := r.changed, l.granted, l.failed
		if l.epoch != p.incarnation.Epoch() { // the listening was not sent to this server yet
			granted = nil
			if !l.over {
				failed = nil
			}
		}
		r.mu.Unlock()
		switch {
		case granted != nil && (uri == "" || slices.Contains(granted.ResourceSubscriptions, uri)):
			return nil
		case granted != nil && !p.server.Capabilities.Has("resources.subscribe"):
			return &CapabilityError{Capability: "resources.subscribe"}
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

func restoreListening(ctx context.Context, s *Session, p *peer) (failures []error) {
	r := &s.restore
	if !p.modern() || !s.events.wanted() && len(r.uris()) == 0 {
		return nil
	}
	r.mu.Lock()
	r.listen(s.session, false)
	awaits := r.known != p // the Restored for p waits for the acknowledgement
	r.mu.Unlock()
	if !awaits {
		return nil
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	if err := r.awaitGrant(ctx, s, p, ""); errors.Is(err, errNothingToReport) {
		return nil
	} else if err != nil {
		return []error{fmt.Errorf("reports of changes: %w", err)}
	}
	for _, uri := range r.used() {
		if err := r.awaitGrant(ctx, s, p, uri); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}
