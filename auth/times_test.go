package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// sentTokens records the tokens that the protected server gets, "" for none.
func (f *offline) sentTokens() *[]string {
	sent, server := new([]string), f.server
	f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*sent = append(*sent, tokenOf(r))
		server.ServeHTTP(w, r)
	})
	return sent
}

// A token is refreshed behind the requests after 80 % of its life, and is used until ten seconds before its end, or for nine
// tenths of its life if that is longer.
//
// Guarantees: G-0044.3, G-0044.6
func TestWhenATokenIsRefreshed(t *testing.T) {
	const kept, behind, first = "no refresh", "a refresh behind", "a refresh first"
	for _, c := range []struct {
		life, at time.Duration
		want     string
	}{
		{time.Hour, 48 * time.Minute, kept},
		{time.Hour, 48*time.Minute + 1, behind},
		{time.Hour, time.Hour - 10*time.Second, behind},
		{time.Hour, time.Hour - 10*time.Second + 1, first},
		{100 * time.Second, 80 * time.Second, kept},
		{100 * time.Second, 90 * time.Second, behind},
		{100 * time.Second, 90*time.Second + 1, first},
		{50 * time.Second, 45 * time.Second, behind},
		{50 * time.Second, 45*time.Second + 1, first},
	} {
		for name, request := range map[string]func(*testing.T, *offline, *Authorizer) string{
			"Authorize": func(t *testing.T, f *offline, a *Authorizer) string {
				sent := f.sentTokens()
				f.wantCall(t, a)
				return (*sent)[0]
			},
			"Bearer": func(t *testing.T, _ *offline, a *Authorizer) string {
				to, err := url.Parse(offlineURL)
				if err != nil {
					t.Fatal(err)
				}
				for _, value := range a.Bearer(t.Context(), to) {
					return value[len("Bearer "):]
				}
				return ""
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				f := newOffline(authtest.Options{Life: c.life})
				a := f.login(t, Options{Interact: f.consent, Offline: true})
				f.wantCall(t, a)
				old := a.current.Load().access()
				sleep(c.at)
				token := request(t, f, a)
				synctest.Wait()
				refreshes := f.tokenRequests("refresh_token")
				switch {
				case c.want == first && name == "Bearer" && (token != "" || refreshes != 0),
					c.want == first && name == "Authorize" && (token == old || refreshes != 1),
					c.want == behind && (token != old || refreshes != 1),
					c.want == kept && (token != old || refreshes != 0):
					t.Errorf("%s %v after the beginning of a life of %v: %d refreshes, the old token is sent: %t; want %s", name, c.at, c.life, refreshes, token == old, c.want)
				}
			})
		}
	}
}

// Of a token that is refused within a minute after the program has got it, age is not the reason: it is not refreshed.
//
// Guarantees: G-0044.3, G-0044.8
func TestAnOldTokenThatIsRefusedIsRefreshed(t *testing.T) {
	for age, refreshes := range map[time.Duration]int{0: 0, time.Minute - 1: 0, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			a := f.login(t, Options{Interact: f.consent, Offline: true})
			f.wantCall(t, a)
			sleep(age)
			refused, server := a.current.Load().header[0], f.server
			f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == refused {
					r.Header.Del("Authorization")
				}
				server.ServeHTTP(w, r)
			})
			f.wantCall(t, a)
			if n, logins := f.tokenRequests("refresh_token"), f.tokenRequests("authorization_code"); n != refreshes || logins != 2-refreshes {
				t.Errorf("after %v: %d refreshes and %d logins, want %d refreshes", age, n, logins, refreshes)
			}
		})
	}
}

