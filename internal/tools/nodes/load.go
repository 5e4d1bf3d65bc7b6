package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// LoadOptions say what a Load does.
type LoadOptions struct {
	URL      string
	Sessions int           // how many sessions there are
	Busy     int           // how many of them have a call under way from the start; the others are idle
	First    string        // the sessions of the node with this name are busy before others
	Wait     time.Duration // how long a call takes
	Users    []User        // the sessions are theirs in turn, at gateways; none: those of nobody, at servers

	Between func(http.RoundTripper) http.RoundTripper // changes what clients send and get; see Lies. Nil: nothing does
}

// A Load uses sessions while nodes fail. Nothing is repeated: each failure is counted.
type Load struct {
	options LoadOptions
	pool    *http.Transport
	ctx     context.Context
	cancel  context.CancelFunc
	calling sync.WaitGroup

	mu       sync.Mutex
	sessions []*loadSession
	since    time.Time // what was before does not count as an outage
	calls    map[string]*loadCall
	failed   []string // texts of failures, the first hundred
	foreign  []string // answers to other calls
	mark     time.Time
	waiting  map[*loadSession]bool // those without a success of a call that began after mark
	settled  chan struct{}         // closed when nobody is waiting
}

// A loadSession is one session. Its fields are guarded by Load.mu, once it calls.
type loadSession struct {
	number  int
	client  *client.Client
	session *client.Session
	id      *noted
	user    User
	calls   int
	calling bool          // it has a goroutine that calls
	wanted  time.Time     // when the first call began since the last success; zero: no call is under way
	outage  time.Duration // the longest one
}

// A loadCall is one call. It is pending until its end.
type loadCall struct {
	forbidden bool // by a persona of its user
	ended     bool
	toolSaid  string // the error of the tool, if that has failed
	code      int64  // of the error of the server; 0: none
	outcome   ledger.Outcome
}

// isLimited reports whether the call was refused since its user had as many under way as the persona allows.
func (c *loadCall) isLimited() bool {
	return strings.Contains(c.toolSaid, "requests of one client may be under way")
}

// isDenied reports whether the call was refused as one of what does not exist.
func (c *loadCall) isDenied() bool { return c.ended && c.code == jsonrpc.CodeInvalidParams }

const (
	pauseIdle    = 100 * time.Millisecond // between the calls of a session that was idle before
	pauseFailed  = 50 * time.Millisecond  // after a failure
	callTimeout  = time.Minute            // above the default timeout of a call, which so decides
	keptFailures = 100

	forbiddenEvery = 5 // calls of a session; odd, since these are of two servers in turn
)

