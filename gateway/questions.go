package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/gateway/internal/tasks"
	"github.com/bowline-mcp/bowline/protocol"
)

// elicit brings a question of a server to the user of a client.
func (g *Gateway) elicit(ctx context.Context, from *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	if call, err := callOf(callsFor(ctx, p)); err == nil {
		g.opened.add(openedPage{from.Name(), p.ElicitationID}, server.RequestFrom(call).Session)
	}
	return answerOf[*protocol.ElicitResult](g, ctx, from, p)
}

// sample lets a server use the model of a client.
func (g *Gateway) sample(ctx context.Context, from *client.Session, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	return answerOf[*protocol.CreateMessageResult](g, ctx, from, p)
}

// rootsTime is for a client to say its roots outside of a call. A host that does not listen must not keep a server waiting.
const rootsTime = 5 * time.Second

// roots returns the roots of the client whose call a server serves. Only legacy servers ask so, and keep them for all that share a connection: there one gets those
// of a client only if no other one is there, and else those of the file.
func (g *Gateway) roots(ctx context.Context, session *client.Session) ([]protocol.Root, error) {
	g.rootsAsked.Store(true)
	calls, only := ofClients(client.Asking(ctx)), g.onlyClient()
	isShared := session.Name() == g.serverOf(session)
	if len(calls) > 0 && (!isShared || isOfOne(calls, only)) {
		result, err := answerOf[*protocol.ListRootsResult](g, ctx, session, &protocol.ListRootsParams{})
		if err != nil {
			return nil, err
		}
		return result.Roots, nil
	}
	if keeps := g.keptFor(session, only); keeps != nil {
		ctx, cancel := context.WithTimeout(ctx, rootsTime)
		defer cancel()
		if roots, err := keeps.Roots(ctx); err == nil {
			return roots, nil
		}
	}
	return g.rootsOfFile(g.serverOf(session)), nil
}

// keptFor returns the session of the client whose roots a server may have outside of calls: that whose connection it is, or on a shared one the only
// session. Nil: there is no such client.
func (g *Gateway) keptFor(from *client.Session, sessions []*server.Session) *server.Session {
	if u := g.upstream(g.serverOf(from)); u != nil && u.Name != from.Name() {
		if c := u.connection(from.Name()); c != nil {
			of, _ := c.place.Owner.Session.(*server.Session) // nil: it is that of a user
			return of
		}
		return nil
	}
	if len(sessions) != 1 {
		return nil
	}
	return sessions[0]
}

func (g *Gateway) rootsOfFile(name string) []protocol.Root {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u := g.servers[name]; u != nil && u.roots != nil {
		return u.roots
	}
	return g.allRoots
}

// onlyClient returns the sessions of clients, two at most: who has none is known by its calls alone.
func (g *Gateway) onlyClient() (sessions []*server.Session) {
	for session := range g.server.Sessions() {
		if sessions = append(sessions, session); len(sessions) == 2 {
			break
		}
	}
	return sessions
}

// isOfOne reports whether all calls are of one client, and no other one has a session.
func isOfOne(calls []context.Context, sessions []*server.Session) bool {
	if _, err := callOf(calls); err != nil {
		return false
	}
	for _, session := range sessions {
		if ownerOf(calls[0]) != any(session) {
			return false
		}
	}
	return true
}

// serverOf returns the name of the server of a session, which may be that of an owner.
func (g *Gateway) serverOf(session *client.Session) string {
	name := session.Name()
	if i := strings.LastIndex(name, copySign); i >= 0 && g.upstream(name) == nil {
		return name[:i]
	}
	return name
}

// mayAsk reports whether a call may become one that asks its client. A client without capabilities cannot be asked, and a modern server returns
// its questions: such a call needs no place among those that wait. In doubt it may.
func (g *Gateway) mayAsk(ctx context.Context, method string, params json.RawMessage) bool {
	if can := server.RequestFrom(ctx).Client.Capabilities; can.Elicitation == nil && can.Sampling == nil && can.Roots == nil {
		return false
	}
	about, _ := protocol.MethodInfo(method)
	now, name := g.sight.now(ctx), about.NameOf(params)
	item, found := now.Find(catalogue.Tools, name)
	switch method {
	case protocol.MethodGetPrompt:
		item, found = now.Find(catalogue.Prompts, name)
	case protocol.MethodReadResource:
		item, found = now.Resource(name)
	}
	if u := g.upstream(item.Server); found && u != nil && u.perUser != nil {
		return true // whether the user must log in is known only when the server has said so
	}
	session, running := g.set.Session(item.Server)
	return !found || !running || session.Status().State != conn.Ready || !protocol.IsModern(session.Server().ProtocolVersion)
}