// A login that a request has begun ends after five minutes, and says why. One that the program has begun ends with its
// context.
//
// Guarantees: G-0044.4, G-0044.9
func TestHowLongAPersonIsAwaited(t *testing.T) {
	for name, begin := range map[string]func(context.Context, *offline, *Authorizer) error{
		"a request": func(ctx context.Context, f *offline, a *Authorizer) error { _, err := f.call(ctx, a); return err },
		"Login":     func(ctx context.Context, _ *offline, a *Authorizer) error { return a.Login(ctx) },
	} {
		for _, device := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newOffline(authtest.Options{})
				o := Options{Interact: func(ctx context.Context, _ Interaction) (*url.URL, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}}
				if device {
					o = Options{Grant: Device{Show: func(ctx context.Context, _ DeviceCode) error {
						<-ctx.Done()
						return context.Cause(ctx)
					}}}
					f.as.Lie(authtest.Device, setMember("expires_in", 3600))
				}
				a := f.login(t, o)
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute)
				defer cancel()
				start := time.Now()
				err := begin(ctx, f, a)
				took, want, nobody := time.Since(start), 7*time.Minute, false
				if name == "a request" {
					want, nobody = 5*time.Minute, true
				}
				if took != want || errors.Is(err, ErrUnanswered) != nobody || !nobody && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, with a device: %t: after %v: %v; want the end after %v", name, device, took, err, want)
				}
				if text := "within 5m0s"; nobody && !errorEnds(err, text) {
					t.Errorf("%s: %v, want ... %s", name, err, text)
				}
			})
		}
	}
}

func errorEnds(err error, text string) bool {
	whole := errorText(err)
	return len(whole) >= len(text) && whole[len(whole)-len(text):] == text
}

// A hangingStore is a Store whose lock is never given.
type hangingStore struct {
	*Memory
	hangs atomic.Bool
}

func (s *hangingStore) Locked(ctx context.Context, k Key, f func(*Entry) (*Entry, error)) error {
	if !s.hangs.Load() {
		return s.Memory.Locked(ctx, k, f)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// A refresh, and the saving of a new login, wait for the lock of the Store for at most 30 s, and go on when their request
// has ended.
//
// Guarantees: G-0044.4
func TestAStoreThatHangs(t *testing.T) {
	patient, hurried := time.Hour, time.Second
	for name, c := range map[string]struct {
		patience time.Duration // of the request
		refresh  bool
		took     time.Duration
		fails    error
	}{
		"a refresh":                        {patient, true, 30 * time.Second, context.DeadlineExceeded},
		"a refresh whose request has left": {hurried, true, time.Second, context.DeadlineExceeded},
		"a login":                          {patient, false, 30 * time.Second, nil},
		"a login whose request has left":   {hurried, false, time.Second, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOffline(authtest.Options{Clients: []authtest.Client{{ID: "known", Auth: "none", Redirects: []string{testRedirect}}}})
				s := &hangingStore{Memory: NewMemory()}
				a := f.login(t, Options{Store: s, Interact: f.consent, Offline: true, Registered: []Registered{{Issuer: offlineIssuer, ID: "known"}}})
				if c.refresh {
					f.wantCall(t, a)
					sleep(2 * time.Hour)
				}
				s.hangs.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), c.patience)
				defer cancel()
				start := time.Now()
				_, err := f.call(ctx, a)
				if took := time.Since(start); took != c.took || !errors.Is(err, c.fails) {
					t.Errorf("the call took %v: %v; want %v, %v", took, err, c.took, c.fails)
				}
				a.jobs.goroutines.Wait()
				if took := time.Since(start); took != 30*time.Second {
					t.Errorf("the lock was awaited for %v", took)
				}
				s.hangs.Store(false)
				sleep(time.Second) // until the next refresh
				f.wantCall(t, a)
				if n := f.tokenRequests("authorization_code"); n != 1 {
					t.Errorf("%d logins, want one", n)
				}
			})
		})
	}
}

// An exchange that has begun is finished and saved, whoever has left.
//
// Guarantees: G-0044.4
func TestAnExchangeIsFinished(t *testing.T) {
	for name, o := range map[string]func(*offline) Options{
		"a code": byConsent,
		"a device": func(*offline) Options {
			return Options{Grant: Device{Show: func(context.Context, DeviceCode) error { return nil }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOffline(authtest.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				f.fetch = func(r *http.Request) (*http.Response, error) {
					if r.URL.Path != "/token" {
						return nil, nil
					}
					cancel() // the person who waits for Login leaves
					pause(r.Context(), 5*time.Second)
					return nil, r.Context().Err()
				}
				a := f.login(t, o(f))
				if err := a.Login(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Login: %v", err)
				}
				a.jobs.goroutines.Wait()
				if e, err := a.Status(t.Context()); e == nil || err != nil || e.Access.IsZero() {
					t.Errorf("the login is %+v, %v", e, err)
				}
			})
		})
	}
}

