package resource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
)

const (
	// maxIntrospections is how many introspections may run at the same time, and
	// maxIntrospectionsPerAddress how many of them for one network address, because
	// anybody can send tokens that need introspection.
	maxIntrospections           = 64
	maxIntrospectionsPerAddress = maxIntrospections / 4
)

// slots limits concurrent introspections, in total and per client address.
type slots struct {
	all chan struct{}

	mu sync.Mutex
	of map[string]*share // shares by address, if they have running or waiting requests
}

type share struct {
	taken    chan struct{}
	requests int // how many requests have a slot or wait for one
}

func newSlots() *slots {
	return &slots{all: make(chan struct{}, maxIntrospections), of: make(map[string]*share)}
}

// acquire waits for a slot. It returns a function that releases the slot, or nil if the
// context has ended.
func (s *slots) acquire(ctx context.Context, address string) (giveBack func()) {
	own := s.enter(address)
	select {
	case own.taken <- struct{}{}:
	case <-ctx.Done():
		s.leave(address, own)
		return nil
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		<-own.taken
		s.leave(address, own)
		return nil
	}
	return func() {
		<-s.all
		<-own.taken
		s.leave(address, own)
	}
}

// enter returns the share of an address, for one request more.
func (s *slots) enter(address string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[address]
	if own == nil {
		own = &share{taken: make(chan struct{}, maxIntrospectionsPerAddress)}
		s.of[address] = own
	}
	own.requests++
	return own
}

// leave forgets the share of an address with its last request.
func (s *slots) leave(address string, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(s.of, address)
	}
}

// introspect asks an issuer about a token (RFC 7662), unless the result is remembered.
// If the issuer cannot answer, the error says that the token may be valid.
func (g *Guard) introspect(r *http.Request, hash [sha256.Size]byte, token string) (*cachedToken, error) {
	if k := g.refused.find(hash); k != nil {
		return nil, k.refused
	}
	from := g.introspector
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	giveBack := from.slots.acquire(ctx, network.Of(cmp.Or(network.Client(r.Context()), r.RemoteAddr)))
	if giveBack == nil {
		return nil, unavailable("too many tokens are being checked")
	}
	defer giveBack()
	if k := g.tokens.find(hash); k != nil { // another request has asked meanwhile
		return k, nil
	}
	if k := g.refused.find(hash); k != nil {
		return nil, k.refused
	}
	return g.askOnce(ctx, hash, token)
}

// askOnce asks the issuer about a token, and remembers the answer. That it could not be asked is not remembered.
func (g *Guard) askOnce(ctx context.Context, hash [sha256.Size]byte, token string) (*cachedToken, error) {
	asked := time.Now()
	p, err := g.ask(ctx, g.introspector, token)
	f := denial{}
	switch {
	case err == nil:
		p.introspectedAt = asked
		return g.remember(hash, p, asked.Add(introspectedLife)), nil
	case errors.As(err, &f) && !f.unavailable:
		g.refused.add(&cachedToken{hash: hash, refused: err, until: asked.Add(refusedLife)})
	}
	return nil, err
}

func (g *Guard) ask(ctx context.Context, from *issuer, token string) (*Principal, error) {
	address, err := from.introspectAt(ctx)
	if err != nil {
		return nil, err
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, unavailable("the authorization server cannot be asked about the token")
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(url.QueryEscape(from.of.Introspect.ClientID), url.QueryEscape(from.of.Introspect.ClientSecret))
	answer, err := from.fetch.do(request)
	if err != nil || protocol.Unmarshal(answer.body, new(map[string]any)) != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // the client has not left
			from.markFailed(address)
		}
		return nil, unavailable("the authorization server cannot be asked about the token now")
	}
	return g.read(from, answer.body)
}
