package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/search"
	"github.com/bowline-mcp/bowline/gateway/internal/shared"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

const (
	warmUp   = 5 * time.Second // how long a list waits, after the file was applied, for servers that have never answered
	pageSize = 100

	listTimeout = 30 * time.Second // for one page

	announced   = 5 * time.Minute  // how long clients may cache a list of a legacy server that tells of changes
	unannounced = 30 * time.Second // of one that does not
	longestTTL  = 24 * time.Hour   // of a modern server, whatever it says
)

// A listing is how a kind is listed.
type listing struct{ method, capability string }

var listings = map[catalogue.Kind]listing{
	catalogue.Tools:     {protocol.MethodListTools, "tools"},
	catalogue.Prompts:   {protocol.MethodListPrompts, "prompts"},
	catalogue.Resources: {protocol.MethodListResources, "resources"},
	catalogue.Templates: {protocol.MethodListResourceTemplates, "resources"},
}

// A page is one page of any list, undecoded.
type page struct {
	Tools             []json.RawMessage `json:"tools"`
	Prompts           []json.RawMessage `json:"prompts"`
	Resources         []json.RawMessage `json:"resources"`
	ResourceTemplates []json.RawMessage `json:"resourceTemplates"`
	NextCursor        *string           `json:"nextCursor"`
	TTLMs             *int64            `json:"ttlMs"`
	CacheScope        string            `json:"cacheScope"`
	Meta              struct {
		Passed []string `json:"io.github.bowline-mcp/gateways"` // metaPassed
	} `json:"_meta"`
}

func (p *page) entries(kind catalogue.Kind) []json.RawMessage {
	switch kind {
	case catalogue.Tools:
		return p.Tools
	case catalogue.Prompts:
		return p.Prompts
	case catalogue.Resources:
		return p.Resources
	default:
		return p.ResourceTemplates
	}
}

// refresh asks a server for its lists of some kinds. What cannot be read stays as it was.
func (g *Gateway) refresh(ctx context.Context, of catalogue.Server, session *client.Session, kinds ...catalogue.Kind) {
	for _, kind := range kinds {
		list, behind, isWhole, err := listOf(ctx, session, kind)
		if err != nil {
			g.notListed(of, kind, err)
			continue
		}
		if u := g.upstream(of.Name); u != nil {
			u.excess.setEndless(kind, !isWhole)
			if ring := u.setBehind(g.id, behind); ring != nil {
				g.log().Error("bowline: there is a ring of gateways", "error", ring)
				list.Entries = nil
			}
		}
		if kind == catalogue.Tools {
			g.shared.Pin(ctx, of, list)
		}
		before := g.known.Snapshot()
		if g.known.Learn(of, kind, list) {
			g.announcer.add(kind)
		}
		g.shared.Tell(of, kind)
		if kind == catalogue.Tools {
			g.warnOf(of.Name, before)
		}
	}
}

// notListed says why a list of a server could not be read. Only an answer says that nobody need wait for the list: what was broken off is asked for again when the
// server is back.
func (g *Gateway) notListed(of catalogue.Server, kind catalogue.Kind, err error) {
	g.log().Warn("bowline: a list stays as it was", "server", of.Name, "list", kind, "error", err)
	if errors.As(err, new(*jsonrpc.Error)) || errors.As(err, new(*client.ResultError)) {
		g.known.Fail(of, kind, err)
	}
}

// warnOf logs which tools of a server have changed now, and which of their input schemas clients may refuse. What was so before has been logged, by this gateway or an
// earlier one; of output schemas the client says so.
func (g *Gateway) warnOf(name string, before *catalogue.Snapshot) {
	now, changed, refused := g.known.Snapshot(), before.Changed(name), before.RefusedInputs(name)
	for _, notice := range now.RefusedInputs(name) {
		if !slices.Contains(refused, notice) {
			g.log().Warn("bowline: clients may refuse a tool", "server", name, "notice", notice)
		}
	}
	for _, c := range now.Changed(name) {
		if !slices.ContainsFunc(changed, func(b catalogue.Changed) bool { return b.Own == c.Own && slices.Equal(b.Members, c.Members) }) {
			g.log().Warn("bowline: a tool has changed since it was approved", "server", name, "tool", c.Own, "offered", !c.Held)
		}
	}
}

