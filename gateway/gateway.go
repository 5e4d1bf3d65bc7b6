package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/gateway/internal/search"
	"github.com/bowline-mcp/bowline/gateway/internal/shared"
	"github.com/bowline-mcp/bowline/gateway/internal/tasks"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// Options configure a Gateway. The zero value of each field means its default.
type Options struct {
	// Info is how the gateway introduces itself, to clients and to servers. Default: bowline, without a version.
	Info protocol.Implementation

	// Client are the options of the session with each server. The gateway replaces Elicit, ElicitURL, Sample, SampleTools, Roots,
	// OnLog and OnEvent. Calls have no timeout of their own unless Client.Calls or the file sets one: the client decides how
	// long it waits.
	Client client.Options

	// Server are the options of the side that clients see. The gateway replaces Route, RouteAsks, OnSubscribe, OnUnsubscribe,
	// OnLogLevel and OnRootsChanged, and adds to Capabilities. A call has at most eight rounds of questions unless Asking.MaxRounds is set.
	Server server.Options

	// Login returns the login for a server over HTTP; see sessions.Options.
	Login func(*mcpjson.Server) (sessions.Login, error)

	// UserLogins lets users log in, each for himself, at the servers whose entries say so. Nil: such an entry is a mistake.
	UserLogins *UserLogins

	// Each is called before a server is started; see sessions.Options. To report the process id and the standard error of a
	// child, the gateway has set its Started and Stderr.
	Each func(*mcpjson.Server, *client.Options)

	// Catalogue is the path of the file that keeps what the servers offer, so that lists are known before the servers have started. It
	// is written with mode 0600, in a folder of the user's own. Empty: nothing is kept.
	Catalogue string

	// MaxName is the length of the longest name of a tool or prompt, in bytes: 32 to 128. Zero: 48, since some clients accept no
	// more than 64 with a prefix of their own. Negative: what servers call their tools and prompts is not changed, however long it is and whatever characters it
	// has, for clients that accept it. The file takes precedence.
	MaxName int

	// Roots are what a server gets that asks for roots outside of the calls of a client, unless the file says what.
	Roots []protocol.Root

	// Share says who uses one connection with a server whose entry does not say it: one of mcpjson.Shares. Empty: all.
	Share string

	// Exclusive returns a transport to a server of which all nodes of a cluster together have one, which own starts at this node: Node.Upstream of package cluster makes one.
	// It is called for servers whose entry says "instances": "one". Nil: this gateway is the only one.
	Exclusive func(name string, own transport.Transport) transport.Transport

	// Shared is what all gateways of a cluster share of the servers: to what tools are pinned, and what a server offers that a gateway cannot reach; Node.Values of package
	// cluster is one. Nil: this gateway is the only one.
	Shared Shared

	// Enrich says what is added to the result of a tool that its server has answered: what else is known of it, such as whose the data are. It is asked after everything that may
	// refuse a call, and before the record of Audit. It cannot change what the server has said. If it fails, panics, takes longer than EnrichTime, adds more than 64 KiB, or 64 calls of it are running
	// already, the result is as the server has sent it; the report counts that, and the log says why, once a minute. Its context ends with its time and with the call. The result of a task is not enriched. Nil: nothing
	// is added.
	Enrich func(context.Context, ToolCall) (Addition, error)

	// EnrichTime is how long a result waits for Enrich. Zero: 500 ms.
	EnrichTime time.Duration

	// Audit gets a record of each request of a client, before it is answered, and of what people do to the gateway; (*audit.Trail).Write is one. It may be called
	// by several goroutines at once, and whatever it takes delays the answer. Nil: there are none.
	Audit func(context.Context, audit.Record)

	// Digest returns what a record has in place of arguments, such as audit.Digest with a key. Nil: nothing.
	Digest func(arguments []byte) string

	// IsOwn reports whether clients reach this gateway at a URL. A server of a file that has one of these is a mistake. Nil: it is not known.
	IsOwn func(url string) bool
}