// StartLoad opens the sessions, in the revision that has sessions, and begins to call. It returns
// when each busy session has had an answer.
func StartLoad(ctx context.Context, o LoadOptions) (*Load, error) {
	l := &Load{options: o, calls: map[string]*loadCall{}, pool: &http.Transport{MaxIdleConnsPerHost: 2 * o.Sessions}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range o.Sessions {
		s := l.newSession(i)
		s.client = client.New(protocol.Implementation{Name: "load", Version: "1"}, client.Options{ProtocolVersion: protocol.LatestLegacy})
		var err error
		if s.session, err = s.client.Connect(ctx, &streamable.Client{URL: o.URL, HTTP: &http.Client{Transport: s.id}}); err != nil {
			return nil, errors.Join(err, l.close(ctx))
		}
		l.sessions = append(l.sessions, s)
	}
	order := slices.Clone(l.sessions)
	slices.SortStableFunc(order, func(a, b *loadSession) int { return l.rank(a) - l.rank(b) })
	for _, s := range order[:o.Busy] {
		l.call(s, 0)
	}
	if err := l.Settle(ctx); err != nil {
		return nil, errors.Join(err, l.close(ctx))
	}
	return l, nil
}

// newSession returns the session with a number. It is not connected.
func (l *Load) newSession(number int) *loadSession {
	s := &loadSession{number: number, id: &noted{next: l.pool}}
	if l.options.Between != nil {
		s.id.next = l.options.Between(l.pool)
	}
	if users := l.options.Users; len(users) > 0 {
		s.user = users[number%len(users)]
		s.id.token = s.user.Token
	}
	return s
}

func (l *Load) rank(s *loadSession) int {
	if streamable.NodeOf(s.id.session()) == l.options.First {
		return 0
	}
	return 1
}

// call has a session call until the Load ends, with a pause after each call. What a persona forbids is tried in between.
func (l *Load) call(s *loadSession, between time.Duration) {
	s.calling = true
	l.calling.Go(func() {
		for l.ctx.Err() == nil {
			rest := between
			if l.once(s) != nil {
				rest = pauseFailed
			}
			_ = wait.Sleep(l.ctx, rest) // then the Load ends
			if s.user.Name != "" && !s.user.MayErase && s.calls%forbiddenEvery == 0 {
				l.forbidden(s)
			}
		}
	})
}

// once makes one call, which also the end of the Load does not cancel.
func (l *Load) once(s *loadSession) error {
	began := time.Now()
	call, id := l.begin(s)
	l.mu.Lock()
	if s.wanted.IsZero() {
		s.wanted = began
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), callTimeout)
	defer cancel()
	answer, err := l.ask(ctx, s, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check(id, answer, err)
	l.end(call, err)
	if err != nil {
		if len(l.failed) < keptFailures {
			l.failed = append(l.failed, fmt.Sprintf("%s call %s, after %v: %v", time.Now().Format("04:05.000"), id, time.Since(began).Round(time.Millisecond), err))
		}
		return err
	}
	l.answered(s, began)
	return nil
}

// begin notes a call of a session, and returns its id.
func (l *Load) begin(s *loadSession) (call *loadCall, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.calls++
	call, id = &loadCall{}, callID(s.number, s.calls)
	l.calls[id] = call
	return call, id
}

// check notes an answer that is that of another call. The caller holds l.mu.
func (l *Load) check(id, answer string, err error) {
	if err == nil && answer != id {
		l.foreign = append(l.foreign, fmt.Sprintf("call %s has the answer %.80q", id, answer))
	}
}

// ask makes a call: of a server, or in turn of the two behind a gateway.
func (l *Load) ask(ctx context.Context, s *loadSession, id string) (string, error) {
	of := marks.Of(id, l.options.Wait)
	if s.user.Name == "" {
		return client.Call[string](ctx, s.session, marks.Tool, of)
	}
	tool := child.Tool
	if s.user.MayErase && s.calls%forbiddenEvery == 0 {
		tool = child.Erase
	}
	return client.Call[string](ctx, s.session, s.at(tool), child.Arguments{Arguments: of, User: s.user.Name})
}

// at returns the name of a tool of the server whose turn it is.
func (s *loadSession) at(tool string) string {
	if s.calls%2 == 0 {
		return child.One + "__" + tool
	}
	return child.Own + "__" + tool
}

// forbidden makes a call that a persona of its user forbids, and reports whether it was refused. A session that gets no answer but a refusal has none.
func (l *Load) forbidden(s *loadSession) bool {
	call, id := l.begin(s)
	call.forbidden = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), callTimeout)
	defer cancel()
	arguments, err := json.Marshal(child.Arguments{Arguments: marks.Of(id, 0), User: s.user.Name})
	if err == nil {
		meta := protocol.Meta{protocol.MetaTraceparent: []byte(`"` + traceOf(s.number, s.calls) + `"`)}
		_, err = s.session.CallTool(ctx, &protocol.CallToolParams{RequestParams: protocol.RequestParams{Meta: meta}, Name: s.at(child.Erase), Arguments: arguments})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(call, err)
	return call.isDenied()
}

// end notes how a call has ended. The caller holds l.mu.
func (l *Load) end(call *loadCall, err error) {
	var other error
	call.ended = true
	if call.outcome, other = ledger.OutcomeOf(err); other != nil {
		call.outcome, call.toolSaid = ledger.Answered(), other.Error()
	}
	var refused *jsonrpc.Error
	if errors.As(err, &refused) {
		call.code = refused.Code
	}
}

// answered notes that a session has had an answer. The caller holds l.mu.
func (l *Load) answered(s *loadSession, began time.Time) {
	from := s.wanted
	if from.Before(l.since) {
		from = l.since
	}
	s.outage, s.wanted = max(s.outage, time.Since(from)-l.options.Wait), time.Time{}
	if l.waiting[s] && began.After(l.mark) {
		if delete(l.waiting, s); len(l.waiting) == 0 {
			close(l.settled)
		}
	}
}

// Begin forgets the outages until now. It is called before something fails.
func (l *Load) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Now()
	for _, s := range l.sessions {
		s.outage = 0
	}
}

// All makes the sessions call that were idle.
func (l *Load) All() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if !s.calling {
			l.call(s, pauseIdle)
		}
	}
}

