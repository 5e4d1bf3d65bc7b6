package asking

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/protocol"
)

var errGone = errors.New("gone")

// A courier asks nobody: the test gives the answers. It counts how often questions were made to fit.
type courier struct {
	fitted  int
	answers chan protocol.InputResponses
}

func (c *courier) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	c.fitted++
	return asked, nil
}

func (c *courier) Deliver(context.Context, protocol.InputRequests) (protocol.InputResponses, error) {
	return <-c.answers, nil
}

// Of two questions the second waits until the first is answered, and is not looked at before: its client may be another one by then. If its
// context ends meanwhile, its error has the cause, and says once that nobody has answered.
func TestQuestionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &courier{answers: make(chan protocol.InputResponses)}
		var v Conversation
		v.Begin(c)
		var first protocol.InputResponses
		go func() { first, _ = v.Ask(t.Context(), protocol.InputRequests{"a": form("a")}) }()
		synctest.Wait()
		for _, test := range []struct {
			cause error
			want  string
		}{
			{errGone, "the question was not answered: gone"},
			{UnansweredBy(errGone), "the question was not answered: gone"},
			{ErrUnanswered, "the question was not answered"},
		} {
			ctx, end := context.WithCancelCause(t.Context())
			var err error
			go func() { _, err = v.Ask(ctx, protocol.InputRequests{"b": form("b")}) }()
			synctest.Wait()
			end(test.cause)
			if synctest.Wait(); !errors.Is(err, ErrUnanswered) || !errors.Is(err, test.cause) || err.Error() != test.want {
				t.Errorf("got %v, want %q, with its cause", err, test.want)
			}
		}
		if c.fitted != 1 {
			t.Errorf("%d questions were looked at, want the one whose turn it is", c.fitted)
		}
		c.answers <- protocol.InputResponses{"a": said(`1`)}
		if synctest.Wait(); string(first["a"].(*protocol.ElicitResult).Content) != `1` {
			t.Errorf("got %v, want the answer", first)
		}
	})
}

// Whoever answers a parked question, or refuses it, does not wait for the handler, which gets the first outcome there is: all answers, why they
// were refused, or why its question, its call or the server has ended.
func TestTheOutcomeOfAParkedQuestion(t *testing.T) {
	ended := func() context.Context {
		ctx, end := context.WithCancelCause(context.Background())
		end(errGone)
		return ctx
	}
	on := context.Background()
	for name, test := range map[string]struct {
		ctx, call, server context.Context
		begin             func(p *Parked)
		want              string // the error; "" for the answer
	}{
		"it was answered": {on, on, on, func(p *Parked) {
			if taken, err := p.Take(protocol.InputResponses{"a": said(`1`)}, fitsAll); !taken || err != nil || !p.Settle() {
				t.Errorf("the answer was not taken: %v, %v", taken, err)
			}
		}, ""},
		"it was refused twice":   {on, on, on, func(p *Parked) { p.Refuse(errMisfit); p.Refuse(errGone) }, errMisfit.Error()},
		"the question has ended": {ended(), on, on, func(*Parked) {}, "the question was not answered: gone"},
		"the call has ended":     {on, ended(), on, func(*Parked) {}, "the question was not answered: gone"},
		"the server has ended":   {on, on, ended(), func(*Parked) {}, "the question was not answered: gone"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := Park(pose(protocol.InputRequests{"a": form("a")}))
			test.begin(p)
			answers, err := p.Await(test.ctx, test.call, test.server)
			if test.want == "" && (err != nil || string(answers["a"].(*protocol.ElicitResult).Content) != `1`) || test.want != "" && (err == nil || err.Error() != test.want) {
				t.Errorf("%s: got %v, %v, want %q", name, answers, err, test.want)
			}
		})
	}
}