// A Gateway serves the servers of a file to any number of clients. It is safe for concurrent use. End it with Close.
type Gateway struct {
	options       Options
	id            string // among gateways
	server        *server.Server
	set           *sessions.Set
	known         *catalogue.Catalogue
	shared        *shared.Shared
	sight         sight
	announcer     announcer
	lifecycle     lifecycle
	notifier      *notifier
	notOffered    atomic.Uint64 // requests for tools
	statesRefused atomic.Uint64 // requests whose requestState was refused
	rootsAsked    atomic.Bool   // by a server, which may have to hear when they are others
	asked         limits.Clients
	search        search.Endpoint
	show          atomic.Pointer[showing]
	enricher      *enricher
	tasks         *tasks.Registry
	waiting       questions
	unsaved       atomic.Pointer[string] // why the catalogue is not kept; nil: it is

	applying  sync.Mutex                // held by Apply
	warmUntil atomic.Pointer[time.Time] // never nil

	mu       sync.Mutex
	file     string               // its path
	applied  time.Time            // when
	refusal  error                // why a later one was not applied; nil: there is none
	tried    error                // what Apply has failed with last, of which there is a record
	order    []string             // of the file
	servers  map[string]*upstream // those that are offered
	mistakes map[string]error     // of the others, or why a server is as an earlier file said
	allRoots []protocol.Root      // what a server gets that asks for roots outside of a call, and has none of its own

	levels levels // of log messages
	logins desk
	naming naming
	opened opened

	members sync.Map // by *server.Session

	subscriptions subscriptions
}

// New returns a Gateway without servers. If the file of the catalogue cannot be read, the Gateway begins without, and
// the log says why; with "pins": "block" Apply fails then.
func New(o Options) *Gateway {
	o.Info.Name = cmp.Or(o.Info.Name, "bowline")
	g := &Gateway{options: o, id: rand.Text(), known: catalogue.New(), tasks: tasks.New(o.Server.Node), notifier: newNotifier(), servers: make(map[string]*upstream)}
	if o.Catalogue != "" {
		known, err := catalogue.Open(o.Catalogue)
		if err != nil {
			g.log().Warn("bowline: what servers offered is not known until they have started", "error", err)
		}
		g.known = known
	}
	g.warmUntil.Store(new(time.Time))
	g.enricher = newEnricher(o.Enrich, o.EnrichTime, g.log())
	g.sight.known, g.announcer.announce, g.logins.given, g.logins.wake, g.logins.ended = g.known, g.announce, o.UserLogins, g.wakeFor, loginsTo(o.Audit)
	g.search.Call, g.search.Snapshot, g.search.Visible, g.search.Missing = g.callNamed, g.searched, g.searchable, g.missing
	g.server = server.New(o.Info, g.serverOptions())
	g.set = sessions.New(o.Info, sessions.Options{Client: g.clientOptions(), Each: g.each, EachCopy: g.eachCopy, Login: o.Login, LoginCopy: g.loginCopy, OnDemand: g.lifecycle.isLater})
	g.lifecycle.set, g.lifecycle.log, g.lifecycle.servers, g.lifecycle.kept, g.lifecycle.known, g.lifecycle.sweep = g.set, g.log(), g.upstreams, g.isKept, g.isKnown, g.tasks.Sweep
	g.lifecycle.begin()
	g.beginToShare()
	return g
}

func (g *Gateway) log() *slog.Logger {
	if log := g.options.Client.Conn.Log; log != nil {
		return log
	}
	return slog.Default()
}

func (g *Gateway) serverOptions() server.Options {
	o := g.options.Server
	o.RouteAsks = g.mayAsk
	o.Route, o.OnSubscribe, o.OnUnsubscribe, o.OnLogLevel = g.routes(), g.subscribe, g.unsubscribe, g.onLogLevel
	o.SessionContext = g.sessionContext(o.SessionContext)
	o.Middleware = append([]server.Middleware{g.noteUsers, g.countRefusedStates}, o.Middleware...)
	if g.options.Audit != nil {
		o.Audit = auditing(o.Audit, g.options.Audit, g.naming.of)
	}
	o.OnRootsChanged = func(context.Context, *server.Session) { g.rootsMayDiffer() }
	o.Asking.MaxRounds = cmp.Or(o.Asking.MaxRounds, 8)
	list := &protocol.ListCapability{ListChanged: true}
	o.Capabilities.Tools, o.Capabilities.Prompts = list, list
	o.Capabilities.Resources = &protocol.ResourcesCapability{ListChanged: true, Subscribe: true}
	o.Capabilities.Completions = &protocol.Capability{}
	o.Capabilities.Experimental = maps.Clone(o.Capabilities.Experimental)
	if o.Capabilities.Experimental == nil {
		o.Capabilities.Experimental = make(map[string]json.RawMessage)
	}
	o.Capabilities.Experimental[capability] = json.RawMessage("{}")
	return o
}

