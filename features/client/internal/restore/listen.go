package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	overlap   = time.Second // how long a listening continues after the next one is acknowledged
	maxEnding = 4           // how many do so at once
)

// A listening is one subscriptions/listen with all of its attempts. The Conn sends it
// again whenever it ends (conn.Request.Retries).
type listening struct {
	version  uint32 // the version of the subscriptions that it asks for
	cancel   context.CancelFunc
	granting uint64 // the epoch of the newest server that has acknowledged it or one before it

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

// restoreListening asks a modern server for all reports of changes. If the program does not
// know the server yet, restoreListening waits for what it grants.
func (r *Restorer) restoreListening(ctx context.Context, c Caller, p Server) []error {
	s, reports := c.Session(), &r.reports
	if !p.Modern() || !s.WantsEvents() && len(reports.uris()) == 0 {
		return nil
	}
	reports.listen(s, false)
	if r.knownServer() == p {
		return nil
	}
	return reports.awaitGrants(ctx, c, p)
}

// Acknowledged handles the server's acknowledgement of a subscriptions/listen. Between the loss
// of the stream and the acknowledgement, changes may have gone unreported, so everything that is
// granted counts as changed. For a new server, a Restored says the same.
func (r *Restorer) Acknowledged(s Session, in *conn.Incoming) {
	granted, refused := r.reports.acknowledged(in, func() bool {
		known := r.knownServer()
		return known == nil || known.Epoch() != in.Epoch
	})
	for _, uri := range refused {
		s.Refused(uri, notGranted(uri))
	}
	if granted == nil {
		return
	}
	s.Granted(granted) // the cache forgets first
	for _, uri := range granted.ResourceSubscriptions {
		r.reports.updated(uri)
	}
}

// listen ensures that one subscriptions/listen asks for everything that the session
// wants. While a new one replaces another, the old one continues until the new one is
// acknowledged, so that no change is missed.
func (r *reports) listen(s Session, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listenLocked(s, changed)
}

// listenFor is listen for a subscriber of a resource. If the server p has refused that resource, it is asked again.
func (r *reports) listenFor(s Session, p Server, uri string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.listening
	refused := l != nil && l.granted != nil && l.epoch == p.Epoch() && !slices.Contains(l.granted.ResourceSubscriptions, uri)
	r.listenLocked(s, refused)
}

// listenLocked is listen for a caller that holds the lock.
func (r *reports) listenLocked(s Session, changed bool) {
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
	// It outlives whoever has asked for it, and ends with the session or with its replacement.
	ctx, cancel := context.WithCancel(context.Background())
	l := &listening{version: r.version, cancel: cancel}
	if old != nil {
		l.granting = old.granting
	}
	r.listening = l
	if !s.Conn().Control().Go(protocol.MethodListen, func(session context.Context) {
		defer cancel()
		defer context.AfterFunc(session, cancel)()
		r.keepListening(ctx, s, l)
	}) {
		cancel()
	}
}

func (r *reports) keepListening(ctx context.Context, s Session, l *listening) {
	_, err := s.Conn().Call(ctx, conn.Request{
		Method: protocol.MethodListen, Streaming: true, Repeatable: true, WaitForReady: true, Retries: -1,
		MessageFor: conn.MessageFunc(func(_ context.Context, id int64, epoch uint64) (conn.Message, error) {
			return r.listenMessage(s, l, id, epoch)
		}),
		OnAttempt: func(a conn.Attempt) { r.listenFailed(l, a.Err, false) },
	})
	refused := r.listenFailed(l, s.Explain(err), true)
	if errors.Is(err, conn.ErrDraining) || s.Conn().Status().State == conn.Closing {
		return // nothing was refused: a Conn that drains is ready, too
	}
	for _, uri := range refused {
		s.Refused(uri, s.Explain(err))
	}
}

// listenMessage asks the present server for everything that the session wants and the
// server offers.
func (r *reports) listenMessage(s Session, l *listening, id int64, epoch uint64) (m conn.Message, err error) {
	p := s.Present()
	if p.Epoch() != epoch { // the server was replaced just now: the Conn calls again
		return m, conn.ErrStale
	}
	var uris []string // none for a legacy server, which gets resources/subscribe instead
	if p.Modern() {
		uris = r.uris()
	}
	r.mu.Lock()
	l.id, l.epoch, l.wanted, l.granted, l.failed = id, epoch, uris, nil, nil
	r.mu.Unlock()
	params := &protocol.ListenParams{}
	// Without the resources it still asks for the lists. Those who wait for a resource get the error
	// from awaitGrant.
	lists, err := chooseReports(s, p, uris, &params.Notifications)
	switch {
	case !p.Modern(), !lists && len(uris) == 0:
		return m, errNothingToReport
	case !lists && err != nil:
		return m, err
	}
	params.AddMeta(p.Members())
	m.Version = p.Version()
	m.Params, err = protocol.Marshal(params)
	return m, err
}

// chooseReports fills a filter with what the session wants and the server offers. It reports
// whether changes of lists are in it, and fails if resources are wanted and not offered.
func chooseReports(s Session, p Server, uris []string, filter *protocol.SubscriptionFilter) (lists bool, err error) {
	if s.WantsEvents() {
		filter.ToolsListChanged = p.Has("tools.listChanged")
		filter.PromptsListChanged = p.Has("prompts.listChanged")
		filter.ResourcesListChanged = p.Has("resources.listChanged")
	}
	if len(uris) > 0 && !p.Has(subscribing) {
		err = s.Lacks(subscribing)
	} else {
		filter.ResourceSubscriptions = uris
	}
	return filter.ToolsListChanged || filter.PromptsListChanged || filter.ResourcesListChanged, err
}

// listenFailed records why an attempt has ended, or that there will be no other. It returns the resources of which the
// program has to learn that they are not reported any more.
func (r *reports) listenFailed(l *listening, err error, over bool) (refused []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changed.Announce()
	l.granted, l.over = nil, over
	if l.failed = err; err == nil {
		l.failed = errors.New("client: the server ended the subscription")
	}
	switch {
	case !over:
		return nil
	case l == r.replaced:
		r.replaced = nil
		return nil
	case l != r.listening:
		return nil
	case r.replaced != nil:
		r.fallBack(l)
		return nil
	}
	// Watchers must not wait for reports that never come: they ask again, and get the error. If this server has granted
	// nothing, the error of Subscribe or of Restored says so.
	refused = r.refused(l.wanted)
	if l.granting != l.epoch {
		return nil
	}
	return refused
}

// fallBack is called when the newest listening has failed for good and the one before goes on. Without it, nobody would notice
// the next end of that one: watchers would wait for reports that never come. The caller holds the lock.
func (r *reports) fallBack(l *listening) {
	earlier := r.replaced
	r.replaced = nil
	if errors.Is(l.failed, errNothingToReport) {
		// No acknowledgement will end the one before. It would go on until the session ends, and the server would report to
		// nobody.
		earlier.cancel()
		return
	}
	// The one before asks for what is wanted still, and nothing else does. It is the newest again, so that its next end is
	// noticed. Those who wait for what only l has asked for get the error of l.
	earlier.failed, earlier.granting = l.failed, l.granting
	r.listening = earlier
}

// acknowledged notes what a server has granted. It returns that of which changes may have gone
// unreported before, and the resources of which the program has to learn that they are not reported
// any more, unless somebody else says so. restores reports whether a Restored will say so
// later; it is called with the lock held, so that the grant cannot come after that Restored.
func (r *reports) acknowledged(in *conn.Incoming, restores func() bool) (unreported *protocol.SubscriptionFilter, refused []string) {
	number, granted := acknowledgement(in)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.listening
	if granted == nil || l == nil || l.id != number || l.epoch != in.Epoch {
		return nil, nil // the acknowledgement is malformed, or for a listening that was replaced
	}
	defer r.changed.Announce()
	reported, others := l.compare(granted.ResourceSubscriptions)
	granted.ResourceSubscriptions = reported
	l.granted = granted
	again, refused := r.accepted(reported), r.refused(others)
	first, seamless := l.granting != in.Epoch, r.retire(in.Epoch)
	l.granting = in.Epoch
	switch restored := restores(); {
	case restored && first: // Restored lists what the first grant of a server lacks
		return nil, nil
	case restored, seamless && len(again) == 0:
		return nil, refused
	case seamless:
		return &protocol.SubscriptionFilter{ResourceSubscriptions: again}, refused
	}
	return granted, refused
}

// acknowledgement returns what a server has granted, and to which request; nil if it is malformed.
func acknowledgement(in *conn.Incoming) (number int64, granted *protocol.SubscriptionFilter) {
	var params protocol.AcknowledgedParams
	var id jsonrpc.ID
	if protocol.Unmarshal(in.Params, &params) != nil || protocol.Unmarshal(params.Meta[protocol.MetaSubscriptionID], &id) != nil {
		return 0, nil
	}
	number, _ = id.Int64()
	return number, &params.Notifications
}

// retire ends the listening before the newest one, to which a server has granted something. It reports whether nothing is missed: the
// one before has reported until now, on the same server, and continues for a while. The caller holds the lock.
func (r *reports) retire(epoch uint64) (seamless bool) {
	old := r.replaced
	if old == nil {
		return false
	}
	r.replaced = nil
	if seamless = old.granted != nil && old.epoch == epoch && r.endLater(old); !seamless {
		old.cancel()
	}
	return seamless
}

// endLater ends a listening that was replaced once its server has had time to report what changed before that: a
// server may combine the changes of a while, and the two have streams of their own. It returns false if too many
// continue already. The caller holds the lock.
func (r *reports) endLater(l *listening) bool {
	if r.ending == maxEnding {
		return false
	}
	r.ending++
	time.AfterFunc(overlap, func() {
		l.cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ending--
	})
	return true
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

// awaitGrants waits until a server has acknowledged the newest listening, and returns an error
// for each subscription that it does not grant.
func (r *reports) awaitGrants(ctx context.Context, c Caller, p Server) (failures []error) {
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	if err := r.awaitGrant(ctx, c, p, ""); errors.Is(err, errNothingToReport) {
		return nil
	} else if err != nil {
		if isCurrent(p, c.Session().Conn().Status()) {
			r.unanswered()
		}
		return []error{fmt.Errorf("reports of changes: %w", err)}
	}
	for _, uri := range r.used() {
		if err := r.awaitGrant(ctx, c, p, uri); err != nil {
			failures = append(failures, fmt.Errorf("subscription to %.200q: %w", uri, err))
		}
	}
	return failures
}

// awaitGrant waits until the server p has acknowledged the newest listening. It returns
// an error if the server does not grant the resource; an empty uri means no resource.
func (r *reports) awaitGrant(ctx context.Context, c Caller, p Server, uri string) error {
	s := c.Session()
	for {
		// The status comes first, and the channel with the outcome, so that no change is missed.
		status := s.Conn().Status()
		changed, granted, failed := r.outcome(p)
		switch {
		case granted != nil && (uri == "" || slices.Contains(granted.ResourceSubscriptions, uri)):
			return nil
		case granted != nil && failed != nil: // the request that asked for this has failed, and an earlier one goes on
			return failed
		case granted != nil && !p.Has(subscribing):
			return s.Lacks(subscribing)
		case granted != nil:
			return notGranted(uri)
		case !isCurrent(p, status):
			return conn.ErrStale
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

// refuses reports whether the newest listening has asked the server p for a resource in vain. A server that has granted it may be asked
// again at any time, and a Subscribe that has waited for the first answer only must not keep what the second one refuses: the
// program is told of refusals of what Subscribe has kept already. The caller holds the lock.
func (r *reports) refuses(p Server, uri string) bool {
	l := r.listening
	return l != nil && l.epoch == p.Epoch() && slices.Contains(l.wanted, uri) && (l.over || l.granted != nil && !slices.Contains(l.granted.ResourceSubscriptions, uri))
}

func notGranted(uri string) error {
	return fmt.Errorf("client: the server does not grant reports of %.200q", uri)
}

// outcome returns what a server has granted to the newest listening, or why it has ended; neither
// while that is open. The channel is closed when this changes.
func (r *reports) outcome(p Server) (changed <-chan struct{}, granted *protocol.SubscriptionFilter, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.listening
	granted, failed = l.granted, l.failed
	if l.epoch != p.Epoch() { // the listening was not sent to this server yet
		granted = nil
		if !l.over {
			failed = nil
		}
	}
	return r.changed.Next(), granted, failed
}
