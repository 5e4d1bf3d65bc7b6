package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// An endsModel is what should become of calls that ask, at both ends.
type endsModel struct {
	*endsWorld
	callers []*endsCaller // who wait
	texts   int
	passed  time.Duration
}

// An endsCall is a call, whoever continues it.
type endsCall struct {
	n          int
	side       *endsSide // that began it
	way, steps string

	// What the server does. Guarded by world.mu.
	runs, running, finished int
	ended                   error // of the last handler that has returned
	gates                   []chan struct{}
	states                  []string // that clients got
	open                    []string // the keys that go with the last one
	task                    string
	session                 *server.Session

	// What it should do.
	wantRuns, wantFinished int
	wantEnd                error // of its handler; nil: any
	said                   []string
	asks, over, isTask     bool
	asked                  time.Time
	by                     *endsCaller // who gets the outcome of what the handler does, or is asked; nil: nobody
}

// An endsCaller waits for the outcome of a call, or of one round of it.
type endsCaller struct {
	of     *endsCall
	side   *endsSide
	manual bool              // answers questions by other requests
	labels []string          // what its user should see
	step   int               // to which these belong
	given  map[string]string // what the user has said to the others of the step
	want   *endsWant         // nil: it waits
	later  *endsWant         // what it will get when its user has answered
	cancel func()
	done   chan endsEnd
}

type endsEnd struct {
	result *protocol.CallToolResult
	err    error
}

// An endsWant is how a request should end.
type endsWant struct {
	text  string // of the result
	fails bool   // which is an error of the tool
	asks  bool   // it has questions
	err   error  // or, if it is a *jsonrpc.Error, its code and what its data has
}

var (
	errRefused    = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: protocol.ReasonRequestState}
	errOverloaded = &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}
	errInput      = new(client.InputError)
)

const endsSettling = 5 * time.Second // a few polls of tasks; so no expiry falls on a move

// Clients of both eras call tools that ask in all ways: by requests of the server, by rounds in which the handler waits or runs
// again, and by tasks. Users answer, say no, fail, answer late, twice, or what others were asked, and leave. Callers give up, links
// are lost, states are changed, stolen and used twice, places run out, and time passes. Each request ends once, as the model says. No
// handler runs or ends but then, each sees the one answer that was given, and nobody sees a question that is not open.
//
// Guarantees: G-0031.1, G-0031.2, G-0031.4, G-0031.7, G-0031.8, G-0031.9, G-0031.16, G-0031.18
func TestBothEndsOfAskingAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &endsModel{endsWorld: newEndsWorld()}
			for _, identity := range []string{"ada", "ada", "eve"} {
				m.addSide(t, identity, true)
			}
			m.addSide(t, "lea", false)
			m.addSide(t, "leo", false)
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"begin": m.begin, "begin more": m.begin, "reply": m.reply, "reply more": m.reply, "reply often": m.reply, "work": m.finishWork,
				"give up": m.giveUp, "cut": m.cut, "leave": m.leaveSession, "expire": m.passExpiry,
				"continue": m.proceed, "race": m.race, "refused": m.refused, "answer task": m.answerTask, "strange response": m.strangeResponse, "page": m.page,
				"": m.check,
			})
			m.checkPlaces(t)
		})
	})
}

// stays reports whether the handler stays while its question is open.
func (c *endsCall) stays() bool {
	return c.way == "waits" || c.way == "taskwaits" || c.way == "taskreruns" && c.isTask
}

// isRound reports whether questions are brought by rounds: whoever has the state continues the call.
func (c *endsCall) isRound() bool { return c.side.modern && !c.isTask }

// hasPlace reports whether there is a place for the next run of a call.
func (m *endsModel) hasPlace(c *endsCall) bool {
	waiting, tasks := endsLimits.MaxWaiting, mostTasks
	for _, other := range m.calls {
		switch {
		case other.over || other == c:
		case endsWays[other.way] && (other.isTask || !other.asks):
			tasks--
		case other.way == "waits" && other.side.modern:
			waiting--
		}
	}
	return endsWays[c.way] && tasks > 0 || !endsWays[c.way] && (c.way != "waits" || !c.side.modern || waiting > 0)
}