// sessionContext notices when the session of a client begins and ends.
func (g *Gateway) sessionContext(given func(context.Context, *server.Session) context.Context) func(context.Context, *server.Session) context.Context {
	return func(ctx context.Context, s *server.Session) context.Context {
		g.levels.add(ctx, s)
		g.notifier.notify()
		g.rootsMayDiffer()
		context.AfterFunc(ctx, g.rootsMayDiffer)
		of := &member{session: s, ctx: ctx}
		g.members.Store(s, of)
		context.AfterFunc(ctx, func() {
			g.members.Delete(s)
			g.endTasksOf(s)
			g.lifecycle.left(s)
			g.notifier.notify()
		})
		if given != nil {
			ctx = given(ctx, s)
		}
		return context.WithValue(ctx, memberKey{}, of)
	}
}

// noteUsers is a middleware that notes whose the sessions of clients are.
func (g *Gateway) noteUsers(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		if of, _ := ctx.Value(memberKey{}).(*member); of != nil && !r.Outgoing {
			if known := of.user.Load(); known == nil || known.identity != r.Origin.Identity {
				of.user.Store(&user{r.Origin.Identity, g.naming.of(r.Origin)})
			}
		}
		return next(ctx, r)
	}
}

// countRefusedStates is a middleware that counts requests whose requestState was refused here.
func (g *Gateway) countRefusedStates(next server.Handler) server.Handler {
	return func(ctx context.Context, r *server.Request) (any, error) {
		result, err := next(ctx, r)
		if !r.Outgoing && stateRefused(err) != "" {
			g.statesRefused.Add(1)
		}
		return result, err
	}
}

func (g *Gateway) clientOptions() client.Options {
	o := g.options.Client
	o.Calls.Timeout = cmp.Or(o.Calls.Timeout, -1)
	o.Elicit, o.ElicitURL = g.elicit, g.elicit
	o.Sample, o.SampleTools, o.Roots = g.sample, true, g.roots
	o.Tasks = true // for the clients that can have tasks
	o.OnLog, o.Calls.AwaitLogs = g.onLog, true
	o.CacheBytes = -1 // the catalogue has the lists
	return o
}

// each gives a session its events. What they are about is the server that it was started for, whatever the file says later.
func (g *Gateway) each(s *mcpjson.Server, o *client.Options) {
	of := catalogue.Server{Name: s.Name, Identity: catalogue.IdentityOf(s.Transport)}
	o.OnEvent = func(ctx context.Context, session *client.Session, e client.Event) { g.onEvent(ctx, of, session, e) }
	if u := g.upstream(s.Name); u != nil {
		u.use.Begin()
		g.lifecycle.Check()
		u.observe(s.Transport, true)
		defer u.hook(o)
		if u.single && g.options.Exclusive != nil {
			s.Transport = g.options.Exclusive(s.Name, s.Transport)
		}
	}
	if g.options.Each != nil {
		g.options.Each(s, o)
	}
}

// eachCopy gives a session of an owner its events. It hears nothing of others, and nobody but the owner hears of it.
func (g *Gateway) eachCopy(s *mcpjson.Server, as string, o *client.Options) {
	if u := g.upstream(s.Name); u != nil {
		u.observe(s.Transport, false)
		if c := u.connection(as); c != nil {
			o.OnEvent = func(ctx context.Context, session *client.Session, e client.Event) {
				g.onOwnEvent(ctx, c, session, e)
			}
			o.OnLog = func(ctx context.Context, session *client.Session, m *client.LogMessage) {
				g.logOf(ctx, c, session, m)
			}
		}
	}
	if g.options.Each != nil {
		g.options.Each(s, o)
	}
}

// loginCopy returns the login for the session of an owner: that of its user, or of all users.
func (g *Gateway) loginCopy(s *mcpjson.Server, as string) (sessions.Login, error) {
	if !s.Settings.PerUser {
		if g.options.Login == nil {
			return nil, nil
		}
		return g.options.Login(s)
	}
	if u := g.upstream(s.Name); u != nil {
		if c := u.connection(as); c != nil {
			return g.logins.login(s, c.place.Owner.User, &c.subject)
		}
	}
	return nil, errEnded
}

// Server returns the side that clients see. Give it to streamable.NewHandler, or serve a link with it. Close ends it.
func (g *Gateway) Server() *server.Server { return g.server }

func (g *Gateway) given() given {
	return given{g.options.MaxName, g.options.Roots, g.options.IsOwn, g.options.Share, g.options.UserLogins != nil, g.options.Shared != nil, g.known.Unread()}
}

// HasGroup reports whether the file that was applied has a group of this name; see WithGroup.
func (g *Gateway) HasGroup(name string) bool { return g.sight.policy.Load().HasGroup(name) }

