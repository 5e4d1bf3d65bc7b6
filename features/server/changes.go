package server

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// changeInterval is the time between two messages about the same change.
const changeInterval = 10 * time.Millisecond

// storeInterval is the delay before a task is loaded again after its store has failed.
const storeInterval = time.Second

// A change is something that a client can be notified of: a changed list, resource or
// task.
type change struct {
	list list   // the list; zero for a resource or a task
	uri  string // the URI of the resource; otherwise empty
	task string // the id of the task; otherwise empty
}

// A list is one of the lists that can change, or a set of several.
type list uint8

const (
	toolList list = 1 << iota
	promptList
	resourceList // includes the list of templates
)

var (
	toolsChanged     = change{list: toolList}
	promptsChanged   = change{list: promptList}
	resourcesChanged = change{list: resourceList}
)

func updated(uri string) change { return change{uri: uri} }

// method returns the notification's method.
func (c change) method() string {
	switch {
	case c.list == toolList:
		return protocol.NotificationToolsListChanged
	case c.list == promptList:
		return protocol.NotificationPromptsListChanged
	case c.list == resourceList:
		return protocol.NotificationResourcesListChanged
	case c.task != "":
		return protocol.NotificationTask
	default:
		return protocol.NotificationResourcesUpdated
	}
}

// A changeSet is a set of changes. If it contains only lists, it needs no map.
type changeSet struct {
	lists list
	uris  map[string]struct{}
	tasks map[string]struct{}
}

// of returns the map for a resource or a task, and its key in that map.
func (s *changeSet) of(c change) (in *map[string]struct{}, key string) {
	if c.task != "" {
		return &s.tasks, c.task
	}
	return &s.uris, c.uri
}

func (s *changeSet) add(c change) {
	if c.list != 0 {
		s.lists |= c.list
		return
	}
	in, key := s.of(c)
	if *in == nil {
		*in = make(map[string]struct{})
	}
	(*in)[key] = struct{}{}
}

func (s *changeSet) addSet(other *changeSet) {
	s.lists |= other.lists
	for uri := range other.uris {
		s.add(updated(uri))
	}
	for id := range other.tasks {
		s.add(change{task: id})
	}
}

func (s *changeSet) has(c change) bool {
	if c.list != 0 {
		return s.lists&c.list != 0
	}
	in, key := s.of(c)
	_, ok := (*in)[key]
	return ok
}

func (s *changeSet) len() int { return bits.OnesCount8(uint8(s.lists)) + len(s.uris) + len(s.tasks) }

// all returns the changes in order, with lists first.
func (s *changeSet) all() []change {
	changes := make([]change, 0, s.len())
	for _, c := range []change{toolsChanged, promptsChanged, resourcesChanged} {
		if s.has(c) {
			changes = append(changes, c)
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(s.uris)) {
		changes = append(changes, updated(uri))
	}
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		changes = append(changes, change{task: id})
	}
	return changes
}

// params returns the notification's params.
func (c change) params(meta protocol.Meta) any {
	switch {
	case c.uri != "":
		return &protocol.ResourceUpdatedParams{NotificationParams: protocol.NotificationParams{Meta: meta}, URI: c.uri}
	case meta != nil:
		return &protocol.NotificationParams{Meta: meta}
	default:
		return nil
	}
}

// listeners contains all receivers of changes. Tasks change often and have few
// receivers, so these are found by the task's id.
type listeners struct {
	mu     sync.Mutex
	all    map[*changes]map[string]struct{} // all receivers, with the tasks that each of them watches
	ofTask map[string]map[*changes]struct{}
}

func (l *listeners) add(c *changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*changes]map[string]struct{})
	}
	l.all[c] = nil
}

// watch adds a task to the changes that a receiver gets.
func (l *listeners) watch(c *changes, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine, listens := l.all[c]
	if !listens {
		return
	}
	if mine == nil {
		mine = make(map[string]struct{})
		l.all[c] = mine
	}
	if l.ofTask == nil {
		l.ofTask = make(map[string]map[*changes]struct{})
	}
	if l.ofTask[id] == nil {
		l.ofTask[id] = make(map[*changes]struct{})
	}
	mine[id], l.ofTask[id][c] = struct{}{}, struct{}{}
}

func (l *listeners) unwatch(c *changes, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all[c], id)
	l.forget(c, id)
}

// forget removes a task again. The caller holds the mutex.
func (l *listeners) forget(c *changes, id string) {
	delete(l.ofTask[id], c)
	if len(l.ofTask[id]) == 0 {
		delete(l.ofTask, id)
	}
}

func (l *listeners) remove(c *changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.all[c] {
		l.forget(c, id)
	}
	delete(l.all, c)
}

// who returns the receivers that may want a change. The caller holds the mutex.
func (l *listeners) who(c change) iter.Seq[*changes] {
	if c.task != "" {
		return maps.Keys(l.ofTask[c.task])
	}
	return maps.Keys(l.all)
}

func (l *listeners) changed(c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for listener := range l.who(c) {
		listener.add(c)
	}
}

// everybody returns all receivers, in no order.
func (l *listeners) everybody() []*changes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.all))
}

// ResourceUpdated tells all subscribers of a resource that it has changed: the clients of this
// server, and with Options.Changes those of all other nodes, too. It never blocks. Updates
// within 10 ms are sent as one.
func (s *Server) ResourceUpdated(uri string) { s.subscriptions.changed(updated(uri)) }