// listOf reads a list of a server, and which gateways are behind the server. It is not whole if it has too many pages; a list of too many
// entries is cut by the catalogue, which says so.
func listOf(ctx context.Context, session *client.Session, kind catalogue.Kind) (list catalogue.List, behind []string, isWhole bool, err error) {
	how, from := listings[kind], session.Server()
	list = catalogue.List{At: time.Now(), TTL: unannounced}
	if !from.Capabilities.Has(how.capability) {
		return list, nil, true, nil
	}
	if from.Capabilities.Has(how.capability + ".listChanged") {
		list.TTL = announced
	}
	o := session.Calls()
	o.Timeout, o.AwaitLogs = listTimeout, false // OnEvent waits for it
	view, params, size := session.With(o), json.RawMessage("{}"), 0
	for range maxPages {
		next, err := pageOf(ctx, view, how.method, params)
		if err != nil {
			return list, nil, false, err
		}
		size += next.addTo(&list, kind)
		behind = next.Meta.Passed
		if next.NextCursor == nil || len(list.Entries) > catalogue.MaxEntries || size > catalogue.MaxBytes {
			return list, behind, true, nil
		}
		if params, err = protocol.Marshal(map[string]string{"cursor": *next.NextCursor}); err != nil {
			return list, nil, false, err
		}
	}
	return list, behind, false, nil
}

func pageOf(ctx context.Context, session *client.Session, method string, params json.RawMessage) (*page, error) {
	own, err := withHop(session, params)
	if err != nil {
		return nil, err
	}
	next := new(page)
	raw, err := session.Relay(ctx, method, own)
	if errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}) {
		return next, nil // many servers that have resources know no method for templates: they have none
	}
	if err != nil {
		return nil, err
	}
	if err := protocol.Unmarshal(raw, next); err != nil {
		return nil, &client.ResultError{Err: fmt.Errorf("%s: %w", method, err)} // an answer all the same: see notListed
	}
	return next, nil
}

// addTo adds a page to a list, and returns its size. How long a modern list may be kept is what its last page says.
func (p *page) addTo(list *catalogue.List, kind catalogue.Kind) (size int) {
	for _, entry := range p.entries(kind) {
		list.Entries, size = append(list.Entries, entry), size+len(entry)
	}
	if p.TTLMs != nil {
		list.TTL = time.Duration(min(max(*p.TTLMs, 0), longestTTL.Milliseconds())) * time.Millisecond
		list.Private = list.Private || p.CacheScope != protocol.CachePublic
	}
	return size
}

// list serves a list from the catalogue.
func (g *Gateway) list(kind catalogue.Kind) server.RawHandler {
	return func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		if kind == catalogue.Tools && searches(ctx) {
			now := g.sight.now(ctx)
			return g.encode(ctx, now, kind, g.withLogins(now, search.Tools()), nil)
		}
		var asked protocol.ListToolsParams
		if err := protocol.Unmarshal(params, &asked); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		now := g.warm(ctx, kind)
		items, next, err := now.Page(kind, asked.Cursor, pageSize)
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		if kind == catalogue.Tools && asked.Cursor == nil {
			items = g.withLogins(now, items)
		}
		list, err := g.encode(ctx, now, kind, items, next)
		if err != nil {
			return nil, err
		}
		if asked.Meta[MetaHops] == nil {
			return list, nil
		}
		return withPassed(list, passed(g.id, g.upstreams()))
	}
}

// withLogins returns the first tools of a list, with the gateway's own before them, if a client that sees so much has that.
func (g *Gateway) withLogins(seen *catalogue.Snapshot, tools []catalogue.Item) []catalogue.Item {
	if !g.logins.offers(seen) {
		return tools
	}
	return append([]catalogue.Item{loginsItem}, tools...)
}

// warm returns what is known to the client of a request, once every server has said what it has. An empty list of a server that is just starting would be taken for
// the truth. Those that do not answer in time are left out.
func (g *Gateway) warm(ctx context.Context, kind catalogue.Kind) *catalogue.Snapshot {
	return g.warmFor(ctx, kind, func(*catalogue.Snapshot) bool { return false })
}

// warmFor is warm for somebody who may find what it looks for before every server has said what it has.
func (g *Gateway) warmFor(ctx context.Context, kind catalogue.Kind, isEnough func(*catalogue.Snapshot) bool) *catalogue.Snapshot {
	ctx, cancel := context.WithDeadline(ctx, *g.warmUntil.Load())
	defer cancel()
	for {
		changed := g.known.Changed()
		now := g.sight.now(ctx)
		if isEnough(now) || len(now.Awaited(kind)) == 0 {
			return now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			now = g.sight.now(ctx)
			isEnough(now)
			return now
		}
	}
}

