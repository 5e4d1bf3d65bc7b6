package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// Only a login that the person has refused or abandoned keeps the next call from starting
// another.
//
// Guarantees: G-0044.9
func TestRefusedLoginIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		asked int // by two calls
	}{
		"nobody":             {fmt.Errorf("%w within a minute", ErrUnanswered), 1},
		"a network timeout":  {fmt.Errorf("fetch: %w", context.DeadlineExceeded), 2},
		"no browser to open": {errors.New("no browser"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, authtest.Options{})
			asked := 0
			a := f.login(t, Options{Interact: func(context.Context, Interaction) (*url.URL, error) { asked++; return nil, c.err }})
			for range 2 {
				if _, err := call(t.Context(), a, f.url); !errors.Is(err, c.err) || !errors.Is(err, transport.ErrAuthRequired) || errorText(err) != "auth: log in to "+f.url+" first: "+c.err.Error() {
					t.Errorf("%v", err)
				}
			}
			if asked != c.asked {
				t.Errorf("%d logins were started", asked)
			}
		})
	}
}

// A loginPage simulates a person who answers when the test says so.
type loginPage struct {
	opened chan context.Context // for each time that it is opened
	answer chan struct{}
}

func newLoginPage() *loginPage {
	return &loginPage{opened: make(chan context.Context, 10), answer: make(chan struct{})}
}

func (p *loginPage) interact(ctx context.Context, i Interaction) (*url.URL, error) {
	p.opened <- ctx
	select {
	case <-p.answer:
		return consent(ctx, i)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leaveOpen makes a call that ends when the login page is open.
func leaveOpen(t *testing.T, a *Authorizer, f *fixture, p *loginPage) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := call(ctx, a, f.url)
		ended <- err
	}()
	asking := testenv.Receive(t, p.opened, "the login page is open")
	cancel()
	if err := testenv.Receive(t, ended, "the call ends"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return asking
}

// A call ends at its deadline, and its login page stays open. The next call waits for the
// same login.
//
// Guarantees: G-0044.9
func TestALoginOutlastsItsCall(t *testing.T) {
	f, p := newFixture(t, authtest.Options{}), newLoginPage()
	a := f.login(t, Options{Interact: p.interact})
	asking := leaveOpen(t, a, f, p)
	if err := asking.Err(); err != nil {
		t.Errorf("the login was cancelled: %v", err)
	}
	if end, ok := asking.Deadline(); !ok || time.Until(end) > loginTime {
		t.Errorf("the login ends at %v", end)
	}
	close(p.answer)
	wantCall(t, a, f.url)
	if len(p.opened) > 0 {
		t.Error("two logins were started")
	}
}

// A program whose code panics gets an error, whatever the panic says.
func TestLoginOfAProgramThatPanics(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	for _, value := range []any{"a text", errors.New("an error")} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := 0
		a := f.login(t, Options{Interact: func(context.Context, Interaction) (*url.URL, error) {
			if asked++; asked > 1 {
				cancel() // it would ask for ever
			}
			panic(value)
		}})
		if err := a.Login(ctx); err == nil || !strings.Contains(err.Error(), "panic") || asked != 1 {
			t.Errorf("a panic with %v: %v, after Interact was called %d times", value, err, asked)
		}
	}
}

// After a login that timed out, the next call starts no other.
//
// Guarantees: G-0044.9
func TestUnansweredLoginIsNotRepeated(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := f.login(t, Options{Interact: consent})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("%w within a minute", ErrUnanswered))
	a.attempts.recordFailure(ctx, context.DeadlineExceeded, time.Now()) // which an Interact of its own returns
	if _, err := call(t.Context(), a, f.url); !errors.Is(err, transport.ErrAuthRequired) {
		t.Errorf("%v", err)
	}
}

// Login cancels a login that a request has left open, and starts its own.
//
// Guarantees: G-0044.9
func TestLoginReplacesAPageThatWasLeft(t *testing.T) {
	f, p := newFixture(t, authtest.Options{}), newLoginPage()
	a := f.login(t, Options{Interact: p.interact})
	asking := leaveOpen(t, a, f, p)
	ended := make(chan error)
	go func() { ended <- a.Login(t.Context()) }()
	testenv.Receive(t, asking.Done(), "the login that was left ends")
	testenv.Receive(t, p.opened, "another login page is open")
	close(p.answer)
	if err := testenv.Receive(t, ended, "the login ends"); err != nil {
		t.Error(err)
	}
}

// Close cancels an open login.
//
// Guarantees: G-0044.4
func TestCloseEndsALoginThatWasLeft(t *testing.T) {
	f, p := newFixture(t, authtest.Options{}), newLoginPage()
	a := f.login(t, Options{Interact: p.interact})
	asking := leaveOpen(t, a, f, p)
	if err := a.Close(); err != nil || asking.Err() == nil {
		t.Errorf("%v, %v", err, asking.Err())
	}
}

