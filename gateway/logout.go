package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/mcpjson"
)

// Logout ends the login of a user at a server: it is removed from the store of UserLogins, its tokens are revoked if the authorization server does that (RFC 7009), and
// the connections of the user with the server end, on which running calls have five seconds to finish. The next call asks for a login again. The user is an identity, as
// Report and Detail name it, of whose person all connections end. It returns when that has happened. It fails with admin.ErrNoServer, if the server has no logins of users, if
// there is nothing to end, or if the tokens could not be revoked; the login is removed then all the same, unless the error says that the store has failed.
func (g *Gateway) Logout(ctx context.Context, name, user string) error {
	err := g.logout(ctx, name, user)
	if g.options.Audit != nil {
		record := eventOf(Admin, "logout", name, err)
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
	if err != nil && !errors.As(err, new(*auth.StoreError)) {
		err = fmt.Errorf("the login is removed, and may be valid until it ends: %w", err)
	}
	return e != nil || unread != nil, err
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