// awaitList waits until a server has said what it has of a kind, and fails if it cannot.
func (g *Gateway) awaitList(ctx context.Context, name string, kind catalogue.Kind) error {
	for {
		changed := g.known.Changed()
		now := g.known.Snapshot()
		if why := now.Failure(name, kind); why != nil || !slices.Contains(now.Missing(kind), name) {
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("it has not said yet what it offers: %w", context.Cause(ctx))
		}
	}
}

// searched returns all tools, of which there is one index for all clients.
func (g *Gateway) searched(ctx context.Context) *catalogue.Snapshot {
	g.warm(ctx, catalogue.Tools)
	return g.known.Snapshot()
}

// searchable returns what tells which tools the client of a request may find. The index may be older than what is known.
func (g *Gateway) searchable(ctx context.Context) func(catalogue.Item) bool {
	seen := g.sight.now(ctx)
	return func(item catalogue.Item) bool {
		now, found := seen.Find(catalogue.Tools, item.Name)
		return found && now.Server == item.Server
	}
}

// encode writes a page.
func (g *Gateway) encode(ctx context.Context, now *catalogue.Snapshot, kind catalogue.Kind, items []catalogue.Item, next *string) (json.RawMessage, error) {
	out := append(make([]byte, 0, sizeOf(items)), `{"`+string(kind)+`":[`...)
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item.Raw...)
	}
	out = append(out, ']')
	if next != nil {
		cursor, err := protocol.Marshal(*next)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"nextCursor":`...), cursor...)
	}
	if protocol.IsModern(server.RequestFrom(ctx).Client.ProtocolVersion) {
		out = append(out, g.hints(now, kind)...)
	}
	return append(out, '}'), nil
}

// sizeOf returns how many bytes a page needs, with room for what is beside its entries.
func sizeOf(items []catalogue.Item) int {
	size := 256
	for _, item := range items {
		size += len(item.Raw) + len(",")
	}
	return size
}

// hints returns the members that say how long a modern client may keep a list.
func (g *Gateway) hints(now *catalogue.Snapshot, kind catalogue.Kind) string {
	hint, scope := now.Hint(kind, g.isAway), protocol.CachePublic
	if hint.Private || g.sight.isPrivate() {
		scope = protocol.CachePrivate
	}
	return fmt.Sprintf(`,"ttlMs":%d,"cacheScope":"%s"`, hint.TTL.Milliseconds(), scope)
}

// isAway reports whether a server cannot be reached now.
func (g *Gateway) isAway(name string) bool {
	if u := g.upstream(name); u != nil {
		if _, asleep := u.use.IsAsleep(); asleep {
			return false // nothing changes what it offers
		}
	}
	return g.hasNoConnection(name)
}

// beginToShare makes the gateway one of a cluster, if it is one.
func (g *Gateway) beginToShare() {
	if g.options.Shared == nil {
		return
	}
	g.shared = shared.New(g.options.Shared, g.known, g.log())
	g.shared.Learned, g.shared.IsAway = func(kind catalogue.Kind) { g.announcer.add(kind) }, g.hasNoConnection
	g.shared.Begin()
}

// hasNoConnection reports whether this gateway cannot ask a server now what it offers.
func (g *Gateway) hasNoConnection(name string) bool {
	session, running := g.set.Session(name)
	return !running || session.Status().State != conn.Ready
}

// announce tells clients that lists have changed, and saves them.
func (g *Gateway) announce(kinds []catalogue.Kind) {
	if last := len(kinds) - 1; kinds[last] == ofRoots {
		kinds = kinds[:last]
		ctx, cancel := context.WithTimeout(context.Background(), tellTime)
		defer cancel()
		_ = g.set.RootsChanged(ctx) // a server that is away asks when it is back
	}
	if len(kinds) == 0 {
		return
	}
	for _, kind := range kinds {
		if may := g.sight.news(kind); may != nil {
			g.server.ListChangedFor(featureOf[kind], may)
		} else {
			g.server.ListChanged(featureOf[kind])
		}
	}
	defer g.notifier.notify()
	if err := g.known.Save(); err != nil {
		text := "what servers offer is not kept for the next start: " + err.Error()
		g.unsaved.Store(&text)
		g.log().Warn("bowline: what servers offer is not kept for the next start", "error", err)
	} else {
		g.unsaved.Store(nil)
	}
}

var featureOf = map[catalogue.Kind]string{
	catalogue.Tools: server.KindTool, catalogue.Prompts: server.KindPrompt, catalogue.Resources: server.KindResource, catalogue.Templates: server.KindTemplate,
}