// goOn says what a call does after an answer: its handler goes on, or runs again.
func (m *endsModel) goOn(c *endsCall) {
	if c.asks = false; c.wantRuns == 0 || !c.stays() {
		c.wantRuns++
	}
	m.advance(c)
}

// advance says what the handler does until it works, asks or returns.
func (m *endsModel) advance(c *endsCall) {
	k, i := c.by, len(c.said)
	switch {
	case i == len(c.steps):
		c.over = true
		c.wantFinished++
		if how := (&endsWant{text: strings.Join(c.said, " ")}); k != nil && len(k.labels) > 0 {
			k.later = how // its user has to say what nobody wants to know any more
		} else {
			k.end(how)
		}
	case c.steps[i] == 'w':
		c.isTask = c.isTask || endsWays[c.way]
	default:
		if c.asks, c.asked = true, time.Now(); k != nil && k.manual {
			k.end(&endsWant{asks: true})
			c.by = nil
		}
	}
}

// end says how a caller ends. What its user was asked is asked no more.
func (k *endsCaller) end(how *endsWant) {
	if k != nil {
		k.want, k.labels = how, nil
	}
}

// close says that a call is over, and with which error its handler ends, if there is one now.
func (c *endsCall) close(why error) {
	if c.over = true; !c.asks || c.stays() {
		c.wantEnd = why
	}
}

// fail says that a call is over, and how its caller ends.
func (c *endsCall) fail(why error, how *endsWant) {
	c.close(why)
	c.by.end(how)
}

// ask shows users what the calls that they wait for ask.
func (m *endsModel) ask() {
	for _, k := range m.callers {
		if c := k.of; k.want == nil && !k.manual && c.asks && !c.over && c.by == k && len(k.labels) == 0 {
			k.step, k.given = len(c.said), make(map[string]string)
			for key := range labelled(c.n, k.step, rune(c.steps[k.step])) {
				k.labels = append(k.labels, label(c.n, k.step, strings.TrimPrefix(key, fmt.Sprint("k", k.step))))
			}
		}
	}
}

// expire ends the calls whose questions have been open for too long. Nobody tells the client of a modern one. Questions of modern tasks do not
// expire.
func (m *endsModel) expire() {
	for _, c := range m.calls {
		if !c.asks || c.over || time.Since(c.asked) < endsLimits.Expiry || c.isTask && c.side.modern {
			continue
		}
		if c.close(server.ErrUnanswered); !c.side.modern {
			c.by.end(&endsWant{fails: true, text: "took longer"})
		}
	}
}

// settle lets everybody do what they do meanwhile.
func (m *endsModel) settle(d time.Duration) {
	m.mu.Lock()
	m.passed += d // what the model has read comes before what they write
	m.mu.Unlock()
	pass(d)
	synctest.Wait()
}

// check lets time pass, and compares both ends with the model.
func (m *endsModel) check(t *rapid.T) {
	m.settle(endsSettling)
	m.expire()
	m.ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.callers = slices.DeleteFunc(m.callers, func(k *endsCaller) bool { return k.hasEnded(t) })
	for _, c := range m.calls {
		c.check(t)
	}
	var want, got []string
	for _, k := range m.callers {
		for _, of := range k.labels {
			want = append(want, fmt.Sprintf("%s %s", k.side.name, of))
		}
	}
	for _, p := range m.prompts {
		got = append(got, fmt.Sprintf("%s %s", p.side.name, p.label))
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Fatalf("users see %q, want %q", got, want)
	}
}

