package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// Only what a person does, or leaves, keeps the next call from asking.
//
// Guarantees: G-0044.9
func TestWhatKeepsFromAskingAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		asked int // by two calls
	}{
		"nobody":             {fmt.Errorf("%w within a minute", ErrNobody), 1},
		"a network timeout":  {fmt.Errorf("fetch: %w", context.DeadlineExceeded), 2},
		"no browser to open": {errors.New("no browser"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, authtest.Options{})
			asked := 0
			a := w.login(t, Options{Interact: func(context.Context, Interaction) (*url.URL, error) { asked++; return nil, c.err }})
			for range 2 {
				if _, err := call(t.Context(), a, w.url); !errors.Is(err, c.err) || !errors.Is(err, transport.ErrAuthRequired) {
					t.Errorf("%v", err)
				}
			}
			if asked != c.asked {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// A call that is cancelled during a login does not keep the next from one. But three in
// a row have opened browsers enough.
//
// Guarantees: G-0044.9
func TestACancelledCallDoesNotKeepFromAsking(t *testing.T) {
	w := newWorld(t, authtest.Options{})
	asked := 0
	var cancel context.CancelFunc
	a := w.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
		if asked++; cancel == nil {
			return consent(ctx, i)
		}
		cancel()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	leave := func() {
		t.Helper()
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		if _, err := call(ctx, a, w.url); err == nil {
			t.Fatal("no error")
		}
		a.flights.Wait()
		cancel = nil
	}
	leave()
	wantCall(t, a, w.url)
	if asked != 2 {
		t.Fatalf("asked %d times", asked)
	}
	if err := a.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		leave()
	}
	if _, err := call(t.Context(), a, w.url); !errors.Is(err, transport.ErrAuthRequired) || asked != 4 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}

// Who comes while a login is given up waits for its end, and makes another.
//
// Guarantees: G-0044.9
func TestWhoJoinsALoginThatIsGivenUpTriesAgain(t *testing.T) {
	w := newWorld(t, authtest.Options{})
	asking, end := make(chan struct{}), make(chan struct{})
	asked := 0
	a := w.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
		if asked++; asked > 1 {
			return consent(ctx, i)
		}
		close(asking)
		<-end
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := call(ctx, a, w.url)
		left <- err
	}()
	<-asking
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	joined := make(chan error)
	go func() {
		status, err := call(t.Context(), a, w.url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		joined <- err
	}()
	for joins := false; !joins; { // until it waits for the login that is given up
		a.mu.Lock()
		joins = a.flight.waiting > 0
		a.mu.Unlock()
		runtime.Gosched()
	}
	close(end)
	if err := <-joined; err != nil || asked != 2 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