// Settle waits until each session that calls has had an answer to a call that has begun after now.
func (l *Load) Settle(ctx context.Context) error {
	settled := make(chan struct{})
	l.mu.Lock()
	l.mark, l.waiting, l.settled = time.Now(), map[*loadSession]bool{}, settled
	for _, s := range l.sessions {
		if s.calling {
			l.waiting[s] = true
		}
	}
	if len(l.waiting) == 0 {
		close(settled)
	}
	l.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := []error{fmt.Errorf("%d of %d sessions have no answer: %w", len(l.waiting), len(l.sessions), context.Cause(ctx))}
	for s := range l.waiting {
		status := s.session.Status()
		errs = append(errs, fmt.Errorf("session %d of %s: %s, epoch %d: %w", s.number, streamable.NodeOf(s.id.session()), status.State, status.Epoch, status.Reason))
	}
	return errors.Join(errs...)
}

// Stop ends the calls, closes the sessions, and compares what the callers know with what was
// executed. See Books.Wrong for what does not agree.
func (l *Load) Stop(ctx context.Context, path string) (Books, error) {
	l.cancel()
	l.calling.Wait()
	executed, err := marks.Read(path)
	books := Books{Sessions: len(l.sessions), Failed: l.failed, Wrong: l.foreign, calls: maps.Clone(l.calls)}
	books.count(executed)
	for _, s := range l.sessions {
		switch expired, begun := s.id.counts(); {
		case len(expired) > 0:
			books.Lost = append(books.Lost, Lost{streamable.NodeOf(s.id.first()), expired})
		case begun > 1 || s.session.Status().Epoch > 1:
			books.GivenUp = append(books.GivenUp, fmt.Sprintf("session %d: %v", s.number, s.session.Status().LastFailure))
		}
		books.outages = append(books.outages, s.outage)
		books.Wrong = append(books.Wrong, wrongIn(s.number, s.session.Conn().Stats(), s.session.Status().Epoch)...)
	}
	slices.Sort(books.outages)
	return books, errors.Join(err, l.close(ctx))
}

// wrongIn says what the connection of a session has noticed itself. An answer that comes when its call has ended is no lie if the client had given up, which may have been on a ping;
// where each call was answered, over one link and at the first attempt, it is the second one.
func wrongIn(session int, stats conn.Stats, epoch uint64) (wrong []string) {
	if stats.Calls != stats.Ended() {
		wrong = append(wrong, fmt.Sprintf("session %d has made %d calls, and %d have ended", session, stats.Calls, stats.Ended()))
	}
	undisturbed := epoch <= 1 && stats.Retries == 0 && stats.Settled[conn.Answered][conn.Sent] == stats.Calls
	if more := stats.Late; undisturbed && more > 0 {
		wrong = append(wrong, fmt.Sprintf("session %d got %d answers to calls that were answered already", session, more))
	}
	if stats.Unknown > 0 {
		wrong = append(wrong, fmt.Sprintf("session %d got %d answers to calls that it had not made", session, stats.Unknown))
	}
	return wrong
}

func (l *Load) close(ctx context.Context) error {
	l.cancel()
	l.calling.Wait()
	defer l.pool.CloseIdleConnections()
	errs := make([]error, len(l.sessions))
	var closing sync.WaitGroup
	for i, s := range l.sessions {
		closing.Go(func() { errs[i] = s.client.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// A noted notes the ids of the session of a client, and how often none was known any more.
type noted struct {
	next  http.RoundTripper
	token string // of the user; "": none

	mu      sync.Mutex
	ids     []string
	expired []string // the methods of these requests
}

func (n *noted) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+n.token)
	}
	response, err := n.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := response.Header.Get(sessionHeader); id != "" && !slices.Contains(n.ids, id) {
		n.ids = append(n.ids, id)
	}
	if response.StatusCode == http.StatusNotFound && r.Header.Get(sessionHeader) != "" {
		n.expired = append(n.expired, r.Method+time.Now().Format(" at 04:05.000"))
	}
	return response, nil
}

const sessionHeader = "Mcp-Session-Id"

// counts returns which requests were answered that there is no such session, and how many sessions
// the client has begun.
func (n *noted) counts() (expired []string, begun int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.expired), len(n.ids)
}

// session returns the newest id, and first the oldest.
func (n *noted) session() string { return n.at(func(ids []string) string { return ids[len(ids)-1] }) }

func (n *noted) first() string { return n.at(func(ids []string) string { return ids[0] }) }

func (n *noted) at(which func([]string) string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ids) == 0 {
		return ""
	}
	return which(n.ids)
}
