package auth

import (
	"net/http"
	"strings"
	"time"
)

// A credential is a token that is in use.
type credential struct {
	entry    *Entry
	header   []string // the value of Authorization
	prover   *prover  // the key of a DPoP token; nil for a bearer token
	renewal  time.Time
	end      time.Time // when the token expires; zero: unknown
	obtained time.Time // when this process got the token; zero: it was loaded from the store
}

// untilEnd is how long before its expiry a token is no longer used.
const untilEnd = 10 * time.Second

// newCredential returns the credential of a login. Obtained is when this process got the
// token; zero if another process did.
func newCredential(e *Entry, obtained time.Time) (*credential, error) {
	c := &credential{entry: e, header: []string{e.Type + " " + e.Access.Reveal()}, obtained: obtained}
	if !e.Expires.IsZero() {
		life := e.Expires.Sub(e.Issued)
		c.renewal = e.Issued.Add(life * 4 / 5)
		c.end = e.Expires.Add(-min(untilEnd, life/10))
	}
	if e.Type == "DPoP" {
		var err error
		if c.prover, err = newProver(e.Proof); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *credential) access() string { return c.entry.Access.Reveal() }

func (c *credential) ended(now time.Time) bool { return !c.end.IsZero() && now.After(c.end) }

// due reports whether it is time for a refresh.
func (c *credential) due(now time.Time) bool {
	return !c.renewal.IsZero() && now.After(c.renewal) && !c.entry.Refresh.IsZero()
}

// recent reports whether this process got the token within the last minute. If such a
// token has not expired and is refused, its age is not the reason.
func (c *credential) recent(now time.Time) bool {
	return !c.obtained.IsZero() && now.Sub(c.obtained) < time.Minute
}

// add adds the token to a request.
func (c *credential) add(r *http.Request, known *nonces) error {
	r.Header["Authorization"] = c.header
	if c.prover == nil {
		return nil
	}
	proof, err := c.prover.proof(r.Method, r.URL, c.access(), known.of(r.URL))
	if err != nil {
		return err
	}
	r.Header.Set("DPoP", proof)
	return nil
}

// tokenOf returns the token that a request was sent with, or "".
func tokenOf(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token
}
