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

// A fate is what becomes of a request that was offered to a link.
type fate struct {
	name     string
	befall   func(*script, transport.Outbound) error
	cause    conn.Cause
	executed bool // as far as anybody can know
	retried  bool // when the policy of its caller allows it
}

func (f fate) String() string { return f.name }

// askedFor is the delay that an overloaded peer asks for.
const askedFor = 7 * time.Minute

var (
	answered = fate{"answered", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":[%d]}`, o.Tag, o.Tag))
		return nil
	}, conn.Answered, true, false}
	faulted = fate{"peer error", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no"}}`, o.Tag))
		return nil
	}, conn.PeerError, true, false}
	garbled = fate{"malformed answer", func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{},"error":null}`, o.Tag))
		return nil
	}, conn.PeerError, true, false}
	silence = fate{"silence", func(*script, transport.Outbound) error { return nil }, conn.TimedOut, true, false}
	lost    = fate{"link lost", func(s *script, _ transport.Outbound) error {
		s.lose(transport.Loss{Reason: io.EOF})
		return nil
	}, conn.LinkLost, true, true}
	lostUnsent = fate{"link lost, unsent", func(s *script, o transport.Outbound) error {
		s.lose(transport.Loss{Reason: io.EOF, Unsent: []transport.Tag{o.Tag}})
		return nil
	}, conn.LinkLost, false, true}
	streamLost = fate{"stream lost", func(s *script, o transport.Outbound) error {
		s.receiver.StreamOpened(transport.Stream(o.Tag)+1, o.Tag)
		s.receiver.StreamLost(transport.StreamLoss{Stream: transport.Stream(o.Tag) + 1, Reason: io.EOF})
		return nil
	}, conn.LinkLost, true, true}
	failedUnsent = fate{"failed, unsent", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: transport.ErrClosed, Unsent: true})
		return nil
	}, conn.LinkLost, false, true}
	refused = fate{"refused", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 401}, Unsent: true})
		return nil
	}, conn.Refused, false, false}
	overloaded = fate{"overloaded", func(s *script, o transport.Outbound) error {
		s.receiver.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 503, RetryAfter: askedFor}, Unsent: true})
		return nil
	}, conn.Refused, false, true}
	noRoute  = fate{"no route", func(*script, transport.Outbound) error { return transport.ErrNoRoute }, conn.Refused, false, false}
	linkBusy = fate{"busy", func(*script, transport.Outbound) error { return transport.ErrBusy }, 0, false, false} // it is no attempt

	fates = []fate{answered, faulted, garbled, silence, lost, lostUnsent, streamLost, failedUnsent, refused, overloaded, noRoute, linkBusy}
)

// A fated transport deals a fate to each request, in order, and answers what
// comes after the last.
type fated struct {
	fates []fate

	mu   sync.Mutex
	ids  []int64 // of the requests, each once
	sent []time.Time
}

func (f *fated) Open(context.Context) (transport.Link, error) {
	return &script{onSend: f.offered}, nil
}

func (f *fated) offered(s *script, o transport.Outbound) error {
	if o.Tag == 0 {
		return nil
	}
	f.mu.Lock()
	if !slices.Contains(f.ids, int64(o.Tag)) {
		f.ids, f.sent = append(f.ids, int64(o.Tag)), append(f.sent, time.Now())
	}
	fate := f.dealt(len(f.ids) - 1)
	f.mu.Unlock()
	return fate.befall(s, o)
}

func (f *fated) dealt(n int) fate {
	if n < len(f.fates) {
		return f.fates[n]
	}
	return answered
}

// forgetBusy forgets the times when the link was busy.
func (f *fated) forgetBusy() {
	var ids []int64
	var fates []fate
	for i, id := range f.ids {
		if dealt := f.dealt(i); dealt.name != linkBusy.name {
			ids, fates = append(ids, id), append(fates, dealt)
		}
	}
	f.ids, f.fates = ids, fates
}

// fatedRun runs an initiator whose requests have these fates until it is ready.
func fatedRun(t failing, o conn.Options, fates ...fate) (run, *fated) {
	f := &fated{fates: fates}
	r := start(conn.New(f, o))
	synctest.Wait()
	if state := r.State(); state != conn.Ready {
		t.Fatalf("the state is %s", state)
	}
	return r, f
}

type failing interface{ Fatalf(string, ...any) }

// TestRetriesKeepTheirPromises deals any fates to the attempts of one call, under
// any policy, and looks at what the peer got and the caller was told.
//
// Guarantees: G-0023.1, G-0023.2, G-0023.3, G-0023.4, G-0023.5
func TestRetriesKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dealt := rapid.SliceOfN(rapid.SampledFrom(fates), 0, 5).Draw(rt, "fates")
		var told []conn.Attempt
		request := conn.Request{
			Method: "buy", Timeout: time.Second,
			Retries:      rapid.IntRange(0, 3).Draw(rt, "retries"),
			Repeatable:   rapid.Bool().Draw(rt, "repeatable"),
			WaitForReady: rapid.Bool().Draw(rt, "waits"),
			OnAttempt:    func(a conn.Attempt) { told = append(told, a) },
		}
		rapid.SyncTest(rt, func(rt *rapid.T) {
			r, f := fatedRun(rt, conn.Options{}, dealt...)
			result, err := r.Call(context.Background(), request)
			r.Stop()
			<-r.ended
			f.forgetBusy()
			checkAttempts(rt, f, request)
			checkEnd(rt, f, result, err, told)
			stats := r.Stats()
			if stats.Calls != 1 || stats.Ended() != 1 || stats.Retries != uint64(len(f.ids)-1) {
				rt.Fatalf("the books do not balance: %+v", stats)
			}
		})
	})
}

// checkAttempts holds which attempts there may be.
func checkAttempts(t failing, f *fated, r conn.Request) {
	for i := range f.ids {
		fate, last := f.dealt(i), i == len(f.ids)-1
		allowed := fate.retried && (r.Repeatable || !fate.executed)
		switch {
		case i > r.Retries:
			t.Fatalf("%d attempts, where %d retries were asked for", len(f.ids), r.Retries)
		case i > 0 && f.ids[i] <= f.ids[i-1]:
			t.Fatalf("the ids are %v", f.ids)
		case !last && !allowed:
			t.Fatalf("%v was followed by another attempt", fate)
		case last && allowed && i < r.Retries:
			t.Fatalf("%v was not followed by another attempt", fate)
		}
	}
}

// checkEnd holds what the caller is told.
func checkEnd(t failing, f *fated, result json.RawMessage, err error, told []conn.Attempt) {
	last, id := f.dealt(len(f.ids)-1), f.ids[len(f.ids)-1]
	executed := false
	for i := range f.ids {
		executed = executed || f.dealt(i).executed
	}
	for i, a := range told {
		unknown := a.Delivery == conn.Unknown
		if a.ID != f.ids[i] || a.Cause != f.dealt(i).cause || unknown != f.dealt(i).executed || a.Err == nil || a.Epoch == 0 {
			t.Fatalf("attempt %d, %v, was told as %+v", i, f.dealt(i), a)
		}
	}
	if len(told) != len(f.ids)-1 {
		t.Fatalf("%d attempts, %d were told", len(f.ids), len(told))
	}
	var failed *conn.CallError
	switch {
	case last.cause == conn.Answered:
		if err != nil || string(result) != fmt.Sprintf("[%d]", id) {
			t.Fatalf("got %s, %v", result, err)
		}
	case !errors.As(err, &failed) || failed.Cause != last.cause || failed.ID != id || !slices.Equal(failed.Attempts, told):
		t.Fatalf("%v ended with %#v, having told %v", last, err, told)
	case conn.NotExecuted(err) == executed:
		t.Fatalf("executed %t, and the caller is told %v", executed, err)
	case failed.Cause != conn.PeerError && len(told) > 0 && !strings.Contains(err.Error(), fmt.Sprintf("%d failed attempts", len(told))):
		t.Fatalf("the error is silent about %d attempts: %v", len(told), err)
	}
}

// Guarantees: G-0023.6
func TestRetryWaitsForReadyAndNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var stopped telemetry.RequestStopped
		hooks := telemetry.Hooks{RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { stopped = e }}
		r, f := fatedRun(t, conn.Options{BackoffMin: time.Minute, BackoffMax: time.Minute, Hooks: hooks}, lost)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		result := r.calling(ctx, conn.Request{Method: "read", Retries: 1, Repeatable: true})
		err := <-result
		wantEnd(t, err, conn.TimedOut, conn.Unknown) // the attempt that was lost may have been executed
		if took := time.Since(began); took != 10*time.Second || len(f.ids) != 1 {
			t.Errorf("after %v and %d attempts", took, len(f.ids))
		}
		var failed *conn.CallError
		if errors.As(err, &failed); len(failed.Attempts) != 1 || failed.Attempts[0].Cause != conn.LinkLost || failed.ID != failed.Attempts[0].ID {
			t.Errorf("got %+v", failed)
		}
		if r.Stats().Retries != 0 || stopped.Attempts != 1 {
			t.Errorf("counted %+v, told of %+v", r.Stats(), stopped)
		}
		r.Stop()
		<-r.ended
	})
}

// A call that fails fast is retried when there is no server yet, and not sent
// to nobody.
//
// Guarantees: G-0023.6
func TestCallInBackoffIsRetriedOnceReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, lost, answered)
		<-r.calling(t.Context(), conn.Request{Method: "read"})
		if r.State() != conn.Backoff {
			t.Fatalf("the state is %s", r.State())
		}
		var told []conn.Attempt
		_, err := r.Call(t.Context(), conn.Request{Method: "buy", Retries: 1, OnAttempt: func(a conn.Attempt) { told = append(told, a) }})
		if err != nil || len(f.ids) != 2 || len(told) != 1 || told[0].Cause != conn.Refused || told[0].Delivery != conn.NotSent {
			t.Errorf("got %v after %d requests, told of %v", err, len(f.ids), told)
		}
		r.Stop()
		<-r.ended
	})
}

// Where only the stream was lost there is no backoff to wait for: the call has
// its own.
//
// Guarantees: G-0023.7
func TestRetryOnALivingLinkWaitsLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, failedUnsent, streamLost, failedUnsent)
		_, err := r.Call(t.Context(), conn.Request{Method: "read", Retries: 3, Repeatable: true})
		if err != nil || r.Status().Epoch != 1 {
			t.Fatalf("in incarnation %d got %v", r.Status().Epoch, err)
		}
		for i, ideal := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			if wait := f.sent[i+1].Sub(f.sent[i]); wait < max(ideal*8/10, time.Second) || wait > ideal*12/10 {
				t.Errorf("before attempt %d it waited %v", i+2, wait)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0023.4
func TestRetryEndsWithTheConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, end := range map[string]func(run){
			"stopped": func(r run) { r.Stop() },
			"closed":  func(r run) { r.Close(context.Background()) },
		} {
			for where, first := range map[string]fate{"in backoff": lost, "on a living link": streamLost} {
				r, f := fatedRun(t, conn.Options{BackoffMin: time.Minute, BackoffMax: time.Minute}, first)
				result := r.calling(t.Context(), conn.Request{Method: "read", Retries: 5, Repeatable: true})
				began := time.Now()
				end(r)
				err := <-result
				wantEnd(t, err, conn.ShutDown, conn.Unknown)
				if took := time.Since(began); took != 0 || len(f.ids) != 1 {
					t.Errorf("%s %s: after %v, %d attempts", name, where, took, len(f.ids))
				}
				<-r.ended
			}
		}
	})
}

// What ended a Conn for good ends the call: there is nothing to wait for.
//
// Guarantees: G-0023.4
func TestLossThatIsFinalIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := fatedRun(t, conn.Options{Final: func(conn.Reason) bool { return true }}, lost)
		told := 0
		err := <-r.calling(t.Context(), conn.Request{Method: "read", Retries: 5, Repeatable: true, OnAttempt: func(conn.Attempt) { told++ }})
		wantEnd(t, err, conn.LinkLost, conn.Unknown)
		if told != 0 {
			t.Errorf("told of %d attempts", told)
		}
		<-r.ended
	})
}

// MessageFor is asked for each attempt, for the server that is there then.
//
// Guarantees: G-0023.8
func TestParamsAreMadeForEachAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fated{fates: []fate{lost}}
		var links []*script
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, &script{onSend: f.offered})
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
			t.Errorf("sent %q and %q", first, second)
		}
		if !slices.Equal(states, []conn.State{conn.Ready, conn.Ready}) {
			t.Errorf("asked while %v", states)
		}
		r.Stop()
		<-r.ended
	})
}

// Nothing is made for a server that is not there.
//
// Guarantees: G-0023.8
func TestParamsAreMadeWhileReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := fatedRun(t, conn.Options{}, lost)
		<-r.calling(t.Context(), conn.Request{Method: "m"})
		var epochs []uint64
		request := conn.Request{Method: "m", MessageFor: conn.MessageFunc(func(_ context.Context, _ int64, epoch uint64) (conn.Message, error) {
			epochs = append(epochs, epoch)
			return conn.Message{}, nil
		})}
		_, err := r.Call(t.Context(), request)
		if state := new(conn.StateError); !errors.As(err, &state) || len(epochs) > 0 {
			t.Errorf("in backoff: got %v, asked for %v", err, epochs)
		}
		request.WaitForReady = true
		if _, err := r.Call(t.Context(), request); err != nil || !slices.Equal(epochs, []uint64{2}) {
			t.Errorf("got %v, asked for %v", err, epochs)
		}
		r.Stop()
		<-r.ended
	})
}

// A frame may be made while its incarnation is lost. It is not sent to the next:
// the call is made anew, if it waits or is retried, and else ends.
//
// Guarantees: G-0003.4, G-0023.6
func TestFrameThatWasMadeTooLate(t *testing.T) {
	for name, request := range policies {
		bubble(t, func(t *testing.T) {
			var link *script
			f := new(fated)
			r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
				link = &script{onSend: f.offered}
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
					t.Errorf("%s: got %v after %v", name, err, epochs)
				}
			} else if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, conn.ErrStale) || len(f.ids) != 0 {
				t.Errorf("%s: got %v after %v", name, err, epochs)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// Guarantees: G-0023.8
func TestParamsThatCannotBeMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{SendSlots: 1})
		errNo := errors.New("no")
		request := conn.Request{Method: "m", Retries: 3, Repeatable: true, WaitForReady: true,
			MessageFor: conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{}, errNo })}
		_, err := r.Call(t.Context(), request)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, errNo) {
			t.Errorf("got %v", err)
		}
		request.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { panic("no") })
		_, err = r.Call(t.Context(), request)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.As(err, new(*conn.PanicError)) {
			t.Errorf("got %v", err)
		}
		for body, want := range map[value]any{"error": new(*jsonrpc.Error), "panic": new(*conn.PanicError)} {
			request.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{Body: body}, nil })
			_, err = r.Call(t.Context(), request)
			if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.As(err, want) {
				t.Errorf("a body of %s: %v", body, err)
			}
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil { // the one slot is free
			t.Errorf("another call: %v", err)
		}
		if len(f.ids) != 1 || r.Stats().Retries != 0 {
			t.Errorf("%d were sent, %+v", len(f.ids), r.Stats())
		}
		r.Stop()
		<-r.ended
	})
}

// A call for an incarnation that is over waits for no other.
//
// Guarantees: G-0003.14, G-0012.1
func TestBoundCallDoesNotWaitForAnother(t *testing.T) {
	shaking := func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) }
	wantStaleAtTheLoss(t, &script{}, conn.Options{Handshake: shaking}, conn.Request{Method: "m", Epoch: 1, WaitForReady: true})
}

// The same in the pause before the next attempt, after a stream was lost.
//
// Guarantees: G-0012.1
func TestBoundCallDoesNotPauseForAnother(t *testing.T) {
	loses := &script{onSend: func(s *script, o transport.Outbound) error { return streamLost.befall(s, o) }}
	wantStaleAtTheLoss(t, loses, conn.Options{}, conn.Request{Method: "m", Epoch: 1, Retries: 1, Repeatable: true})
}

// wantStaleAtTheLoss makes a call that waits, loses the link it is for, after
// which there is no other, and wants the call to be over.
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
			if !errors.Is(err, conn.ErrStale) || strings.Count(err.Error(), conn.ErrStale.Error()) != 1 {
				t.Errorf("got %v", err)
			}
		default:
			t.Errorf("it waits on, in %s, for an incarnation that is over", r.State())
			r.Stop()
			<-result
		}
		r.Stop()
		<-r.ended
	})
}

// A handshake's call that is to be made again does not wait for ready, nor for as
// long as the peer asks: the handshake has a time of its own. It waits as long as
// the first backoff.
//
// Guarantees: G-0023.6, G-0023.7
func TestHandshakeDoesNotWaitForItself(t *testing.T) {
	for _, first := range []fate{streamLost, overloaded} {
		bubble(t, func(t *testing.T) {
			f := &fated{fates: []fate{first}}
			r := start(conn.New(f, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
				_, err := i.Call(ctx, conn.Request{Method: "hello", Retries: 1, Repeatable: true})
				return err
			}}))
			advance(5 * time.Second)
			if r.State() != conn.Ready || len(f.ids) != 2 || f.sent[1].Sub(f.sent[0]) < time.Second {
				t.Errorf("%s: %s (%v), sent at %v", first, r.State(), r.Status().Reason, f.sent)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// Once the Conn is ready over another link, the next attempt waits for nothing.
//
// Guarantees: G-0023.6
func TestRetryOnAnotherLinkDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, lostUnsent)
		var readyAgain time.Time
		_, err := r.Call(t.Context(), conn.Request{Method: "buy", Retries: 1, OnAttempt: func(conn.Attempt) {
			advance(time.Minute)
			readyAgain = time.Now()
		}})
		if err != nil || r.Status().Epoch != 2 || !f.sent[1].Equal(readyAgain) {
			t.Errorf("in incarnation %d got %v, sent at %v, want %v", r.Status().Epoch, err, f.sent, readyAgain)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "buy", Epoch: 1}); err == nil || strings.Count(err.Error(), conn.ErrStale.Error()) != 1 {
			t.Errorf("a call for the link before: %v", err)
		}
		r.Stop()
		<-r.ended
	})
}