// Check returns a *ConfigError with all mistakes of a file, or nil. It starts nothing.
func (g *Gateway) Check(file *mcpjson.File) error {
	p, err := planOf(file, g.given(), nil)
	if err != nil {
		return err
	}
	return p.check(file)
}

// Apply makes the gateway serve exactly the servers of the file that are not disabled. It does not wait until they have started. Only what
// has changed is started, restarted or stopped, as sessions.Set.Apply says. A mistake in the block bowline at the top
// changes nothing: the error is a *ConfigError. A server whose entry has a mistake is not started, and one that runs goes on as it was; it does
// not affect the others, nor does one that cannot be started. Their errors are joined, and Report has them.
func (g *Gateway) Apply(ctx context.Context, file *mcpjson.File) (sessions.Changes, error) {
	changes, err := g.apply(ctx, file)
	if err != nil {
		g.mu.Lock()
		g.tried = err
		g.mu.Unlock()
	}
	if g.options.Audit != nil {
		g.options.Audit(ctx, eventOf(Admin, "apply", "", err))
	}
	return changes, err
}

func (g *Gateway) apply(ctx context.Context, file *mcpjson.File) (sessions.Changes, error) {
	g.applying.Lock()
	defer g.applying.Unlock()
	before := make(map[string]entry)
	for name, u := range g.servers { // which nobody else changes
		before[name] = u.entry
	}
	p, err := planOf(file, g.given(), before)
	if err != nil {
		return sessions.Changes{}, err
	}
	g.known.Replace()
	g.show.Store(&p.show)
	g.adopt(file, p)
	g.announcer.add(g.sight.follow(p.policy)...)
	defer g.notifier.notify()
	g.offer(p)
	changes, err := g.set.Apply(ctx, file)
	for _, e := range p.entries {
		var failed error
		if slices.Contains(changes.Failed, e.Name) {
			failed = errors.New("it could not be started: the log says why")
		}
		g.upstream(e.Name).note(failed)
	}
	g.endLostTasks(ctx)
	g.resume(ctx, slices.Collect(maps.Values(g.upstreams()))...)
	return changes, err
}

// offer makes what is known of the servers of a plan what clients are offered.
func (g *Gateway) offer(p *plan) {
	until := time.Now().Add(warmUp)
	g.warmUntil.Store(&until)
	g.announcer.add(g.known.Apply(p.names, p.servers())...)
	if anywhere := p.logsIn(); g.logins.anywhere.Swap(anywhere) != anywhere {
		g.announcer.add(catalogue.Tools) // clients have the gateway's own tool, or have it no more
	}
	g.shared.Learn(p.servers()...)
}

// adopt makes a plan that of the gateway. What is known of a server that runs as before stays.
func (g *Gateway) adopt(file *mcpjson.File, p *plan) {
	servers := make(map[string]*upstream, len(p.entries))
	for _, e := range p.entries {
		made := &upstream{entry: e, traffic: &traffic{notifier: g.notifier, shared: connection{as: e.Name}}, pool: new(pool.Pool[*connection]), states: new(states)}
		if u := g.servers[e.Name]; u != nil {
			made.pool, made.states = u.pool, u.states
			if u.Identity == e.Identity {
				made.traffic = u.traffic
			}
		}
		servers[e.Name] = made
	}
	for name, u := range g.servers {
		if servers[name] == nil {
			for _, c := range u.ofOwners() {
				g.subscriptions.forget(c.as)
			}
		}
	}
	g.naming.claim.Store(&p.named)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.order, g.servers, g.mistakes, g.allRoots = file.Names(), servers, p.mistakes, p.roots
	g.file, g.applied, g.refusal = file.Path, time.Now(), nil
}

// upstream returns a server of the file, or nil.
func (g *Gateway) upstream(name string) *upstream { return g.upstreams()[name] }

// upstreams returns the servers of the file. The map is replaced by the next file, and never changed.
func (g *Gateway) upstreams() map[string]*upstream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers
}

// Close refuses new clients and calls, lets running calls finish, and then ends the sessions with the servers. The context limits
// how long that may take, as in server.Server.Close.
func (g *Gateway) Close(ctx context.Context) error {
	g.notifier.close()
	g.logins.close()
	err := g.server.Close(ctx)
	g.lifecycle.Close()
	err = errors.Join(err, g.enricher.close(ctx), g.set.Close(ctx))
	g.shared.Close()
	g.announcer.close()
	return errors.Join(err, g.known.Save())
}