// changes collects the changes for one client, and sends them changeInterval after the
// first one. If the link or the stream is busy, it sends them later, as one message.
type changes struct {
	send func([]change) (unsent []change, wait time.Duration) // sends changes; wait is the time until the unsent ones are tried again

	mu      sync.Mutex
	wanted  changeSet
	pending changeSet
	begun   bool                     // the client is ready for notifications
	ended   bool                     // nothing is sent any more
	firing  bool                     // changes are being sent
	holds   int32                    // calls of OnUnsubscribe that the end of the peer waits for
	claimed map[string]chan struct{} // resources whose subscription a request is changing
	room    *subscribedRoom          // nil before the first subscription of a session
	timer   *time.Timer              // nil: nothing is scheduled
	fired   chan struct{}            // closed when they were sent; nil: nobody waits for that
	sending sync.WaitGroup
	held    sync.WaitGroup
}

// offer enables notifications for the lists whose changes the client was offered.
func (c *changes) offer(o *protocol.ServerCapabilities) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Tools != nil && o.Tools.ListChanged {
		c.wanted.add(toolsChanged)
	}
	if o.Prompts != nil && o.Prompts.ListChanged {
		c.wanted.add(promptsChanged)
	}
	if o.Resources != nil && o.Resources.ListChanged {
		c.wanted.add(resourcesChanged)
	}
}

// claim waits until no other request changes the subscription of a resource, for as long as a request
// may wait. The next one waits for release.
func (c *changes) claim(ctx context.Context, in *conn.Incoming, uri string) (release func(), err error) {
	if due := in.StartBy(); !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, due, errLate)
		defer cancel()
	}
	for {
		c.mu.Lock()
		other := c.claimed[uri]
		if other == nil {
			defer c.mu.Unlock()
			c.claimNow(uri)
			return func() { c.unclaim(uri) }, nil
		}
		c.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimNow does what claim does, for a resource that nothing else has claimed. The caller holds
// the mutex.
func (c *changes) claimNow(uri string) {
	if c.claimed == nil {
		c.claimed = make(map[string]chan struct{})
	}
	c.claimed[uri] = make(chan struct{})
}

func (c *changes) unclaim(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.claimed[uri])
	delete(c.claimed, uri)
}

// begin permits notifications. For a legacy client it is called after "initialized", so
// that nothing overtakes the answer to initialize (2025-11-25 basic/lifecycle).
func (c *changes) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
	c.schedule(changeInterval)
}

// add adds a change, if the client wants it.
func (c *changes) add(changed ...change) { c.addAfter(changeInterval, changed) }

func (c *changes) addAfter(wait time.Duration, changed []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range changed {
		if c.wanted.has(one) {
			c.pending.add(one)
		}
	}
	c.schedule(wait)
}

// addAll adds everything that the client wants, because any of it may have changed.
func (c *changes) addAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending.addSet(&c.wanted)
	c.schedule(changeInterval)
}

// schedule sets the timer. The caller holds the mutex.
func (c *changes) schedule(wait time.Duration) {
	if c.begun && !c.ended && c.timer == nil && c.pending.len() > 0 {
		c.sending.Add(1)
		c.timer = time.AfterFunc(wait, c.fire)
	}
}

func (c *changes) fire() {
	defer c.sending.Done()
	c.mu.Lock()
	pending := c.pending.all()
	c.pending, c.firing = changeSet{}, true
	c.mu.Unlock()
	unsent, wait := c.send(pending)
	c.mu.Lock()
	c.timer, c.firing = nil, false
	if c.fired != nil {
		close(c.fired)
		c.fired = nil
	}
	c.mu.Unlock()
	c.addAfter(wait, unsent)
}

// awaitFired waits until what is being sent now was sent.
func (c *changes) awaitFired(ctx context.Context) error {
	c.mu.Lock()
	if c.firing && c.fired == nil {
		c.fired = make(chan struct{})
	}
	fired := c.fired
	c.mu.Unlock()
	if fired == nil {
		return nil
	}
	return waitFor(ctx, fired, 0)
}

// stop stops all sending. It reports whether end has nothing to wait for or to return.
func (c *changes) stop() (quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil && c.timer.Stop() {
		c.sending.Done()
		c.timer = nil
	}
	return c.timer == nil && len(c.wanted.uris) == 0 && c.holds == 0
}

// hold makes the end of the peer wait for release. It reports false if the client has left already.
func (c *changes) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.holds++
	c.held.Add(1)
	return true
}

func (c *changes) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds--
	c.held.Done()
}

// end stops all sending, waits for a running one, and returns the resources that the
// client was subscribed to.
func (c *changes) end() (uris []string) {
	c.mu.Lock()
	c.ended = true
	if len(c.wanted.uris) > 0 {
		uris = slices.Sorted(maps.Keys(c.wanted.uris))
	}
	c.wanted = changeSet{}
	if c.timer != nil && c.timer.Stop() {
		c.sending.Done()
	}
	c.mu.Unlock()
	c.sending.Wait()
	return uris
}

// sendChanges notifies a legacy client. If there is no stream to the client, the change
// is lost, and the client sees it when it lists again.
func (p *peer) sendChanges(all []change) (unsent []change, wait time.Duration) {
	wait = changeInterval
	for _, one := range all {
		method, params := one.method(), one.params(nil)
		if one.task != "" {
			status, err := p.statusOf(context.Background(), one.task)
			switch {
			case errors.Is(err, ErrNotFound):
				continue
			case err != nil:
				unsent, wait = append(unsent, one), storeInterval
				continue
			}
			method, params = protocol.NotificationTaskStatus, status
		}
		err := p.guarded(method, func() error { return p.tell(context.Background(), method, params) })
		if errors.Is(err, transport.ErrBusy) {
			unsent = append(unsent, one) // the Conn gives up a link that stays busy
		}
	}
	return unsent, wait
}
