package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// An outcome says what a link or its peer does with a request that the link is offered.
type outcome struct {
	name     string
	apply    func(*script, transport.Outbound) error
	cause    conn.Cause
	executed bool // the peer may have executed the request
	retried  bool // if the policy of the caller allows it
}

func (f outcome) String() string { return f.name }

// askedFor is the delay that an overloaded peer asks for.
const askedFor = 7 * time.Minute

var (
	answered = outcome{"answered", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":[%d]}`, o.Tag, o.Tag))
		return nil
	}, conn.Answered, true, false}
	faulted = outcome{"peer error", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no"}}`, o.Tag))
		return nil
	}, conn.PeerError, true, false}
	garbled = outcome{"malformed answer", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{},"error":null}`, o.Tag))
		return nil
	}, conn.PeerError, true, false}
	silence = outcome{"silence", func(*script, transport.Outbound) error { return nil }, conn.TimedOut, true, false}
	lost    = outcome{"link lost", func(s *script, _ transport.Outbound) error {
		s.lose(transport.Loss{Reason: io.EOF})
		return nil
	}, conn.LinkLost, true, true}
	lostUnsent = outcome{"link lost, unsent", func(s *script, o transport.Outbound) error {
		s.lose(transport.Loss{Reason: io.EOF, Unsent: []transport.Tag{o.Tag}})
		return nil
	}, conn.LinkLost, false, true}
	streamLost = outcome{"stream lost", func(s *script, o transport.Outbound) error {
		s.receiver.StreamOpened(transport.Stream(o.Tag)+1, o.Tag)
		s.receiver.StreamLost(transport.StreamLoss{Stream: transport.Stream(o.Tag) + 1, Reason: io.EOF})
		return nil
	}, conn.LinkLost, true, true}
	failedUnsent = outcome{"failed, unsent", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: transport.ErrClosed, Unsent: true})
		return nil
	}, conn.LinkLost, false, true}
	refused = outcome{"refused", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 401}, Unsent: true})
		return nil
	}, conn.Refused, false, false}
	overloaded = outcome{"overloaded", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 503, RetryAfter: askedFor}, Unsent: true})
		return nil
	}, conn.Refused, false, true}
	overloadError = outcome{"overloaded, says an error", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32050,"message":"busy"}}`, o.Tag))
		return nil
	}, conn.PeerError, false, true}
	noRoute  = outcome{"no route", func(*script, transport.Outbound) error { return transport.ErrNoRoute }, conn.Refused, false, false}
	linkBusy = outcome{"busy", func(*script, transport.Outbound) error { return transport.ErrBusy }, 0, false, false} // does not count as an attempt

	outcomes = []outcome{answered, faulted, garbled, silence, lost, lostUnsent, streamLost, failedUnsent, refused, overloaded, overloadError, noRoute, linkBusy}
)

// An outcomeTransport gives its outcomes to requests, one after the other. It answers all later ones.
type outcomeTransport struct {
	outcomes []outcome

	mu   sync.Mutex
	ids  []int64 // of the requests, each once
	sent []time.Time
	link *script // the latest
}

func (f *outcomeTransport) Open(context.Context) (transport.Link, error) {
	f.link = &script{onSend: f.send}
	return f.link, nil
}

func (f *outcomeTransport) send(s *script, o transport.Outbound) error {
	if o.Tag == 0 {
		return nil
	}
	f.mu.Lock()
	if !slices.Contains(f.ids, int64(o.Tag)) {
		f.ids, f.sent = append(f.ids, int64(o.Tag)), append(f.sent, time.Now())
	}
	outcome := f.outcomeOf(len(f.ids) - 1)
	f.mu.Unlock()
	return outcome.apply(s, o)
}

func (f *outcomeTransport) outcomeOf(n int) outcome {
	if n < len(f.outcomes) {
		return f.outcomes[n]
	}
	return answered
}

