package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
)

// A roundsModel is two clients of 2026-07-28 that make calls of tools that ask, and what
// should have become of these calls.
type roundsModel struct {
	s        *scripted
	peers    map[string]*modelPeer // by identity
	calls    []*roundsCall
	requests map[int]*roundsReply // those without a reply, by id
	ids      int
}

// A roundsCall is one call with all its rounds.
type roundsCall struct {
	n              int
	who, way       string
	steps          string
	said           []string          // the answers so far
	keys           []string          // of the open questions; nil between two questions
	got            map[string]string // what was said to other questions of the pair
	state, earlier string            // as the server has sent them
	began, asked   time.Time
	rounds, runs   int
	busy           int // the id of its request; 0: none
	over           bool
}

// A roundsReply is a reply that should come at a time.
type roundsReply struct {
	of    *roundsCall
	who   string
	at    time.Time
	code  int64  // of an error
	text  string // that is in the error or the result
	asked bool   // it has a question
}

var modelLimits = server.AskingOptions{Expiry: 10 * time.Minute, CallExpiry: 12 * time.Minute, MaxRounds: 4, MaxWaiting: 3}

// Two clients call tools that ask in three ways. They answer, decline, leave out and repeat
// answers, present states of others, cancel, lose their links and stay silent. Each question is
// answered once, no handler runs for a request that is refused, each waiting handler returns
// once, and all places become free again.
//
// Guarantees: G-0031.1, G-0031.2, G-0031.4, G-0031.6, G-0031.7
func TestRoundsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &roundsModel{s: newScripted(modelLimits), peers: map[string]*modelPeer{}, requests: map[int]*roundsReply{}}
			for _, who := range []string{"ada", "eve", "third", "fourth"} {
				m.peers[who] = dialModel(m.s, who)
			}
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"begin": m.begin, "begin more": m.begin, "answer": m.answer, "answer more": m.answer, "leave out": m.leaveOut, "misfit": m.misfit, "twice": m.twice,
				"refused": m.refused, "cancel": m.cancel, "lose": m.lose,
				"pass": func(t *rapid.T) { m.pass(t, time.Duration(rapid.IntRange(1, 600).Draw(t, "seconds"))*time.Second) },
				"":     m.check,
			})
			m.pass(t, time.Hour)
			for _, who := range []string{"third", "third", "fourth"} { // all places are free
				m.start(t, who, "waits", "c")
				m.check(t)
			}
		})
	})
}

func (m *roundsModel) begin(t *rapid.T) {
	who := rapid.SampledFrom([]string{"ada", "eve"}).Draw(t, "who")
	way := rapid.SampledFrom([]string{"waits", "waits", "reruns", "explicit"}).Draw(t, "way")
	m.start(t, who, way, rapid.StringOfN(rapid.RuneFrom([]rune("cfusrpw")), 0, 4, -1).Draw(t, "steps"))
}

// start begins a call, if there is a place for it.
func (m *roundsModel) start(t *rapid.T, who, way, steps string) {
	c := &roundsCall{n: len(m.calls), who: who, way: way, steps: steps, began: time.Now()}
	id := m.send(t, c, who, c.n, "")
	if way == "waits" && !m.hasPlace() {
		c.over = true
		m.requests[id] = &roundsReply{of: c, who: who, at: time.Now(), code: -32050, text: "overloaded"}
	} else {
		m.goOn(id, c)
	}
	m.calls = append(m.calls, c)
}

// hasPlace reports whether there is a place for a waiting call.
func (m *roundsModel) hasPlace() bool {
	free := modelLimits.MaxWaiting
	for _, other := range m.calls {
		if !other.over && other.way == "waits" {
			free--
		}
	}
	return free > 0
}

