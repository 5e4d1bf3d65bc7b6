package gateway

import (
	"strings"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/transport"
)

// longestName is how much of a name is shown, in bytes: whoever administers an issuer writes it.
const longestName = 128

// A naming knows the claim by which people know users, as the file says. The zero value knows none.
type naming struct{ claim atomic.Pointer[string] }

// of returns the name of who has sent a request; "": the login has none. It is for people, and nothing may be decided by it: at some issuers users choose it, and two
// may have the same.
func (n *naming) of(origin *transport.Origin) string {
	claim := n.claim.Load()
	who, _ := origin.Principal.(policy.Claims)
	if claim == nil || *claim == "" || who == nil {
		return ""
	}
	texts := who.Claim(*claim)
	if len(texts) == 0 {
		return ""
	}
	if name := texts[0]; len(name) <= longestName {
		return name
	}
	return strings.ToValidUTF8(texts[0][:longestName], "") + "…"
}

// A user is who uses a session.
type user struct {
	identity string
	name     string // by which people know the user; "": the login has none
}

// String is the user for people: only the identity tells users apart.
func (u user) String() string {
	if u.name == "" {
		return u.identity
	}
	return u.name + " (" + u.identity + ")"
}

// noteName keeps the name of a connection's user, for the report.
func (c *connection) noteName(name string) {
	if before := c.name.Load(); name != "" && c.place != nil && (before == nil || *before != name) {
		c.name.Store(&name)
	}
}

// userOf returns whom a connection serves.
func (c *connection) userOf() user {
	of := user{identity: c.place.Owner.User}
	if name := c.name.Load(); name != nil {
		of.name = *name
	}
	return of
}