// dropBusy removes the attempts for which the link was busy.
func (f *outcomeTransport) dropBusy() {
	var ids []int64
	var outcomes []outcome
	for i, id := range f.ids {
		if assigned := f.outcomeOf(i); assigned.name != linkBusy.name {
			ids, outcomes = append(ids, id), append(outcomes, assigned)
		}
	}
	f.ids, f.outcomes = ids, outcomes
}

// runWithOutcomes runs an initiator whose requests have these outcomes, and waits until it is ready.
func runWithOutcomes(t failing, o conn.Options, outcomes ...outcome) (run, *outcomeTransport) {
	f := &outcomeTransport{outcomes: outcomes}
	r := start(conn.New(f, o))
	synctest.Wait()
	if state := r.State(); state != conn.Ready {
		t.Fatalf("the state is %s, want ready", state)
	}
	return r, f
}

type failing interface{ Fatalf(string, ...any) }

// Whatever the outcomes of a call's attempts and whatever its policy: it is sent again only as the policy
// allows, and its error and OnAttempt say what the peer may have executed.
//
// Guarantees: G-0023.1, G-0023.2, G-0023.3, G-0023.4, G-0023.5
func TestRetriesFollowTheirPolicy(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		assigned := rapid.SliceOfN(rapid.SampledFrom(outcomes), 0, 5).Draw(rt, "outcomes")
		var reported []conn.Attempt
		request := conn.Request{
			Method: "buy", Timeout: time.Second,
			Retries:      rapid.IntRange(0, 3).Draw(rt, "retries"),
			Repeatable:   rapid.Bool().Draw(rt, "repeatable"),
			WaitForReady: rapid.Bool().Draw(rt, "waits"),
			OnAttempt:    func(a conn.Attempt) { reported = append(reported, a) },
		}
		rapid.SyncTest(rt, func(rt *rapid.T) {
			r, f := runWithOutcomes(rt, conn.Options{}, assigned...)
			result, err := r.Call(context.Background(), request)
			r.Stop()
			<-r.ended
			f.dropBusy()
			checkAttempts(rt, f, request)
			checkEnd(rt, f, result, err, reported)
			stats := r.Stats()
			if stats.Calls != 1 || stats.Ended() != 1 || stats.Retries != uint64(len(f.ids)-1) {
				rt.Fatalf("got %+v, want one call that has ended and %d retries", stats, len(f.ids)-1)
			}
		})
	})
}

// checkAttempts checks that there were as many attempts as the request allows.
func checkAttempts(t failing, f *outcomeTransport, r conn.Request) {
	for i := range f.ids {
		outcome, last := f.outcomeOf(i), i == len(f.ids)-1
		allowed := outcome.retried && (r.Repeatable || !outcome.executed)
		switch {
		case i > r.Retries:
			t.Fatalf("%d attempts with %d Retries, want one more than Retries at most", len(f.ids), r.Retries)
		case i > 0 && f.ids[i] <= f.ids[i-1]:
			t.Fatalf("the ids are %v, want them to increase", f.ids)
		case !last && !allowed:
			t.Fatalf("another attempt was made after %v, want none", outcome)
		case last && allowed && i < r.Retries:
			t.Fatalf("no attempt was made after %v, want one", outcome)
		}
	}
}

