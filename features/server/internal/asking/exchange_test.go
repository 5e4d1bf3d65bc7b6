package asking

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func form(message string) *protocol.ElicitParams { return &protocol.ElicitParams{Message: message} }

func said(content string) *protocol.ElicitResult {
	return &protocol.ElicitResult{Action: protocol.ElicitAccept, Content: []byte(content)}
}

var errMisfit = errors.New("it does not fit")

// fitsAll refuses the answer "bad".
func fitsAll(_ string, _ protocol.InputRequest, answer protocol.InputResponse) error {
	if string(answer.(*protocol.ElicitResult).Content) == `"bad"` {
		return errMisfit
	}
	return nil
}

// A key names one question of a call: the same one has the same answer, and is not asked twice; another one is refused, in this
// round and in a later one. What a client has said before is taken for the question under its key alone, if it fits.
//
// Guarantees: G-0031.2, G-0031.6
func TestAKeyNamesOneQuestion(t *testing.T) {
	for name, test := range map[string]struct {
		begin func(x *Exchange)
		ask   protocol.InputRequests
		open  string
		err   error
	}{
		"a new question":        {func(*Exchange) {}, protocol.InputRequests{"a": form("a")}, "a", nil},
		"one that is open":      {asksA, protocol.InputRequests{"a": form("a"), "b": form("b")}, "a b", nil},
		"one that is answered":  {answersA, protocol.InputRequests{"a": form("a"), "b": form("b")}, "b", nil},
		"another under its key": {answersA, protocol.InputRequests{"a": form("other")}, "", ErrKeyUsed},
		"another for a second time": {func(x *Exchange) {
			answersA(x)
			_, _ = x.Ask(protocol.InputRequests{"a": form("other")}, fitsAll)
		}, protocol.InputRequests{"a": form("other")}, "", ErrKeyUsed},
		"another in a later round":  {func(x *Exchange) { asksA(x); asked := x.Asked(); *x = Exchange{}; x.Resume(asked) }, protocol.InputRequests{"a": form("other")}, "", ErrKeyUsed},
		"another, when it forgets":  {func(x *Exchange) { answersA(x); x.Forget() }, protocol.InputRequests{"a": form("other")}, "a", nil},
		"one with an early answer":  {func(x *Exchange) { x.SetEarly(protocol.InputResponses{"a": said(`1`), "x": said(`2`)}, true) }, protocol.InputRequests{"a": form("a")}, "", nil},
		"an early one that misfits": {func(x *Exchange) { x.SetEarly(protocol.InputResponses{"a": said(`"bad"`)}, false) }, protocol.InputRequests{"a": form("a")}, "", errMisfit},
		"too late for an early one": {func(x *Exchange) {
			x.SetEarly(protocol.InputResponses{"a": said(`1`)}, true)
			_, _ = x.Ask(protocol.InputRequests{"b": form("b")}, fitsAll)
		}, protocol.InputRequests{"a": form("a")}, "a", nil},
		"an early one for later": {func(x *Exchange) {
			x.SetEarly(protocol.InputResponses{"a": said(`1`), "x": said(`2`)}, false)
			_, _ = x.Ask(protocol.InputRequests{"b": form("b")}, fitsAll)
		}, protocol.InputRequests{"a": form("a")}, "", nil},
		"one of a call it follows": {func(x *Exchange) {
			var other Exchange
			asksA(&other)
			other.SetEarly(protocol.InputResponses{"a": said(`1`)}, true)
			x.Follow(&other)
			_, _ = x.Ask(protocol.InputRequests{"b": form("b")}, fitsAll)
			if len(other.Asked()) != 1 {
				t.Errorf("the call that it follows has asked %v, want one question", other.Asked())
			}
		}, protocol.InputRequests{"a": form("a")}, "", nil},
	} {
		x := new(Exchange)
		test.begin(x)
		open, err := x.Ask(test.ask, fitsAll)
		if got := fmt.Sprint(keys(open)); !errors.Is(err, test.err) || err == nil && got != "["+test.open+"]" {
			t.Errorf("%s: got %s, %v, want %s, %v", name, got, err, test.open, test.err)
		}
		for key := range x.Known() {
			if x.Asked()[key] == (Digest{}) {
				t.Errorf("%s: it knows an answer to %q, which was not asked", name, key)
			}
		}
	}
}