// goOn says what the handler does next, and so which reply the request gets.
func (m *roundsModel) goOn(id int, c *roundsCall) {
	c.runs++
	if c.way == "waits" {
		c.runs = 1
	}
	reply := &roundsReply{of: c, who: c.who, at: time.Now()}
	if c.way == "reruns" {
		reply.at = reply.at.Add(c.again())
	}
	for c.busy = id; len(c.said) < len(c.steps) && c.steps[len(c.said)] == 'w'; reply.at = reply.at.Add(workTime) {
		c.said = append(c.said, "worked")
	}
	limit := c.began.Add(modelLimits.CallExpiry)
	switch {
	case c.way == "waits" && !reply.at.Before(limit):
		reply.at, reply.text = limit, "took longer"
	case len(c.said) == len(c.steps):
		reply.text = `"text":"` + strings.Join(c.said, " ") + `"`
	case c.rounds == modelLimits.MaxRounds:
		reply.code, reply.text = -32603, "asked 4 times"
	default:
		reply.asked = true
	}
	m.requests[id] = reply
}

// again is how long a handler that runs again works before it comes to its open question.
func (c *roundsCall) again() time.Duration {
	return time.Duration(strings.Count(c.steps[:len(c.said)], "w")) * workTime
}

// send sends a request of a call, with arguments that say which.
func (m *roundsModel) send(t *rapid.T, c *roundsCall, who string, n int, more string) int {
	m.ids++
	frame := modern(fmt.Sprint(m.ids), "tools/call", fmt.Sprintf(`"name":%q,"arguments":{"n":%d,"steps":%q}%s`, c.way, n, c.steps, more))
	if err := m.peers[who].send(strings.Replace(frame, `clientCapabilities":{}`, `clientCapabilities":`+everything, 1)); err != nil {
		t.Fatal(err)
	}
	return m.ids
}

// pick draws a call that waits for answers.
func (m *roundsModel) pick(t *rapid.T) *roundsCall {
	asking := slices.DeleteFunc(slices.Clone(m.calls), func(c *roundsCall) bool { return c.over || c.busy != 0 })
	if len(asking) == 0 {
		t.Skip("no call asks")
	}
	return asking[rapid.IntRange(0, len(asking)-1).Draw(t, "call")]
}

// respond draws answers to some open questions. It returns them, and what they say by key.
func (c *roundsCall) respond(t *rapid.T, keys []string, hows ...string) (more string, said map[string]string) {
	answers, said := []string{`"unknown":{"action":"accept","content":{}}`}, map[string]string{}
	for _, key := range keys {
		text := fmt.Sprint("v", rapid.IntRange(0, 999).Draw(t, "text"))
		answer, says := stepAnswer(rune(c.steps[len(c.said)]), rapid.SampledFrom(hows).Draw(t, "how"), text)
		answers, said[key] = append(answers, fmt.Sprintf(`%q:%s`, key, answer)), says
	}
	return retryParams(c.state, strings.Join(answers, ",")), said
}

// taken notes that all open questions are answered.
func (c *roundsCall) taken(said map[string]string) {
	maps.Copy(said, c.got)
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(said)) {
		texts = append(texts, said[key])
	}
	c.said, c.keys, c.got = append(c.said, strings.Join(texts, "+")), nil, nil
}

var goodAnswers = []string{"accept", "accept", "decline", "cancel"}

func (m *roundsModel) answer(t *rapid.T) {
	c := m.pick(t)
	more, said := c.respond(t, c.keys, goodAnswers...)
	c.taken(said)
	m.goOn(m.send(t, c, c.who, c.n, more), c)
}

// leaveOut answers only one question of a pair, or none. The others are asked again.
func (m *roundsModel) leaveOut(t *rapid.T) {
	c := m.pick(t)
	n := rapid.IntRange(0, len(c.keys)-1).Draw(t, "answered")
	more, said := c.respond(t, c.keys[:n], goodAnswers...)
	if c.way != "explicit" { // which asks for both again
		maps.Copy(said, c.got)
		c.keys, c.got = c.keys[n:], said
	}
	m.goOn(m.send(t, c, c.who, c.n, more), c)
}

