package asking

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/go-cmp/cmp"
)

// A caller is one round of a call. Its client takes every question.
type caller struct{ fitted int }

func (c *caller) CallID() string                         { return "call" }
func (c *caller) Guarded(_ string, f func() error) error { return f() }
func (c *caller) Joined(Questioner, string)              {}
func (c *caller) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	c.fitted++
	return asked, nil
}

// waits are calls that wait, with room for one.
type waits struct {
	*Calls
	t *testing.T
}

func newWaits(t *testing.T) waits {
	limits := Limits{Expiry: time.Minute, CallExpiry: time.Hour, MaxRounds: 2}
	of := places.Places{Handlers: share.NewPlaces(1), Bytes: share.NewLasting(1<<20, 1<<20)}
	return waits{NewCalls(NewRounds(limits, sealerOf(""), nil), of), t}
}

func (cs waits) begin(c Caller) (*Waiting, error) {
	return cs.Begin(c, Subject{Method: "m", Name: "a tool"}, share.Client{}, 10, nil)
}

// asked begins a call whose handler asks for a, and then for b, and returns its first question. When the context of the handler has ended, why says why.
func (cs waits) asked(why *error) (*Waiting, *protocol.InputRequired) {
	cs.t.Helper()
	w, err := cs.begin(new(caller))
	if err != nil {
		cs.t.Fatal(err)
	}
	w.Run(func(ctx context.Context) (any, error) {
		context.AfterFunc(ctx, func() { *why = context.Cause(ctx) })
		for _, key := range []string{"a", "b"} {
			if _, err := w.Ask(ctx, protocol.InputRequests{key: form(key)}); err != nil {
				return "half", err
			}
		}
		return "whole", nil
	})
	_, required, err := w.Await(cs.t.Context())
	if err != nil {
		cs.t.Fatal(err)
	}
	return w, required
}

// goOn brings an answer in a round of its own, as a client does that has read the state.
func (cs waits) goOn(about *Waiting, c Caller, required *protocol.InputRequired, key, content string) (any, *protocol.InputRequired, error) {
	st, err := cs.sealer.Open(about.about, *required.RequestState)
	if err != nil {
		cs.t.Fatal(err)
	}
	_, result, next, err := cs.Resume(cs.t.Context(), c, st, protocol.InputResponses{key: said(content)})
	return result, next, err
}

// However a call ends, nothing of it is left, its place is free, and its handler knows why its context has ended.
//
// Guarantees: G-0031.2
func TestNothingIsLeftOfACallThatHasWaited(t *testing.T) {
	for name, test := range map[string]struct {
		end      func(cs waits, w *Waiting, required *protocol.InputRequired) (any, error)
		result   any
		err, why string
	}{
		"it is answered": {func(cs waits, w *Waiting, required *protocol.InputRequired) (any, error) {
			second := new(caller)
			_, required, err := cs.goOn(w, second, required, "a", `1`)
			if err != nil || second.fitted != 1 || w.State().Round != 2 {
				cs.t.Errorf("%v: %d questions were fitted for the client of the second round, want one", err, second.fitted)
			}
			result, _, err := cs.goOn(w, new(caller), required, "b", `2`)
			return result, err
		}, "whole", "", "context canceled"},
		"nobody answers": {func(waits, *Waiting, *protocol.InputRequired) (any, error) {
			timer := time.NewTimer(time.Minute + time.Second)
			<-timer.C
			return nil, nil
		}, nil, "", "the question was not answered: it took longer than 1m0s"},
		"it is stopped when it is asked again": {func(cs waits, w *Waiting, required *protocol.InputRequired) (any, error) {
			if _, _, err := cs.goOn(w, new(caller), required, "x", `1`); err != nil { // the same question again
				return nil, err
			}
			cs.Stop(errGone)
			return nil, nil
		}, nil, "", "the question was not answered: gone"},
		"it is stopped": {func(cs waits, _ *Waiting, _ *protocol.InputRequired) (any, error) {
			cs.Stop(errGone)
			return nil, nil
		}, nil, "", "the question was not answered: gone"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cs := newWaits(t)
			var why error
			w, required := cs.asked(&why)
			_, err := cs.begin(new(caller))
			cs.mu.Lock()
			handlers := len(cs.handlers)
			cs.mu.Unlock()
			if err == nil || handlers != 1 {
				t.Errorf("%s: a second call has a place: %v, %d handlers", name, err, handlers)
			}
			result, err := test.end(cs, w, required)
			if text := textOfError(err); result != test.result || text != test.err {
				t.Errorf("%s: got %v, %q, want %v, %q", name, result, text, test.result, test.err)
			}
			synctest.Wait()
			if len(cs.handlers)+len(cs.tickets) != 0 || cs.places.Handlers.Held()+cs.places.Bytes.Held() != 0 || textOfError(why) != test.why {
				t.Errorf("%s: %d handlers and %d tickets are left, %d places are held, the context ended with %v, want %q",
					name, len(cs.handlers), len(cs.tickets), cs.places.Handlers.Held(), why, test.why)
			}
			cs.Stop(errGone)
			var fault *jsonrpc.Error
			if _, err := cs.begin(new(caller)); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeOverloaded || fault.Message != "overloaded: shutting down" {
				t.Errorf("%s: a call after the end: got %v", name, err)
			}
		})
	}
}

