package auth

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// A countingStore counts how often it is asked.
type countingStore struct {
	*Memory
	asked atomic.Int64
}

func (s *countingStore) Load(ctx context.Context, k Key) (*Entry, error) {
	s.asked.Add(1)
	return s.Memory.Load(ctx, k)
}

func (s *countingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	s.asked.Add(1)
	return s.Memory.Locked(ctx, k, f)
}

// When a refresh token has ended, or the login is removed, requests use the access token
// until it expires, and do not ask the Store each time.
//
// Guarantees: G-0044.5, G-0044.6
func TestAfterItsRefreshTokenATokenIsUsedWithoutTheStore(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, f *fixture, a *Authorizer){
		"the server has ended it": func(_ *testing.T, f *fixture, _ *Authorizer) {
			f.as.Lie(authtest.Token, answerWith(http.StatusBadRequest, `{"error":"invalid_grant"}`))
		},
		"another program has logged out": func(t *testing.T, _ *fixture, a *Authorizer) {
			if err := a.store.Locked(t.Context(), a.key(), put(nil)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			s := &countingStore{Memory: NewMemory()}
			a := loggedIn(t, f, Options{Store: s})
			expireBy(t, a, 50*time.Minute) // of an hour: it is due
			if _, err := a.stored(t.Context()); err != nil {
				t.Fatal(err)
			}
			token := a.current.Load().access()
			end(t, f, a)
			wantCall(t, a, f.url)
			a.jobs.goroutines.Wait()
			before := s.asked.Load()
			for range 5 {
				wantCall(t, a, f.url)
				a.jobs.goroutines.Wait()
			}
			if n := s.asked.Load() - before; n != 0 {
				t.Errorf("5 requests asked the Store %d times, want never", n)
			}
			if now := a.current.Load(); now == nil || now.access() != token {
				t.Error("the access token is not used any more")
			}
			if n := f.grants("refresh_token"); n > 1 {
				t.Errorf("%d refreshes", n)
			}
			if e, err := s.Memory.Load(t.Context(), a.key()); err != nil || e != nil && e.Access.Reveal() != token {
				t.Errorf("the Store has %+v, %v, want that other programs can use the token, too", e, err)
			}
		})
	}
}