// checkEnd checks the result of the call, its error, and the attempts that were reported.
func checkEnd(t failing, f *outcomeTransport, result json.RawMessage, err error, reported []conn.Attempt) {
	last, id := f.outcomeOf(len(f.ids)-1), f.ids[len(f.ids)-1]
	executed := false
	for i := range f.ids {
		executed = executed || f.outcomeOf(i).executed
	}
	for i, a := range reported {
		unknown := a.Delivery == conn.Unknown
		if a.ID != f.ids[i] || a.Cause != f.outcomeOf(i).cause || unknown != f.outcomeOf(i).executed || a.Err == nil || a.Epoch == 0 {
			t.Fatalf("attempt %d, %v, was reported as %+v", i, f.outcomeOf(i), a)
		}
	}
	if len(reported) != len(f.ids)-1 {
		t.Fatalf("%d attempts were reported, want %d", len(reported), len(f.ids)-1)
	}
	var failed *conn.CallError
	switch {
	case last.cause == conn.Answered:
		if err != nil || string(result) != fmt.Sprintf("[%d]", id) {
			t.Fatalf("got %s, %v; want [%d]", result, err, id)
		}
	case !errors.As(err, &failed) || failed.Cause != last.cause || failed.ID != id || !slices.Equal(failed.Attempts, reported):
		t.Fatalf("after %v the error is %#v, want id %d, cause %s and the attempts %v", last, err, id, last.cause, reported)
	case conn.NotExecuted(err) == executed:
		t.Fatalf("NotExecuted is %t for %v, want %t", executed, err, !executed)
	case failed.Cause != conn.PeerError && len(reported) > 0 && !strings.Contains(err.Error(), fmt.Sprintf("(%d attempts)", len(reported)+1)):
		t.Fatalf("the error does not name %d attempts: %v", len(reported), err)
	}
}

// A call that is retried after a loss waits until the Conn is ready, but ends with its context.
//
// Guarantees: G-0023.6
func TestRetryWaitsForReadyAndNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var stopped telemetry.RequestStopped
		hooks := telemetry.Hooks{RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { stopped = e }}
		r, f := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{BackoffMin: time.Minute, BackoffMax: time.Minute, Hooks: hooks}}, lost)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		result := r.calling(ctx, conn.Request{Method: "read", Retries: 1, Repeatable: true})
		err := <-result
		wantEnd(t, err, conn.TimedOut, conn.Unknown) // the attempt that was lost may have been executed
		if took := time.Since(began); took != 10*time.Second || len(f.ids) != 1 {
			t.Errorf("it ended after %v and %d attempts, want 10s and 1", took, len(f.ids))
		}
		var failed *conn.CallError
		if errors.As(err, &failed); len(failed.Attempts) != 1 || failed.Attempts[0].Cause != conn.LinkLost || failed.ID != failed.Attempts[0].ID {
			t.Errorf("got %+v, want one attempt with LinkLost", failed)
		}
		if r.Stats().Retries != 0 || stopped.Attempts != 1 {
			t.Errorf("got %+v and %+v, want no retry and one attempt", r.Stats(), stopped)
		}
		r.Stop()
		<-r.ended
	})
}

// A call in backoff counts as a refused attempt, and is retried when the Conn is ready.
//
// Guarantees: G-0023.6
func TestCallInBackoffIsRetriedOnceReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, lost, answered)
		<-r.calling(t.Context(), conn.Request{Method: "read"})
		if r.State() != conn.Backoff {
			t.Fatalf("the state is %s, want backoff", r.State())
		}
		var reported []conn.Attempt
		_, err := r.Call(t.Context(), conn.Request{Method: "buy", Retries: 1, OnAttempt: func(a conn.Attempt) { reported = append(reported, a) }})
		if err != nil || len(f.ids) != 2 || len(reported) != 1 || reported[0].Cause != conn.Refused || reported[0].Delivery != conn.NotSent {
			t.Errorf("got %v after %d requests, reported %v; want no error, 2, one refused attempt",
				err, len(f.ids), reported)
		}
		r.Stop()
		<-r.ended
	})
}