// misfit sends an answer that does not fit. Only a call that runs again is over then, and not if
// the answer fits no question at all.
func (m *roundsModel) misfit(t *rapid.T) {
	c, how := m.pick(t), rapid.SampledFrom([]string{"number", "misfit"}).Draw(t, "how")
	if c.way == "explicit" && how == "misfit" {
		t.Skip("the handler checks its answers itself")
	}
	more, _ := c.respond(t, c.keys, how)
	id := m.send(t, c, c.who, c.n, more)
	reply := &roundsReply{of: c, who: c.who, at: time.Now(), code: -32602, text: `\"` + c.keys[0][:1]}
	if c.way == "reruns" && how == "misfit" {
		c.busy, reply.at = id, reply.at.Add(c.again())
		c.runs++
	}
	m.requests[id] = reply
}

// twice sends the same answers twice. One of the requests is refused.
func (m *roundsModel) twice(t *rapid.T) {
	c := m.pick(t)
	more, said := c.respond(t, c.keys, goodAnswers...)
	first, second := m.send(t, c, c.who, c.n, more), m.send(t, c, c.who, c.n, more)
	var refused []int
	frames := m.peers[c.who].came()
	for _, frame := range frames {
		if strings.Contains(frame, "invalid_request_state") {
			refused = append(refused, replyID(t, frame))
		}
		m.peers[c.who].frames <- frame // for check
	}
	if len(refused) != 1 {
		t.Fatalf("%d of two requests with the same state were refused: %s", len(refused), frames)
	}
	m.requests[refused[0]] = &roundsReply{of: c, who: c.who, at: time.Now(), code: -32602, text: "invalid_request_state"}
	c.taken(said)
	m.goOn(first+second-refused[0], c)
}

// refused presents a state that is not valid, or not for this call. The call is as before.
func (m *roundsModel) refused(t *rapid.T) {
	if len(m.calls) == 0 {
		t.Skip("no call")
	}
	c := m.calls[rapid.IntRange(0, len(m.calls)-1).Draw(t, "call")]
	who, n, state, way := c.who, c.n, c.earlier, *c
	switch rapid.IntRange(0, 4).Draw(t, "why") {
	case 0:
		who, state = map[string]string{"ada": "eve", "eve": "ada"}[c.who], c.state
	case 1:
		n, state = c.n+1, c.state
	case 2:
		way.way, state = map[string]string{"waits": "reruns", "reruns": "explicit", "explicit": "waits"}[c.way], c.state
	case 3:
		if i := len(c.state) / 2; i > 0 {
			state = c.state[:i] + map[bool]string{true: "A", false: "B"}[c.state[i] != 'A'] + c.state[i+1:]
		}
	default:
		if c.over || c.busy != 0 {
			state = c.state
		}
	}
	if state == "" {
		t.Skip("no such state")
	}
	id := m.send(t, &way, who, n, retryParams(state, `"1":{"action":"accept","content":{}}`))
	m.requests[id] = &roundsReply{of: c, who: who, at: time.Now(), code: -32602, text: "invalid_request_state"}
}

// cancel cancels a request while the handler works. There is no reply, and the call is over.
func (m *roundsModel) cancel(t *rapid.T) {
	for id, r := range m.requests {
		if r.of.busy == id {
			if err := m.peers[r.who].send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)); err != nil {
				t.Fatal(err)
			}
			r.of.over = true
			delete(m.requests, id)
			return
		}
	}
	t.Skip("no handler works")
}

// lose cuts the link of a client, who comes back. Its calls without a request go on.
func (m *roundsModel) lose(t *rapid.T) {
	who := rapid.SampledFrom([]string{"ada", "eve"}).Draw(t, "who")
	if err := m.peers[who].close(); err != nil {
		t.Fatal(err)
	}
	for id, r := range m.requests {
		if r.who == who {
			r.of.over = true
			delete(m.requests, id)
		}
	}
	m.peers[who] = dialModel(m.s, who)
}

// pass lets time pass, and calls expire.
func (m *roundsModel) pass(t *rapid.T, d time.Duration) {
	pass(d)
	m.check(t)
}

