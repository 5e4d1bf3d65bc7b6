package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/logins"
	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Logout ends the login of a user at a server: it is removed from the store of UserLogins, its tokens are revoked if the authorization server does that (RFC 7009), and
// the connections of the user with the server end, on which running calls have five seconds to finish. The next call asks for a login again. The user is an identity, as
// Report and Detail name it, of whose person all connections end. It returns when that has happened. It fails with admin.ErrNoServer, if the server has no logins of users, if
// there is nothing to end, or if the tokens could not be revoked; the login is removed then all the same, unless the error says that the store has failed.
func (g *Gateway) Logout(ctx context.Context, name, user string) error {
	return g.logoutBy(ctx, Admin, name, user)
}

// logoutBy ends the login of a user, and records who has done it.
func (g *Gateway) logoutBy(ctx context.Context, who, name, user string) error {
	err := g.logout(ctx, name, user)
	if g.options.Audit != nil {
		record := eventOf(who, "logout", name, err)
		record.Name = user
		g.options.Audit(ctx, record)
	}
	return err
}

func (g *Gateway) logout(ctx context.Context, name, user string) error {
	u := g.upstream(name)
	switch {
	case u == nil:
		return g.absent(name)
	case u.perUser == nil:
		return fmt.Errorf(`users have no logins of their own at %s: its entry does not say "login": "user"`, name)
	case u.perUser.Settings.Exchange != nil:
		return fmt.Errorf("users do not log in at %s: their tokens are exchanged for it, and end by themselves", name)
	}
	person := g.logins.person(user)
	found, err := g.logins.logout(ctx, u.perUser, person)
	ended := g.endConnections(ctx, u, person)
	if err == nil && !found && !ended {
		return fmt.Errorf("%s has no login at %s: bowline ps names the users who have connections", quoted(user), name)
	}
	return err
}

// logout removes the login of a user from the store, and revokes its tokens. Found: there was one.
func (d *desk) logout(ctx context.Context, s *mcpjson.Server, person string) (found bool, err error) {
	o, err := d.options(s, person)
	if err != nil {
		return false, err
	}
	login := auth.New(o)
	defer login.Close()
	e, unread := login.Status(ctx)
	err = login.Logout(ctx)
	found = e != nil || unread != nil
	if err != nil && found && !errors.As(err, new(*auth.StoreError)) && isGone(ctx, login) {
		err = fmt.Errorf("the login is removed, and may be valid until it ends: %w", err)
	}
	return found, err
}

// isGone reports whether a login is certainly not in the store any more. The error of a logout does not say that: a store may fail with an error of any type.
func isGone(ctx context.Context, login *auth.Authorizer) bool {
	left, err := login.Status(ctx)
	return left == nil && err == nil
}

// endConnections ends the connections of a person with a server, and reports whether one ran. One whose client has subscribed begins anew, and waits for a login.
func (g *Gateway) endConnections(ctx context.Context, u *upstream, person string) (ended bool) {
	for _, c := range u.ofOwners() {
		if _, running := g.lifecycle.session(u, c); running && g.logins.person(c.place.Owner.User) == person {
			ended = true
			g.lifecycle.logOut(u, c)
		}
	}
	if ended {
		g.endLostTasks(ctx)
		g.resume(ctx, u)
	}
	return ended
}

// LoginPages returns the pages at which users log in at servers, and begins to lead users to them; see Options.UserLogins. At is where browsers reach them, without a
// slash at the end, such as https://tools.example.com/login; authorization servers send browsers back to at/callback. It is to be called once. Close ends
// what the pages do, and they serve nobody then. Where users log in so, clients have a tool more, bowline_logins, which leads its user to a page where he ends his own logins.
func (g *Gateway) LoginPages(at string) http.Handler {
	pages := logins.New(at, g.options.Server.Node, g.logins.given.reach())
	pages.Refused = g.refusedAtPages
	g.logins.pages.Store(&served{pages, g.ownerOf})
	return pages
}

// ownerOf returns whose logins a page shows, and how he ends them.
func (g *Gateway) ownerOf(identity string) logins.Owner {
	return logins.Owner{
		User: g.logins.person(identity),
		At:   func(ctx context.Context) []string { return g.loggedInAt(ctx, identity) },
		End:  func(ctx context.Context, name string) error { return g.logoutBy(ctx, identity, name, identity) },
	}
}

// loggedInAt returns the servers where a user has a login, in the order of the file. One that cannot be read may be there, and can be ended.
func (g *Gateway) loggedInAt(ctx context.Context, identity string) (names []string) {
	g.mu.Lock()
	order, servers := g.order, g.servers // which are replaced, and never changed
	g.mu.Unlock()
	for _, name := range order {
		u := servers[name]
		if u == nil || !u.logsIn() {
			continue
		}
		if has, err := g.logins.has(ctx, u.perUser, identity); has || err != nil {
			names = append(names, name)
		}
	}
	return names
}

// refusedAtPages records a request at the pages for logins that was refused: from where it came, and nothing of what it has shown. Nobody has logged in for it, so the trail bounds how many records there are.
func (g *Gateway) refusedAtPages(r *http.Request, user, why string) {
	g.logins.refused.Add(1)
	if g.options.Audit != nil {
		record := eventOf("", "login page", "", errors.New(why))
		record.Name, record.Outcome, record.Address = user, string(server.OutcomeDenied), cmp.Or(network.Client(r.Context()), r.RemoteAddr)
		g.options.Audit(context.WithoutCancel(r.Context()), record)
	}
}
