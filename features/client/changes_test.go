package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Changes yields losses and recoveries in turn, each once. It skips none, not even one
// that ended before the loop looked.
//
// Guarantees: G-0030.10
func TestChangesOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{})
		var reported []string
		var cuts [3]time.Time
		busy := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for status := range session.Changes(t.Context()) {
				text := fmt.Sprintf("%d ready", status.Epoch)
				if status.State != client.Ready {
					text = fmt.Sprintf("%d lost: %s", status.Epoch, status.Reason.Kind)
					if status.LastFailure.Kind != conn.PeerEnded || status.Since.Before(cuts[status.Epoch-1]) {
						t.Errorf("%s: the last failure is %q, and it is lost since %v", text, status.LastFailure.Kind, status.Since)
					}
				}
				if reported = append(reported, text); len(reported) == 1 {
					<-busy
				}
			}
		}()
		synctest.Wait()
		for i := range cuts { // the first two happen while the loop is busy
			cuts[i] = time.Now()
			s.cut()
			if pass(time.Minute); i == 1 {
				close(busy)
				synctest.Wait()
			}
		}
		synctest.Wait()
		want := []string{"1 ready", "1 lost: peer ended", "3 ready", "3 lost: peer ended", "4 ready"}
		if !slices.Equal(reported, want) {
			t.Errorf("got the events %q, want %q", reported, want)
		}
		session.Stop()
		<-ended
		if err := session.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// A silencedServer answers until its connection is lost, and never again.
type silencedServer struct {
	fakeServer
	silent atomic.Bool
}

func newSilencedServer() *silencedServer {
	s, answers := new(silencedServer), allAnswers(protocol.LatestLegacy)
	s.answer = func(f frame) []string {
		if s.silent.Load() {
			return nil
		}
		return answers(f)
	}
	return s
}

// lose breaks the connection, and returns when the next attempt waits for an answer.
func (s *silencedServer) lose(t *testing.T, session *client.Session) {
	t.Helper()
	s.silent.Store(true)
	s.cut()
	pass(2 * time.Second)
	synctest.Wait()
	if now := session.Status().State; now != conn.Initializing {
		t.Errorf("the state is %s", now)
	}
}

// A loop that looks when the next attempt has already begun still learns why the session
// was lost.
func TestChangesSayWhyThereWasALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencedServer()
		session := openFake(t, &s.fakeServer, client.Options{})
		for status := range session.Changes(t.Context()) {
			if status.State == client.Ready {
				s.lose(t, session)
				continue
			}
			if status.Reason.Kind != conn.PeerEnded {
				t.Errorf("the loss has the reason %q", status.Reason.Kind)
			}
			break
		}
	})
}

// So does the Lost event, if the goroutine that tells it was held up by middleware until then.
//
// Guarantees: G-0030.2
func TestALostEventSaysWhyThereWasALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilencedServer()
		goesOn, lost := make(chan struct{}), make(chan client.Reason, 1)
		session := openFake(t, &s.fakeServer, client.Options{
			LogLevel: protocol.LogInfo,
			OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				if e, ok := e.(*client.Lost); ok {
					lost <- e.Reason
				}
			},
			Middleware: []client.Middleware{func(next client.Handler) client.Handler {
				return func(ctx context.Context, r *client.Request) (any, error) {
					if r.Method == protocol.MethodSetLogLevel {
						<-goesOn
					}
					return next(ctx, r)
				}
			}},
		})
		synctest.Wait()
		s.lose(t, session)
		close(goesOn)
		if why := <-lost; why.Kind != conn.PeerEnded {
			t.Errorf("the loss has the reason %q, want %q", why, conn.PeerEnded)
		}
	})
}

// The loop over Changes ends with its context, and when the program leaves it.
func TestChangesEndWithContextAndBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session := openFake(t, &fakeServer{answer: allAnswers(protocol.LatestLegacy)}, client.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		rounds := 0
		for status := range session.Changes(ctx) {
			if rounds++; status.State != client.Ready {
				t.Errorf("the state is %s, want %v", status.State, client.Ready)
			}
		}
		for range session.Changes(t.Context()) {
			rounds++
			break
		}
		if rounds != 2 {
			t.Errorf("%d rounds", rounds)
		}
	})
}

// plainSite returns the URL of an HTTP server.
func plainSite(t *testing.T, serve http.Handler) (url string) {
	site := httptest.NewServer(serve)
	t.Cleanup(site.Close)
	return site.URL
}

// errors.Is distinguishes the common causes of failure, for Connect and for calls.
func TestCommonFailuresHaveNames(t *testing.T) {
	connecting := func(to transport.Transport, within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := client.New(clientInfo, client.Options{}).Connect(ctx, to)
		return err
	}
	refusing := newSite(t, server.New(serverInfo, server.Options{}))
	refusing.kill()
	defer refusing.start()
	denying := plainSite(t, responds(http.StatusUnauthorized, "text/plain", "who?"))
	other := plainSite(t, answersInitialize("1999-01-01"))
	const hangs = time.Minute
	all := []error{client.ErrUnavailable, client.ErrDenied, client.ErrIncompatible, client.ErrTimedOut, client.ErrLost, client.ErrClosed}
	for name, c := range map[string]struct {
		err  error
		want []error
	}{
		"denied": {connecting(&streamable.Client{URL: denying}, hangs), []error{client.ErrUnavailable, client.ErrDenied}},
		"no login": {connecting(openFunc(func(context.Context) (transport.Link, error) {
			return nil, &auth.LoginError{Err: auth.ErrUnanswered}
		}), hangs), []error{client.ErrUnavailable, client.ErrDenied}},
		"incompatible": {connecting(&streamable.Client{URL: other}, hangs), []error{client.ErrUnavailable, client.ErrIncompatible}},
		"in time":      {connecting(&streamable.Client{URL: "http://" + refusing.address}, time.Second), []error{client.ErrUnavailable, client.ErrTimedOut}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, target := range all {
				if got := errors.Is(c.err, target); got != slices.Contains(c.want, target) {
					t.Errorf("errors.Is(%v, %v) is %t, want %t", c.err, target, got, !got)
				}
			}
		})
	}

	session, err := client.New(clientInfo, client.Options{Conn: conn.Tuning{BackoffMin: time.Hour}}).Start(timeoutContext(t), "denied", &streamable.Client{URL: denying})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	for status := session.Status(); status.State != conn.Backoff; status = session.Status() {
		<-status.Changed()
	}
	if err := session.Ping(timeoutContext(t)); !errors.Is(err, client.ErrDenied) || !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a call: %v, want the error %v and the error %v", err, client.ErrDenied, client.ErrUnavailable)
	}
}