// If the link survives, the call waits for a backoff of its own before each retry, and the caller hears of the attempt before that.
//
// Guarantees: G-0023.7
func TestRetryOnALivingLinkWaitsLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, failedUnsent, streamLost, failedUnsent)
		var told []time.Time
		_, err := r.Call(t.Context(), conn.Request{Method: "read", Retries: 3, Repeatable: true, OnAttempt: func(conn.Attempt) { told = append(told, time.Now()) }})
		if err != nil || r.Status().Epoch != 1 {
			t.Fatalf("in epoch %d got %v, want no error in epoch 1", r.Status().Epoch, err)
		}
		for i, ideal := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if wait := f.sent[i+1].Sub(f.sent[i]); wait < max(ideal*8/10, time.Second) || wait > ideal*12/10 {
				t.Errorf("the delay before attempt %d is %v, want about %v", i+2, wait, ideal)
			} else if late := told[i].Sub(f.sent[i]); late != 0 {
				t.Errorf("the caller has heard of attempt %d after %v", i+1, late)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// A call that waits for its next attempt ends at once when the Conn stops or closes.
//
// Guarantees: G-0023.4
func TestRetryEndsWithTheConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, end := range map[string]func(run){
			"stopped": func(r run) { r.Stop() },
			"closed":  func(r run) { r.Close(context.Background()) },
		} {
			for where, first := range map[string]outcome{"in backoff": lost, "on a living link": streamLost} {
				r, f := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{BackoffMin: time.Minute, BackoffMax: time.Minute}}, first)
				result := r.calling(t.Context(), conn.Request{Method: "read", Retries: 5, Repeatable: true})
				began := time.Now()
				end(r)
				err := <-result
				wantEnd(t, err, conn.ShutDown, conn.Unknown)
				if took := time.Since(began); took != 0 || len(f.ids) != 1 {
					t.Errorf("%s %s: it ended after %v and %d attempts, want at once and 1", name, where, took, len(f.ids))
				}
				<-r.ended
			}
		}
	})
}

// A call is not retried after a final loss, which closes the Conn.
//
// Guarantees: G-0023.4
func TestLossThatIsFinalIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Final: func(conn.Reason) bool { return true }}}, lost)
		reported := 0
		err := <-r.calling(t.Context(), conn.Request{Method: "read", Retries: 5, Repeatable: true, OnAttempt: func(conn.Attempt) { reported++ }})
		wantEnd(t, err, conn.LinkLost, conn.Unknown)
		if reported != 0 {
			t.Errorf("%d attempts were reported, want none", reported)
		}
		<-r.ended
	})
}

// MessageFor is called for each attempt, while the Conn is ready, with the id and the epoch of it.
//
// Guarantees: G-0023.8
func TestMessageForIsCalledForEachAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &outcomeTransport{outcomes: []outcome{lost}}
		var links []*script
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, &script{onSend: f.send})
			return links[len(links)-1], nil
		}), conn.Options{}))
		synctest.Wait()
		var states []conn.State
		request := conn.Request{Method: "m", Retries: 1, Repeatable: true, WaitForReady: true,
			MessageFor: conn.MessageFunc(func(_ context.Context, id int64, epoch uint64) (conn.Message, error) {
				states = append(states, r.State())
				return conn.Message{Params: json.RawMessage(fmt.Sprintf(`[%d,%d]`, id, epoch))}, nil
			})}
		if _, err := r.Call(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		first, second := links[0].frames(), links[1].frames()
		want := `{"jsonrpc":"2.0","id":%d,"method":"m","params":[%[1]d,%d]}`
		if !slices.Equal(first, []string{fmt.Sprintf(want, f.ids[0], 1)}) || !slices.Equal(second, []string{fmt.Sprintf(want, f.ids[1], 2)}) {
			t.Errorf("sent %q and %q, want the ids %v in the epochs 1 and 2", first, second, f.ids)
		}
		if !slices.Equal(states, []conn.State{conn.Ready, conn.Ready}) {
			t.Errorf("MessageFor was called in the states %v, want ready twice", states)
		}
		r.Stop()
		<-r.ended
	})
}

// MessageFor is not called while the Conn is not ready.
//
// Guarantees: G-0023.8
func TestMessageForIsCalledWhileReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{}, lost)
		<-r.calling(t.Context(), conn.Request{Method: "m"})
		var epochs []uint64
		request := conn.Request{Method: "m", MessageFor: conn.MessageFunc(func(_ context.Context, _ int64, epoch uint64) (conn.Message, error) {
			epochs = append(epochs, epoch)
			return conn.Message{}, nil
		})}
		_, err := r.Call(t.Context(), request)
		if state := new(conn.StateError); !errors.As(err, &state) || len(epochs) > 0 {
			t.Errorf("in backoff: got %v, called for the epochs %v; want a StateError and none", err, epochs)
		}
		request.WaitForReady = true
		if _, err := r.Call(t.Context(), request); err != nil || !slices.Equal(epochs, []uint64{2}) {
			t.Errorf("got %v, called for the epochs %v; want no error and 2", err, epochs)
		}
		r.Stop()
		<-r.ended
	})
}