// A registration whose redirect did not come is deleted although the caller of Login has left.
//
// Guarantees: G-0044.22
func TestAnAbandonedLoginOfThePersonDeletesTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{})
		a := f.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
			if _, err := i.Start(ctx, testRedirect); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.Login(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Login: %v", err)
		}
		a.jobs.goroutines.Wait()
		if e, err := a.store.Load(t.Context(), Key{Issuer: offlineIssuer}); e != nil || err != nil || len(f.as.Sink.Requests(authtest.Register)) != 1 {
			t.Errorf("the registration is %+v, %v", e, err)
		}
	})
}

// A server that does not say what it requires is awaited for ten seconds.
func TestAServerThatDoesNotSayWhatItRequires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{})
		f.fetch = func(r *http.Request) (*http.Response, error) {
			if r.URL.String() == offlineURL {
				<-r.Context().Done()
			}
			return nil, r.Context().Err()
		}
		start := time.Now()
		if err := f.login(t, byConsent(f)).Login(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("Login: %v after %v", err, time.Since(start))
		}
	})
}

// Login waits for a refresh that is under way, but not longer than its context.
//
// Guarantees: G-0044.4
func TestALoginDoesNotWaitLongerForARefresh(t *testing.T) {
	f := newOffline(authtest.Options{})
	a := f.login(t, Options{Interact: f.consent, Offline: true})
	f.wantCall(t, a)
	expireBy(t, a, 50*time.Minute) // of an hour: it is due
	asked, answer := make(chan struct{}), make(chan struct{})
	f.fetch = func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/token" {
			close(asked)
			<-answer
		}
		return nil, nil
	}
	f.wantCall(t, a)
	testenv.Receive(t, asked, "a refresh is under way")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Login(ctx) }()
	cancel()
	if err := testenv.Receive(t, ended, "the login ends"); !errors.Is(err, context.Canceled) {
		t.Errorf("Login: %v", err)
	}
	f.fetch = nil
	close(answer)
	a.jobs.goroutines.Wait()
}

// The error of a refused token request says how far the clock of the server is off, if that is more than five minutes.
//
// Guarantees: G-0044.5
func TestHowFarAClockIsOff(t *testing.T) {
	for off, want := range map[time.Duration]string{
		0: "", 5 * time.Minute: "", -5 * time.Minute: "",
		5*time.Minute + time.Second:  " (its clock differs from the one here by 5m1s)",
		-5*time.Minute - time.Second: " (its clock differs from the one here by -5m1s)",
		24 * time.Hour:               " (its clock differs from the one here by 24h0m0s)",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			if off == 24*time.Hour {
				sleep(300 * time.Millisecond) // the error names whole seconds
			}
			f.as.Lie(authtest.Token, func(a *authtest.Answer) {
				a.Header.Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
				a.Status, a.Body = http.StatusBadRequest, []byte(`{"error":"invalid_request"}`)
			})
			var refused *TokenError
			if err := f.login(t, byConsent(f)).Login(t.Context()); !errors.As(err, &refused) || refused.Error() != "auth: as.example gave no token: status 400, invalid_request"+want {
				t.Errorf("%v, want ...%s", err, want)
			}
		})
	}
}

// If a server refuses every token, a person is asked three times in ten minutes, also by requests with a token that is old by
// now and that a refresh does not replace.
//
// Guarantees: G-0044.8
func TestAServerThatRefusesAllTokensDoesNotAskEveryMinute(t *testing.T) {
	for _, offline := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.server = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			asked := 0
			a := f.login(t, Options{Offline: offline, Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
				asked++
				return f.consent(ctx, i)
			}})
			for minute := range 20 {
				if status, err := f.call(t.Context(), a); status != http.StatusUnauthorized || err != nil {
					t.Errorf("after %d minutes: status %d, %v", minute, status, err)
				}
				if most := 3 * (1 + minute/10); asked > most {
					t.Fatalf("offline %t, after %d minutes: a person was asked %d times, want at most %d", offline, minute, asked, most)
				}
				sleep(time.Minute + time.Second)
			}
		})
	}
}