// check compares what the handlers of a call have done.
func (c *endsCall) check(t *rapid.T) {
	running := 0
	if !c.over && (!c.asks || c.stays()) {
		running = 1
	}
	if c.runs != c.wantRuns || c.running != running || c.finished != c.wantFinished {
		t.Fatalf("the handler of %v ran %d times, of which %d were to the end, and %d run now; want %d, %d and %d", c, c.runs, c.finished, c.running, c.wantRuns, c.wantFinished, running)
	}
	if c.over && c.wantEnd != nil && !errors.Is(c.ended, c.wantEnd) {
		t.Fatalf("the handler of %v has ended with %v, want %v", c, c.ended, c.wantEnd)
	}
}

func (c *endsCall) String() string {
	return fmt.Sprintf("call %d, %s %q of %s, modern %t, a task %t, said %q, asks %t, over %t", c.n, c.way, c.steps, c.side.identity, c.side.modern, c.isTask, c.said, c.asks, c.over)
}

// hasEnded checks that a caller has ended exactly if it should have, and how.
func (k *endsCaller) hasEnded(t *rapid.T) bool {
	if len(k.done) == 0 || k.want == nil {
		if len(k.done) > 0 || k.want != nil {
			t.Fatalf("%v: the caller has ended: %t, want %+v; it sees %q", k.of, len(k.done) > 0, k.want, k.labels)
		}
		return false
	}
	end, want := <-k.done, k.want
	k.cancel()
	if want.err != nil {
		k.checkError(t, end, want.err)
		return true
	}
	if end.err != nil || end.result.IsError != want.fails || (end.result.InputRequired != nil) != want.asks || !want.asks && !want.fails && end.result.Content.Text() != want.text || !strings.Contains(end.result.Content.Text(), want.text) {
		t.Fatalf("%v: the caller has ended with %+v, %v, want %+v", k.of, end.result, end.err, want)
	}
	return true
}

func (k *endsCaller) checkError(t *rapid.T, end endsEnd, want error) {
	if refused := want == errOverloaded && k.of.wantRuns == 0; client.NotExecuted(end.err) != refused {
		t.Fatalf("%v: the caller has ended with %v, which says that it was not executed: %t, want %t", k.of, end.err, !refused, refused)
	}
	var fault *jsonrpc.Error
	ok := errors.Is(end.err, want)
	switch wanted := want.(type) {
	case *jsonrpc.Error:
		ok = errors.As(end.err, &fault) && fault.Code == wanted.Code && strings.Contains(string(fault.Data), wanted.Message)
	case *client.InputError:
		ok = errors.As(end.err, new(*client.InputError))
	}
	if !ok {
		t.Fatalf("%v: the caller has ended with %+v, %v, want %v", k.of, end.result, end.err, want)
	}
}

// checkPlaces ends all calls. Then all places are free.
func (m *endsModel) checkPlaces(t *rapid.T) {
	for _, k := range slices.Clone(m.callers) {
		if k.want == nil {
			m.abandon(k)
		}
	}
	m.check(t)
	m.passExpiry(t)
	for way := range maps.Keys(map[string]bool{"waits": true, "taskwaits": true}) {
		for range endsLimits.MaxWaiting {
			m.start(m.sides[2], way, "c", false)
		}
	}
	m.check(t)
	for _, c := range m.calls[len(m.calls)-2*endsLimits.MaxWaiting:] {
		if !c.asks {
			t.Fatalf("there is no place for %v, want all to be free", c)
		}
	}
}

// end closes the clients and the server, and nothing is left.
func (m *endsModel) end(t *rapid.T) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, side := range m.sides {
		_ = side.c.Close(now)
	}
	if err := m.Close(context.Background()); err != nil {
		t.Error(err)
	}
	m.serving.Wait()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.callers {
		if len(k.done) == 0 && !t.Failed() {
			t.Errorf("%v: the caller waits after Close", k.of)
		}
		k.cancel()
	}
	for _, c := range m.calls {
		if c.running > 0 || len(m.prompts) > 0 {
			t.Errorf("%v: %d handlers run after Close, and users see %d questions", c, c.running, len(m.prompts))
		}
	}
}