// If the incarnation is lost while MessageFor runs, the message is not sent on the next one. The call
// gets a new message if it waits or is retried, and otherwise ends with ErrStale.
//
// Guarantees: G-0003.4, G-0023.6
func TestMessageForALostIncarnationIsNotSent(t *testing.T) {
	for name, request := range policies {
		bubble(t, func(t *testing.T) {
			var link *script
			f := new(outcomeTransport)
			r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
				link = &script{onSend: f.send}
				return link, nil
			}), conn.Options{}))
			synctest.Wait()
			var epochs []uint64
			request.MessageFor = conn.MessageFunc(func(_ context.Context, _ int64, epoch uint64) (conn.Message, error) {
				if epochs = append(epochs, epoch); epoch == 1 {
					link.lose(transport.Loss{Reason: io.EOF})
					advance(time.Minute)
				}
				return conn.Message{}, nil
			})
			_, err := r.Call(t.Context(), request)
			if carried := name != "fails fast"; carried {
				if err != nil || !slices.Equal(epochs, []uint64{1, 2}) || len(f.ids) != 1 {
					t.Errorf("%s: got %v after messages for %v, want no error after 1 and 2", name, err, epochs)
				}
			} else if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, conn.ErrStale) || len(f.ids) != 0 {
				t.Errorf("%s: got %v after messages for %v, want ErrStale and nothing sent", name, err, epochs)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// If MessageFor or a message's body fails or panics, the call is refused with that error and not retried.
// It gives its send slot back.
//
// Guarantees: G-0023.8
func TestCallWhoseMessageCannotBeMadeIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{SendSlots: 1}})
		errNo := errors.New("no")
		request := conn.Request{Method: "m", Retries: 3, Repeatable: true, WaitForReady: true,
			MessageFor: conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{}, errNo })}
		_, err := r.Call(t.Context(), request)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, errNo) {
			t.Errorf("got %v, want %v", err, errNo)
		}
		request.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { panic("no") })
		_, err = r.Call(t.Context(), request)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.As(err, new(*conn.PanicError)) {
			t.Errorf("got %v, want a PanicError", err)
		}
		for body, want := range map[value]any{"error": new(*jsonrpc.Error), "panic": new(*conn.PanicError)} {
			request.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{Body: body}, nil })
			_, err = r.Call(t.Context(), request)
			if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.As(err, want) {
				t.Errorf("a body of %s: got %v, want %T", body, err, want)
			}
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil { // the only slot is free
			t.Errorf("another call: %v, want no error", err)
		}
		if len(f.ids) != 1 || r.Stats().Retries != 0 {
			t.Errorf("%d requests were sent, %+v; want 1 and no retries", len(f.ids), r.Stats())
		}
		r.Stop()
		<-r.ended
	})
}

// A call with an Epoch that waits for ready ends with ErrStale when that incarnation is lost.
//
// Guarantees: G-0003.14, G-0012.1
func TestCallForALostIncarnationDoesNotWaitForReady(t *testing.T) {
	handshake := func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) }
	wantStaleAtTheLoss(t, &script{}, conn.Options{Handshake: handshake}, conn.Request{Method: "m", Epoch: 1, WaitForReady: true})
}

// A call with an Epoch that waits for its next attempt ends with ErrStale when its incarnation is lost.
//
// Guarantees: G-0012.1
func TestCallForALostIncarnationIsNotRetried(t *testing.T) {
	loses := &script{onSend: func(s *script, o transport.Outbound) error { return streamLost.apply(s, o) }}
	wantStaleAtTheLoss(t, loses, conn.Options{}, conn.Request{Method: "m", Epoch: 1, Retries: 1, Repeatable: true})
}