// answerOf asks the client to whose call a question belongs. On pipes that is one of several calls of the client: if it ends first, the question was
// that of another one.
func answerOf[A protocol.InputResponse](g *Gateway, ctx context.Context, from *client.Session, q protocol.InputRequest) (answer A, err error) {
	call, err := g.callFor(ctx, q)
	if err != nil {
		g.waiting.refuse(whyNobody(err))
		return answer, err
	}
	owner := ownerOf(call)
	inFlight := func() []context.Context {
		return slices.DeleteFunc(callsFor(ctx, q), func(call context.Context) bool { return call.Err() != nil || ownerOf(call) != owner })
	}
	for reports := reporting(ctx, q); ; {
		call, done := g.waiting.choose(call, inFlight)
		answer, err = answerIn[A](g, ctx, call, from, q, reports)
		if done(); err == nil || call.Err() == nil || ctx.Err() != nil || len(inFlight()) == 0 {
			return answer, err
		}
	}
}

// answerIn asks the client in the name of a call.
func answerIn[A protocol.InputResponse](g *Gateway, ctx, call context.Context, from *client.Session, q protocol.InputRequest, reports func(context.Context) context.Context) (answer A, err error) {
	asking, cancel := context.WithCancelCause(call)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	defer g.noteQuestion(call, g.serverOf(from), q.Method(), cancel)()
	key := rand.Text()
	answers, err := server.Ask(reports(asking), protocol.InputRequests{key: namingTask(call, q)})
	var unsupported *server.UnsupportedError
	switch {
	case errors.Is(err, server.ErrNotAsking): // see mayAsk
		g.waiting.refuse(admin.RefusedUnable)
		return answer, refuse("the client of this call cannot be asked")
	case errors.As(err, &unsupported):
		g.waiting.refuse(admin.RefusedUnable)
		return answer, refuse("the client of this call cannot be asked: %v", err)
	case err != nil:
		return answer, err
	}
	answer, ok := answers[key].(A)
	if !ok {
		return answer, fmt.Errorf("gateway: the answer to %s is a %T", q.Method(), answers[key])
	}
	return answer, nil
}

// logIn lets the user of a call log in at a server that wants it, and waits for that. Nil: he has done so. If his token of the gateway could not be
// exchanged, there is no page for that.
func (g *Gateway) logIn(ctx context.Context, u *upstream, c *connection, away *awayError) *awayError {
	if u.perUser.Settings.Exchange != nil {
		away.noUser, away.Reason = true, cmp.Or(away.Reason, away.why)
		return away
	}
	done := g.noteQuestion(ctx, u.Name, protocol.MethodElicit, nil)
	page, err := g.logins.logIn(ctx, u.perUser, c.place.Owner.User, away.scopes)
	if done(); err != nil {
		away.noUser, away.Login, away.Reason, away.NextAttempt = true, page, err.Error(), time.Time{}
		return away
	}
	c.login.note()
	g.wakeLoggedIn(ctx, u, c)
	return nil
}

// isLoggedIn reports whether a connection that waits for a login tries again, since its user has one: he may have logged in at another node, which wakes its own
// connections only.
func (g *Gateway) isLoggedIn(ctx context.Context, u *upstream, c *connection) bool {
	session, running := g.lifecycle.session(u, c)
	if !running || !needsPerson(session.Status()) {
		return false
	}
	if has, err := g.logins.has(ctx, u.perUser, c.place.Owner.User); !has || err != nil {
		return false
	}
	c.login.note()
	g.wakeLoggedIn(ctx, u, c)
	return true
}

// endIfLoggedOut ends a connection whose user was logged out by somebody else, such as another gateway of the cluster: what this one still has in memory would be used until
// the server refuses it. While the store cannot be read, nothing is known.
func (g *Gateway) endIfLoggedOut(ctx context.Context, u *upstream, c *connection) {
	if u.perUser.Settings.Exchange != nil || !c.login.mayLook() {
		return
	}
	switch has, err := g.logins.has(ctx, u.perUser, c.place.Owner.User); {
	case err != nil:
	case has:
		c.login.seen.Store(true)
	case c.login.seen.Load():
		g.lifecycle.logOut(u, c)
	}
}