// check reads the replies that have come, and compares what the handlers did.
func (m *roundsModel) check(t *rapid.T) {
	for who, w := range m.peers {
		for _, frame := range w.came() {
			id := replyID(t, frame)
			r := m.requests[id]
			if r == nil || r.who != who || r.at.After(time.Now()) {
				t.Fatalf("a reply that is none or comes too early: %s, want %+v", frame, r)
			}
			delete(m.requests, id)
			r.check(t, id, frame)
		}
	}
	for id, r := range m.requests {
		if !r.at.After(time.Now()) {
			t.Fatalf("request %d of call %d has no reply, want %+v", id, r.of.n, r)
		}
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, c := range m.calls {
		expires := c.asked.Add(modelLimits.Expiry)
		if limit := c.began.Add(modelLimits.CallExpiry); limit.Before(expires) {
			expires = limit
		}
		if c.busy == 0 && !time.Now().Before(expires) {
			c.over = true
		}
		if runs := m.s.runs[c.n]; runs != c.runs {
			t.Fatalf("the handler of call %d, %s %q, ran %d times, want %d", c.n, c.way, c.steps, runs, c.runs)
		}
		if c.way == "waits" && c.runs > 0 {
			m.checkEnd(t, c)
		}
	}
}

// checkEnd checks that a waiting handler has returned exactly if its call is over.
func (m *roundsModel) checkEnd(t *rapid.T, c *roundsCall) {
	ends := m.s.ends[c.n]
	if c.over != (len(ends) == 1) {
		t.Fatalf("the handler of call %d, %q, has returned %v; the call is over: %t", c.n, c.steps, ends, c.over)
	}
	if c.over && c.busy == 0 && !errors.Is(ends[0], server.ErrUnanswered) {
		t.Fatalf("the question of call %d failed with %v, want %v", c.n, ends[0], server.ErrUnanswered)
	}
}

// check compares a reply with what it should be.
func (r *roundsReply) check(t *rapid.T, id int, frame string) {
	var got struct {
		Result struct {
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params struct{ Mode string }
			}
		}
		Error *fault
	}
	if err := json.Unmarshal([]byte(frame), &got); err != nil {
		t.Fatal(err)
	}
	c := r.of
	if (got.Error == nil) != (r.code == 0) || got.Error != nil && got.Error.Code != r.code || !strings.Contains(frame, r.text) || r.asked != (got.Result.RequestState != "") {
		t.Fatalf("call %d, %s %q: got %s, want %+v", c.n, c.way, c.steps, frame, r)
	}
	if c.busy != id {
		return
	}
	if !r.asked {
		c.over = true
		return
	}
	c.busy, c.asked, c.earlier, c.state = 0, r.at, c.state, got.Result.RequestState
	if c.rounds++; c.way == "explicit" && c.rounds == 1 {
		c.began = c.asked // the server learns only now that the tool asks
	}
	step := rune(c.steps[len(c.said)])
	wanted := len(stepRequests(step, 0)) - len(c.got)
	keys := slices.Sorted(maps.Keys(got.Result.InputRequests))
	for _, key := range keys {
		q := got.Result.InputRequests[key]
		if kind := map[rune]string{'u': "elicitation/create url", 's': "sampling/createMessage ", 'r': "roots/list "}[step]; kind != "" && kind != q.Method+" "+q.Params.Mode {
			t.Fatalf("call %d asks %s, want %s", c.n, frame, kind)
		}
	}
	if len(keys) != wanted || c.got != nil && !slices.Equal(keys, c.keys) {
		t.Fatalf("call %d, %s %q asks %v, want %d questions of step %d, those of %v", c.n, c.way, c.steps, keys, wanted, len(c.said), c.keys)
	}
	c.keys = keys
}

// replyID returns the id of a response.
func replyID(t *rapid.T, frame string) int {
	var reply struct{ ID int }
	if err := json.Unmarshal([]byte(frame), &reply); err != nil || reply.ID == 0 {
		t.Fatalf("%s is no response: %v", frame, err)
	}
	return reply.ID
}

// end closes the server. Each handler that waits has returned then.
func (m *roundsModel) end(t *rapid.T) {
	pass(4 * workTime)
	if err := m.s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for _, c := range m.calls {
		if ends := m.s.ends[c.n]; c.way == "waits" && len(ends) != c.runs {
			t.Errorf("the handler of call %d has returned %d times, want %d", c.n, len(ends), c.runs)
		}
	}
	for _, w := range m.peers {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
}