func asksA(x *Exchange) { _, _ = x.Ask(protocol.InputRequests{"a": form("a")}, fitsAll) }

func answersA(x *Exchange) {
	asksA(x)
	x.Answer(protocol.InputResponses{"a": said(`1`)})
}

func keys(open protocol.InputRequests) (all []string) {
	for _, key := range []string{"a", "b", "c", "x"} {
		if open[key] != nil {
			all = append(all, key)
		}
	}
	return all
}

// What was answered counts, and not what the client had said before. An early answer counts once its question is asked.
func TestWhatIsKnownOfAnExchange(t *testing.T) {
	var x Exchange
	answersA(&x)
	x.SetEarly(protocol.InputResponses{"a": said(`2`), "b": said(`3`), "x": said(`4`)}, false)
	asked := protocol.InputRequests{"a": form("a"), "b": form("b")}
	if open, err := x.Ask(asked, fitsAll); len(open) != 0 || err != nil {
		t.Errorf("got %v, %v, want no open question", open, err)
	}
	for what, got := range map[string]protocol.InputResponses{"known": x.Known(), "the answers": x.Answers(asked)} {
		if diff := cmp.Diff(protocol.InputResponses{"a": said(`1`), "b": said(`3`)}, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

// A client may be asked so often, and no more.
func TestRoundsAreCounted(t *testing.T) {
	var x Exchange
	for n := range 5 {
		x.Forget()
		if before, may := x.Round(3); before != n || may != (n < 3) {
			t.Errorf("round %d: got %d, %t", n, before, may)
		}
	}
}

// Whatever a client answers, in whichever order, repeatedly and with what was not asked: each question gets the first answer that came
// for it together with others that fit, and once. What a courier holds does not change under its hands.
//
// Guarantees: G-0031.6
func TestQuestionsAreLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		open, used := protocol.InputRequests{"a": form("a"), "b": form("b"), "c": form("c")}, map[string]bool{"b": true}
		q, want := PoseAs(open, used), map[string]string{}
		names := map[string]string{"a": "a", "b-2": "b", "c": "c"}
		if len(used) != 4 || q.Open()["b-2"] != open["b"] || q.Open()["b"] != nil {
			t.Fatalf("got the keys %v and %v, want one that is new for b", used, q.Open())
		}
		for range rapid.IntRange(1, 8).Draw(t, "answers") {
			answers := make(protocol.InputResponses)
			for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "b-2", "c", "x"}), rapid.ID).Draw(t, "keys") {
				answers[key] = said(rapid.SampledFrom([]string{`1`, `2`, `"bad"`}).Draw(t, "answer"))
			}
			fits, takes := true, map[string]string{}
			for key, answer := range answers {
				content := string(answer.(*protocol.ElicitResult).Content)
				if name, asked := names[key]; asked && want[name] == "" {
					takes[name] = content
					fits = fits && content != `"bad"`
				}
			}
			before, held := q, len(q.Open())
			next, taken, err := q.Answer(answers, fitsAll)
			if len(before.Open()) != held {
				t.Fatal("an answer has changed the questions that a courier holds")
			}
			if (err == nil) != fits || taken != (fits && len(takes) > 0) {
				t.Fatalf("%v: got %t, %v, want %v", answers, taken, err, takes)
			}
			if fits {
				maps.Copy(want, takes)
			}
			q = next
			got, all := q.Answered()
			if len(got) != len(want) || all != (len(want) == 3) || len(q.Open()) != 3-len(want) {
				t.Fatalf("got %v, all: %t, want %v", got, all, want)
			}
			for name, content := range want {
				if string(got[name].(*protocol.ElicitResult).Content) != content {
					t.Fatalf("%s: got %v, want %s", name, got[name], content)
				}
			}
		}
	})
}