// That holds for any ten minutes, also if each request is given up after its first refusal and the token is old at the next.
//
// Guarantees: G-0044.8
func TestRequestsThatAreGivenUpDoNotAskForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{})
		var asks []time.Time
		a := f.login(t, Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
			asks = append(asks, time.Now())
			return f.consent(ctx, i)
		}})
		refused := &transport.StatusError{Status: http.StatusUnauthorized, Challenge: `Bearer resource_metadata="` + f.as.URL(authtest.ResourceMetadata) + `"`}
		for minute := range 40 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, offlineURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Authorize(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Challenged(t.Context(), r, refused); err != nil {
				t.Fatal(err)
			}
			if n := len(asks); n > 3 && asks[n-1].Sub(asks[n-4]) <= 10*time.Minute {
				t.Fatalf("in minute %d a person is asked for the fourth time in %v", minute, asks[n-1].Sub(asks[n-4]))
			}
			sleep(time.Minute + time.Second)
		}
		if len(asks) < 4 {
			t.Errorf("a person was asked %d times, want more after ten minutes", len(asks))
		}
	})
}

// A token that ends on its way is no refused one: each is followed by a login, however many there are.
//
// Guarantees: G-0044.8
func TestTokensThatEndOnTheirWayAreNoRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{Life: 2 * time.Minute})
		protected, slow := f.server, false
		f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" && slow {
				slow = false
				sleep(2*time.Minute + time.Second)
			}
			protected.ServeHTTP(w, r)
		})
		a := f.login(t, byConsent(f))
		f.wantCall(t, a)
		for range 5 {
			slow = true
			f.wantCall(t, a)
		}
	})
}

// A 403 that says which scopes there are, and not that the token lacks them, leads to no login: another token would not help.
//
// Guarantees: G-0044.8
func TestAForbiddenRequestWithScopesAlone(t *testing.T) {
	f := newOffline(authtest.Options{})
	protected := f.server
	f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			protected.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer scope="admin"`)
		w.WriteHeader(http.StatusForbidden)
	})
	if status, err := f.call(t.Context(), f.login(t, byConsent(f))); status != http.StatusForbidden || err != nil {
		t.Errorf("status %d, %v, want the refusal", status, err)
	}
	if n := len(f.as.Sink.Requests(authtest.Authorize)); n != 1 {
		t.Errorf("%d logins were started, want 1", n)
	}
}

// While a person does not come to one program, another logs in: the first uses that login.
//
// Guarantees: G-0044.9
func TestALoginOfAnotherProgramEndsTheWaitForAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{})
		store, comes := NewMemory(), true
		waits := f.login(t, Options{Store: store, Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
			if !comes {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return f.consent(ctx, i)
		}})
		f.wantCall(t, waits)
		comes = false
		f.as.RevokeAll()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if status, err := f.call(impatient, waits); status == http.StatusOK || err == nil {
			t.Fatalf("a call without a login: status %d, %v", status, err)
		}
		f.wantCall(t, f.login(t, Options{Store: store, Interact: f.consent}))
		start := time.Now()
		f.wantCall(t, waits)
		if took := time.Since(start); took > 0 {
			t.Errorf("it waited for %v", took)
		}
	})
}

// After refusals, a request whose token has ended logs in all the same: that the server refused others says nothing about its
// next one.
//
// Guarantees: G-0044.8
func TestARequestWithoutATokenLogsInAfterRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOffline(authtest.Options{Life: 2 * time.Minute})
		protected, refuses := f.server, true
		f.server = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuses {
				r.Header.Del("Authorization")
			}
			protected.ServeHTTP(w, r)
		})
		a := f.login(t, Options{Interact: f.consent})
		if status, err := f.call(t.Context(), a); status != http.StatusUnauthorized || err != nil {
			t.Fatalf("status %d, %v", status, err)
		}
		refuses = false
		sleep(3 * time.Minute)
		f.wantCall(t, a)
	})
}