// wantStaleAtTheLoss makes a call that waits, loses the link, and checks that the call then ends with
// ErrStale. No other link can be opened.
func wantStaleAtTheLoss(t *testing.T, s *script, o conn.Options, request conn.Request) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		opened := 0
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			if opened++; opened > 1 {
				return nil, errors.New("gone for ever")
			}
			return s, nil
		}), o))
		synctest.Wait()
		result := r.calling(t.Context(), request)
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		select {
		case err := <-result:
			if !errors.Is(err, conn.ErrStale) || strings.Count(err.Error(), "the incarnation that this call was for no longer exists") != 1 {
				t.Errorf("got %v, want ErrStale once", err)
			}
		default:
			t.Errorf("the call still waits, in %s", r.State())
			r.Stop()
			<-result
		}
		r.Stop()
		<-r.ended
	})
}

// A call of a handshake that is retried waits neither for ready nor for the delay that the peer asks
// for, because the handshake has its own timeout. It waits for the first backoff.
//
// Guarantees: G-0023.6, G-0023.7
func TestCallOfAHandshakeDoesNotWaitForReady(t *testing.T) {
	for _, first := range []outcome{streamLost, overloaded} {
		bubble(t, func(t *testing.T) {
			f := &outcomeTransport{outcomes: []outcome{first}}
			r := start(conn.New(f, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
				_, err := i.Call(ctx, conn.Request{Method: "hello", Retries: 1, Repeatable: true})
				return err
			}}))
			advance(5 * time.Second)
			if r.State() != conn.Ready || len(f.ids) != 2 || f.sent[1].Sub(f.sent[0]) < time.Second {
				t.Errorf("%s: %s (%v), sent at %v; want ready, two requests 1s apart",
					first, r.State(), r.Status().Reason, f.sent)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// If the Conn is ready again on another link, the next attempt is made without a delay.
//
// Guarantees: G-0023.6
func TestRetryOnAnotherLinkDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, lostUnsent)
		var readyAgain time.Time
		_, err := r.Call(t.Context(), conn.Request{Method: "buy", Retries: 1, OnAttempt: func(conn.Attempt) {
			advance(time.Minute)
			readyAgain = time.Now()
		}})
		if err != nil || r.Status().Epoch != 2 || !f.sent[1].Equal(readyAgain) {
			t.Errorf("in epoch %d got %v, sent at %v; want no error in epoch 2, sent at %v",
				r.Status().Epoch, err, f.sent, readyAgain)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "buy", Epoch: 1}); err == nil || strings.Count(err.Error(), "the incarnation that this call was for no longer exists") != 1 {
			t.Errorf("a call for the first incarnation: %v, want ErrStale once", err)
		}
		r.Stop()
		<-r.ended
	})
}

// A call that is bound to an incarnation waits as long as the peer has asked for while that
// incarnation is there.
//
// Guarantees: G-0023.11
func TestBoundCallWaitsAsLongAsThePeerAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, overloaded)
		if _, err := r.Call(t.Context(), conn.Request{Method: "m", Epoch: 1, Retries: 1}); err != nil {
			t.Error(err)
		}
		if len(f.sent) != 2 || f.sent[1].Sub(f.sent[0]) < askedFor {
			t.Errorf("requests were sent at %v, want two with at least %v between them", f.sent, askedFor)
		}
		r.Stop()
		<-r.ended
	})
}

// If the incarnation is lost during that time, the call ends, because no other may execute it.
//
// Guarantees: G-0023.11
func TestBoundCallEndsWithItsIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, overloaded)
		began := time.Now()
		called := r.calling(t.Context(), conn.Request{Method: "m", Epoch: 1, Retries: 1})
		synctest.Wait()
		f.link.lose(transport.Loss{Reason: io.EOF})
		if err := <-called; !errors.Is(err, conn.ErrStale) || time.Since(began) >= askedFor {
			t.Errorf("the call ended with %v after %v, want %v at once", err, time.Since(began), conn.ErrStale)
		}
		r.Stop()
		<-r.ended
	})
}