func textOfError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A call that has asked too often ends with that error, whatever its handler returns. An answer that does not fit is refused, and uses nothing up.
//
// Guarantees: G-0031.6
func TestACallThatWaitsAsksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newWaits(t)
		var why error
		w, required := cs.asked(&why)
		// The form has no schema, so only another action does not fit.
		st, err := cs.sealer.Open(w.about, *required.RequestState)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, err = cs.Resume(t.Context(), new(caller), st, protocol.InputResponses{"a": &protocol.ElicitResult{Action: "maybe"}})
		want := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: `the answer to "a" is not valid: unknown action "maybe"`}
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("an answer that does not fit: %s", diff)
		}
		_, required, err = cs.goOn(w, new(caller), required, "x", `1`)
		if err != nil {
			t.Fatal(err)
		}
		result, next, err := cs.goOn(w, new(caller), required, "a", `1`)
		synctest.Wait()
		if result != nil || next != nil || textOfError(err) != textOfError(why) || err == nil {
			t.Errorf("got %v, %v, %v, want the error %v", result, next, err, why)
		}
		if len(cs.handlers)+len(cs.tickets) != 0 || cs.places.Handlers.Held() != 0 {
			t.Errorf("%d handlers and %d tickets are left", len(cs.handlers), len(cs.tickets))
		}
		cs.Stop(errGone)
	})
}

// A call that ends just when its question is to be sent gets no ticket. Its place is free when its handler has returned, which Wait names until then.
//
// Guarantees: G-0031.2
func TestACallThatEndsWhenItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := newWaits(t)
		w, err := cs.begin(new(caller))
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan bool)
		w.Run(func(context.Context) (any, error) { <-release; return nil, nil })
		w.cancel(errGone)
		if _, _, err := w.park(Park(pose(protocol.InputRequests{"a": form("a")}))); err != nil || len(cs.tickets) != 0 || cs.places.Handlers.Held() != 1 {
			t.Errorf("%v: %d tickets, %d places", err, len(cs.tickets), cs.places.Handlers.Held())
		}
		if diff := cmp.Diff([]string{"m a tool"}, cs.Wait(t.Context(), time.Second)); diff != "" {
			t.Errorf("what still runs: %s", diff)
		}
		close(release)
		if left := cs.Wait(t.Context(), time.Second); left != nil || cs.places.Handlers.Held() != 0 || len(cs.handlers) != 0 {
			t.Errorf("%q are left, %d places are held", left, cs.places.Handlers.Held())
		}
		cs.Stop(errGone)
	})
}