// A call that arrives while a login is being cancelled waits for its end, and starts
// another.
//
// Guarantees: G-0044.9
func TestWaiterOfAnAbandonedLoginTriesAgain(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	asking, end := make(chan struct{}), make(chan struct{})
	asked := 0
	a := f.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
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
		left <- a.Login(ctx)
	}()
	testenv.Receive(t, asking, "a login asks")
	cancel()
	if err := testenv.Receive(t, left, "the login whose caller has left ends"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	joined := make(chan error)
	go func() {
		status, err := call(t.Context(), a, f.url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		joined <- err
	}()
	for joins := false; !joins; { // until it waits for the login that is given up
		a.jobs.mu.Lock()
		joins = a.jobs.running.waiting > 0
		a.jobs.mu.Unlock()
		runtime.Gosched()
	}
	close(end)
	if err := testenv.Receive(t, joined, "the call that waited ends"); err != nil || asked != 2 {
		t.Errorf("%v, %d logins were started", err, asked)
	}
}

// tooManyRefusals counts a refusal, unless there were too many.
func tooManyRefusals(a *attempts, set string, now time.Time) bool {
	if a.refusedTooOften(set, now) {
		return true
	}
	a.recordRefusal(set, now)
	return false
}

// Refusals count for each set of scopes, each for ten minutes. They are remembered for a bounded number of sets, above which
// there is no login.
//
// Guarantees: G-0044.8
func TestRefusalsAreCountedForTenMinutes(t *testing.T) {
	var a attempts
	began := time.Now()
	for _, step := range []struct {
		set   string
		after time.Duration
		want  bool
	}{
		{"read", 0, false},
		{"read", 9 * time.Minute, false},
		{"read", 10 * time.Minute, true},
		{"write", 10 * time.Minute, false},
		{"read", 10*time.Minute + time.Second, false}, // the first refusal is forgotten, the second is not
		{"read", 10*time.Minute + time.Second, true},
		{"write", 20 * time.Minute, false},
		{"write", 20 * time.Minute, true},
		{"read", 20 * time.Minute, false},
		{"read", 20 * time.Minute, true},
	} {
		if got := tooManyRefusals(&a, step.set, began.Add(step.after)); got != step.want {
			t.Errorf("a refusal of %q after %v: too many is %t, want %t", step.set, step.after, got, step.want)
		}
	}
	later := began.Add(time.Hour)
	for i := range maxSets {
		if tooManyRefusals(&a, fmt.Sprint(i), later) {
			t.Fatalf("the refusal of set %d is too many", i+1)
		}
	}
	if tooManyRefusals(&a, "0", later) {
		t.Error("the second refusal of a set that is remembered is too many")
	}
	if !tooManyRefusals(&a, "one more", later) || len(a.refusals) != maxSets {
		t.Errorf("%d sets of scopes are remembered, want %d at most", len(a.refusals), maxSets)
	}
	if tooManyRefusals(&a, "one more", later.Add(forgetTime+time.Second)) || len(a.refusals) != 1 {
		t.Errorf("%d sets of scopes are remembered after ten minutes, want one", len(a.refusals))
	}
}

// A login that a person has refused is in the way of another for ten minutes, or until the person logs in. That also removes the
// count of refused tokens.
//
// Guarantees: G-0044.9
func TestARefusedLoginIsForgotten(t *testing.T) {
	var a attempts
	began := time.Now()
	if err := a.recentFailure(began); err != nil {
		t.Errorf("at first: %v", err)
	}
	a.recordFailure(t.Context(), ErrUnanswered, began)
	if err := a.recentFailure(began.Add(forgetTime)); !errors.Is(err, ErrUnanswered) {
		t.Errorf("after ten minutes: got %v, want %v", err, ErrUnanswered)
	}
	if err := a.recentFailure(began.Add(forgetTime + time.Second)); err != nil {
		t.Errorf("later: %v", err)
	}
	for range maxRefusals + 1 {
		tooManyRefusals(&a, "read", began)
	}
	a.forget()
	if err := a.recentFailure(began); err != nil {
		t.Errorf("after a login: %v", err)
	}
	if tooManyRefusals(&a, "read", began) {
		t.Error("after a login, the first refusal is too many")
	}
}

// Requests that wait for one login get its error, and do not ask again.
//
// Guarantees: G-0044.9
func TestRequestsShareALoginThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, answer, failed := newOffline(authtest.Options{}), make(chan struct{}), errors.New("no browser")
		asked := 0
		a := f.login(t, Options{Interact: func(context.Context, Interaction) (*url.URL, error) {
			asked++
			<-answer
			return nil, failed
		}})
		ended := make(chan error, 3)
		for range cap(ended) {
			go func() {
				_, err := f.call(t.Context(), a)
				ended <- err
			}()
		}
		synctest.Wait()
		close(answer)
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, failed) {
				t.Errorf("a request: %v", err)
			}
		}
		if asked != 1 {
			t.Errorf("%d logins were started, want one", asked)
		}
	})
}

// Login waits for the login that a request waits for, and does not end it.
//
// Guarantees: G-0044.9
func TestLoginLeavesAPageThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, answer := newOffline(authtest.Options{}), make(chan struct{})
		var asked []context.Context
		a := f.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
			asked = append(asked, ctx)
			<-answer
			return f.consent(ctx, i)
		}})
		ended := make(chan error, 2)
		go func() {
			_, err := f.call(t.Context(), a)
			ended <- err
		}()
		synctest.Wait()
		go func() { ended <- a.Login(t.Context()) }()
		synctest.Wait()
		if len(asked) != 1 || asked[0].Err() != nil {
			t.Errorf("%d logins were started; the first has ended: %v", len(asked), asked[0].Err())
		}
		close(answer)
		for range cap(ended) {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if len(asked) != 2 {
			t.Errorf("%d logins were started, want that of the request and that of the person", len(asked))
		}
	})
}