// wakeLoggedIn makes a connection try again that has waited for a login, and waits until it does.
func (g *Gateway) wakeLoggedIn(ctx context.Context, u *upstream, c *connection) {
	session, running := g.lifecycle.session(u, c)
	if !running {
		return
	}
	if status := session.Status(); needsPerson(status) {
		session.Wake()
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
}

// wakeFor makes the connections of a person with a server try again, and returns when they do: the user's next call must not be told to log in once more.
func (g *Gateway) wakeFor(ctx context.Context, name, user string) {
	u := g.upstream(name)
	if u == nil {
		return
	}
	for _, c := range u.ofOwners() {
		if session, running := g.lifecycle.session(u, c); running && g.logins.person(c.place.Owner.User) == user {
			wakeNow(ctx, session)
		}
	}
}

// wakeNow ends the backoff of a session.
func wakeNow(ctx context.Context, session *client.Session) {
	before := session.Status()
	if session.Wake(); before.State != conn.Backoff {
		return
	}
	select {
	case <-before.Changed():
	case <-ctx.Done():
	}
}

// noteQuestion notes that a client is being asked, until done is called. End, if there is one, ends the question.
func (g *Gateway) noteQuestion(call context.Context, from, method string, end context.CancelCauseFunc) (done func()) {
	request := server.RequestFrom(call)
	question := admin.Question{Server: from, Method: method, Program: programOf(request.Client)}
	if u := g.upstream(from); u != nil {
		question.Target = u.about(request)
	}
	answered := g.waiting.ask(&asked{Question: question, owner: ownerOf(call), end: end})
	g.notifier.notify()
	return func() {
		answered()
		g.notifier.notify()
	}
}

// ofClients leaves out the gateway's own requests for lists, because of which no server asks.
func ofClients(calls []context.Context) []context.Context {
	return slices.DeleteFunc(calls, func(call context.Context) bool { return server.RequestFrom(call) == nil })
}

// callsFor returns the calls of clients to which a question may belong. One that names a task belongs to who waits for the result of that.
func callsFor(ctx context.Context, q protocol.InputRequest) []context.Context {
	calls := ofClients(client.Asking(ctx))
	var related protocol.RelatedTask
	raw := protocol.MetaOf(q)[protocol.MetaRelatedTask]
	if raw == nil || protocol.Unmarshal(raw, &related) != nil {
		return calls
	}
	return slices.DeleteFunc(calls, func(call context.Context) bool {
		t, _ := call.Value(taskKey{}).(*tasks.Task)
		return t == nil || t.Own != related.TaskID
	})
}

// namingTask returns a question, which names its task as clients do from then on.
func namingTask(call context.Context, q protocol.InputRequest) protocol.InputRequest {
	t, waits := call.Value(taskKey{}).(*tasks.Task)
	named, ok := q.(interface {
		SetMeta(string, json.RawMessage)
	})
	if !waits || !ok {
		return q
	}
	if raw, err := protocol.Marshal(protocol.RelatedTask{TaskID: t.ID}); err == nil {
		named.SetMeta(protocol.MetaRelatedTask, raw)
	}
	return q
}

// callFor returns a call of the client to whose call a question belongs. If only a client that has probably left makes that unknown, the question ends that keeps its call
// waiting. This one is refused nevertheless: it may be of the same call, and must not be the next client's because that one has ended meanwhile.
func (g *Gateway) callFor(ctx context.Context, q protocol.InputRequest) (context.Context, error) {
	calls := callsFor(ctx, q)
	call, err := callOf(calls)
	if err == nil {
		return call, nil
	}
	here := slices.DeleteFunc(slices.Clone(calls), func(call context.Context) bool { return g.waiting.isLeft(ownerOf(call)) })
	if _, unknown := callOf(here); unknown == nil {
		for _, call := range calls {
			g.waiting.giveUp(ownerOf(call))
		}
	}
	return nil, err
}

// whyNobody returns which of admin.Refusals an error of callOf is.
func whyNobody(err error) string {
	if err == errSeveral { // errors.Is compares the codes of such errors, which all have
		return admin.RefusedSeveral
	}
	return admin.RefusedNoCall
}

var errSeveral = refuse("several clients have calls in flight, and the connection does not say for which one this is")

// callOf returns the call in whose name a client is asked. The calls to which a question may belong must all be of one client: another
// user must not see it, still less answer it.
func callOf(calls []context.Context) (context.Context, error) {
	var of any
	for _, call := range calls {
		owner := ownerOf(call)
		if of != nil && of != owner {
			return nil, errSeveral
		}
		of = owner
	}
	if len(calls) == 0 {
		return nil, refuse("no client has a call in flight whose user could be asked")
	}
	return calls[0], nil
}

// ownerOf returns whose call it is, as a value to compare. A client without session and login is known
// by nothing: each of its calls counts as that of another.
func ownerOf(call context.Context) any {
	type user string
	r := server.RequestFrom(call)
	switch {
	case r.Session != nil:
		return r.Session
	case r.Origin.Identity != "":
		return user(r.Origin.Identity)
	default:
		return single(r.CallID())
	}
}

// levelTimeout is how long a call waits until a server knows its log level.
const levelTimeout = 2 * time.Second

// onLog brings a log message of a server to the client whose call it is about. If it may be about those of several clients, each of them gets
// it, and one outside of calls goes to all sessions that want it and may see something of the server; but if these are of several users, nobody does: it may quote
// what one of them has sent.
func (g *Gateway) onLog(ctx context.Context, from *client.Session, m *client.LogMessage) {
	g.logOf(ctx, new(connection), from, m)
}

// logOf does that for one connection. What comes over that of an owner is for the owner only.
func (g *Gateway) logOf(ctx context.Context, c *connection, from *client.Session, m *client.LogMessage) {
	params := &protocol.LogMessageParams{Level: m.Level, Logger: m.Logger, Data: m.Data}
	calls := ofClients(client.Asking(ctx))
	if len(calls) == 0 {
		name := g.serverOf(from)
		all, same := g.levels.everybody(func(who policy.Who, s *server.Session) bool {
			return c.serves(who.Identity, s) && g.sight.shows(who, name)
		})
		if !same {
			g.levels.unclaimed.Add(1)
		}
		for _, s := range all {
			s.Log(ctx, params)
		}
		return
	}
	owners := make(map[any]context.Context)
	for _, call := range calls {
		if identityOf(call) != identityOf(calls[0]) {
			g.levels.unclaimed.Add(1)
			return
		}
		owners[ownerOf(call)] = call
	}
	for _, call := range owners {
		server.Log(call, params)
	}
}

func identityOf(call context.Context) string { return server.RequestFrom(call).Origin.Identity }

// onLogLevel makes the servers that are ready log as a client wants. The others learn of it before the next call.
func (g *Gateway) onLogLevel(ctx context.Context, s *server.Session) {
	g.levels.choose(s, whoIn(ctx))
	var asking sync.WaitGroup
	for _, u := range g.upstreams() {
		for _, c := range u.connections() {
			session, running := g.lifecycle.session(u, c)
			if running && session.Status().State == conn.Ready && c.serves(identityOf(ctx), s) {
				asking.Go(func() { g.level(ctx, c, session, "") })
			}
		}
	}
	asking.Wait()
}

// level makes a legacy server log as legacy clients want, and as the client of a call wants. It learns of a lower level only when one of the legacy
// clients has chosen another: two clients in turn must not make each call wait. A modern server is told with each call.
func (g *Gateway) level(ctx context.Context, c *connection, session *client.Session, ofCall protocol.LogLevel) {
	if protocol.IsModern(session.Server().ProtocolVersion) {
		return
	}
	wanted, changes := g.levels.now()
	c.mu.Lock()
	level := c.level.next(session.Conn(), wanted, changes, ofCall)
	c.mu.Unlock()
	if level == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, levelTimeout)
	defer cancel()
	if err := session.SetLogLevel(ctx, level); err != nil && client.NotExecuted(err) && !errors.As(err, new(*client.CapabilityError)) {
		return // the next call tries again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.level = sentLevel{session.Conn(), level, changes}
}

// tellTime is how long servers may take to hear of other roots.
const tellTime = 5 * time.Second

// rootsMayDiffer tells servers that have asked for roots to ask again: a client has come, has left, or has other ones.
func (g *Gateway) rootsMayDiffer() {
	if g.rootsAsked.Load() {
		g.announcer.add(ofRoots)
	}
}
