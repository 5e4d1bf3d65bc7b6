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

// A legacyModel is two clients of 2025-11-25 that are asked in the middle of their calls, and
// what should have become of these calls.
type legacyModel struct {
	s     *scripted
	peers []*modelPeer
	calls []*legacyCall
	over  []legacyQuestion // questions that are not open any more
}

// A legacyCall is a call and what it has asked.
type legacyCall struct {
	n, client  int
	way, steps string
	said       []string
	open       []legacyQuestion
	got        map[string]string // what was said to the other question of a pair, by its message
	began      time.Time
	next       time.Time // when its work ends; zero: it does not work
	asked      time.Time
	runs       int
	ended      bool
	failed     bool // its handler, if it Waits, got an error for its question
}

// A legacyQuestion is a request of the server.
type legacyQuestion struct {
	client      int
	id, message string
	step        rune
}

// Two clients of a legacy revision call tools that ask in three ways. They answer, decline,
// refuse, answer what does not fit, repeat answers and answer late, cancel, lose their links and
// stay silent. Each question is asked once and gets its own answer, at most 32 are open for one
// client, and those of a call that ends are cancelled.
//
// Guarantees: G-0031.1, G-0031.2, G-0031.6
func TestLegacyQuestionsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &legacyModel{s: newScripted(server.AskingOptions{Expiry: 10 * time.Minute, CallExpiry: 12 * time.Minute}), peers: make([]*modelPeer, 2)}
			m.dial(t, 0)
			m.dial(t, 1)
			defer m.end(t)
			t.Repeat(map[string]func(*rapid.T){
				"begin": m.begin, "begin more": m.begin, "flood": m.flood, "answer": m.answer, "answer more": m.answer, "refuse": m.refuse,
				"late": m.late, "cancel": m.cancel, "lose": m.lose,
				"pass": func(t *rapid.T) { m.pass(t, time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds"))*time.Second) },
				"":     m.check,
			})
			m.pass(t, time.Hour)
			for client := range m.peers { // no question counts any more
				for range 32 {
					m.start(t, client, "waits", "c")
				}
				m.check(t)
			}
		})
	})
}

func (m *legacyModel) dial(t *rapid.T, client int) {
	w := dialModel(m.s, fmt.Sprint(client))
	m.peers[client] = w
	frame := strings.Replace(initializeFrame, "VERSION", "2025-11-25", 1)
	if err := errors.Join(w.send(strings.Replace(frame, `"capabilities":{}`, `"capabilities":`+everything, 1)), w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
		t.Fatal(err)
	}
	w.came()
}

func (m *legacyModel) begin(t *rapid.T) {
	way := rapid.SampledFrom([]string{"waits", "reruns", "explicit"}).Draw(t, "way")
	m.start(t, rapid.IntRange(0, 1).Draw(t, "client"), way, rapid.StringOfN(rapid.RuneFrom([]rune("cfusrpw")), 0, 4, -1).Draw(t, "steps"))
	m.check(t)
}

// flood begins calls until almost 32 questions are open.
func (m *legacyModel) flood(t *rapid.T) {
	client := rapid.IntRange(0, 1).Draw(t, "client")
	for m.openOf(client) < 31 {
		m.start(t, client, "waits", "c")
		m.check(t)
	}
}

func (m *legacyModel) openOf(client int) (n int) {
	for _, c := range m.calls {
		if c.client == client && !c.ended && len(c.open) > 0 {
			n += len(c.open) + len(c.got)
		}
	}
	return n
}

func (m *legacyModel) start(t *rapid.T, client int, way, steps string) {
	c := &legacyCall{n: len(m.calls), client: client, way: way, steps: steps, began: time.Now()}
	m.calls = append(m.calls, c)
	m.send(t, client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"n":%d,"steps":%q,"more":%d}}}`, c.n, way, c.n, steps, c.works()-workTime))
	m.goOn(t, c, true)
}

func (m *legacyModel) send(t *rapid.T, client int, frame string) {
	if err := m.peers[client].send(frame); err != nil {
		t.Fatal(err)
	}
}

// works is how long a call works. No two calls come to a question at the same time.
func (c *legacyCall) works() time.Duration {
	return workTime + time.Duration((c.n+1)*2654435761%int(time.Second))
}

// goOn lets the handler of a call go on, from its beginning if it runs again.
func (m *legacyModel) goOn(t *rapid.T, c *legacyCall, first bool) {
	c.next = time.Now()
	if first || c.way != "waits" {
		c.runs++
	}
	if c.way == "reruns" {
		c.next = c.next.Add(time.Duration(strings.Count(strings.Join(c.said, " "), "worked")) * c.works())
	}
	for len(c.said) < len(c.steps) && c.steps[len(c.said)] == 'w' {
		c.next, c.said = c.next.Add(c.works()), append(c.said, "worked")
	}
	m.settle(t, c)
}

// settle reads what a call does when its work is over: it ends or asks.
func (m *legacyModel) settle(t *rapid.T, c *legacyCall) {
	limit := c.began.Add(12 * time.Minute)
	switch {
	case !limit.After(time.Now()) && !limit.After(c.next):
		c.fail(m, false)
		m.reply(t, c, "took longer")
	case c.next.After(time.Now()):
		return
	case len(c.said) == len(c.steps):
		c.ended = true
		m.reply(t, c, `"text":"`+strings.Join(c.said, " ")+`"`)
	default:
		m.askedBy(t, c)
	}
	c.next = time.Time{}
}

// askedBy reads the questions of a call.
func (m *legacyModel) askedBy(t *rapid.T, c *legacyCall) {
	step := rune(c.steps[len(c.said)])
	n := len(stepRequests(step, 0))
	if m.openOf(c.client)+n > 32 {
		c.fail(m, true)
		m.reply(t, c, "32 open questions")
		return
	}
	want := map[rune]string{'u': "elicitation/create url", 's': "sampling/createMessage ", 'r': "roots/list "}[step]
	if c.asked, c.got = time.Now(), nil; c.way == "explicit" && c.runs == 1 {
		c.began = c.asked // the server learns only now that the tool asks
	}
	for range n {
		var q struct {
			ID     json.RawMessage
			Method string
			Params struct{ Mode, Message string }
		}
		frame := m.next(t, c, func(frame string) bool { return strings.Contains(frame, `"method"`) && strings.Contains(frame, `"id"`) })
		if err := json.Unmarshal([]byte(frame), &q); err != nil || q.Method == "" || want != "" && want != q.Method+" "+q.Params.Mode {
			t.Fatalf("call %d, %s %q, sent %s, want a question %c: %v", c.n, c.way, c.steps, frame, step, err)
		}
		c.open = append(c.open, legacyQuestion{c.client, string(q.ID), q.Params.Message, step})
	}
}

// next returns the next frame that a call causes, among those that other calls cause at the
// same time.
func (m *legacyModel) next(t *rapid.T, c *legacyCall, fits func(string) bool) string {
	w := m.peers[c.client]
	frames := w.came()
	i := slices.IndexFunc(frames, fits)
	if i < 0 {
		t.Fatalf("call %d, %s %q, said %v and asks %v: began %v, asked %v ago: nothing of it among %s", c.n, c.way, c.steps, c.said, c.open, time.Since(c.began), time.Since(c.asked), frames)
	}
	for _, frame := range slices.Delete(slices.Clone(frames), i, i+1) {
		w.frames <- frame
	}
	return frames[i]
}

// reply reads the reply to a call that has ended.
func (m *legacyModel) reply(t *rapid.T, c *legacyCall, text string) {
	frame := m.next(t, c, func(frame string) bool {
		return strings.Contains(frame, fmt.Sprintf(`"id":%d,`, c.n)) && !strings.Contains(frame, `"method"`)
	})
	if !strings.Contains(frame, text) {
		t.Fatalf("call %d, %s %q, sent %s, want the reply with %s", c.n, c.way, c.steps, frame, text)
	}
}

// fail notes that a call is over, and its open questions with it.
func (c *legacyCall) fail(m *legacyModel, failed bool) {
	c.ended, c.failed = true, failed
	m.over = append(m.over, c.open...)
	c.open = nil
}

// pick draws a call with open questions.
func (m *legacyModel) pick(t *rapid.T) *legacyCall {
	asking := slices.DeleteFunc(slices.Clone(m.calls), func(c *legacyCall) bool { return len(c.open) == 0 })
	if len(asking) == 0 {
		t.Skip("no open question")
	}
	return asking[rapid.IntRange(0, len(asking)-1).Draw(t, "call")]
}

// answer answers an open question.
func (m *legacyModel) answer(t *rapid.T) {
	c := m.pick(t)
	i := rapid.IntRange(0, len(c.open)-1).Draw(t, "question")
	q := c.open[i]
	result, said := stepAnswer(q.step, rapid.SampledFrom(goodAnswers).Draw(t, "how"), fmt.Sprint("v", rapid.IntRange(0, 999).Draw(t, "text")))
	m.send(t, c.client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.id, result))
	c.open, m.over = slices.Delete(slices.Clone(c.open), i, i+1), append(m.over, q)
	if c.got == nil {
		c.got = map[string]string{}
	}
	if c.got[q.message] = said; len(c.open) > 0 {
		return
	}
	var texts []string
	for _, message := range slices.Sorted(maps.Keys(c.got)) {
		texts = append(texts, c.got[message])
	}
	c.said = append(c.said, strings.Join(texts, "+"))
	m.goOn(t, c, false)
}

// refuse answers an open question with an error, or with what does not fit. The call fails.
func (m *legacyModel) refuse(t *rapid.T) {
	c := m.pick(t)
	q := c.open[rapid.IntRange(0, len(c.open)-1).Draw(t, "question")]
	body, how := `"error":{"code":-32000,"message":"not now"}`, rapid.SampledFrom([]string{"error", "rejected", "misfit", "number"}).Draw(t, "how")
	if how == "misfit" && q.step == 'r' { // an object without roots means that there are none
		how = "number"
	}
	switch answer, _ := stepAnswer(q.step, how, "x"); how {
	case "rejected":
		body = `"error":{"code":-1,"message":"no"}`
	case "misfit", "number":
		body = `"result":` + answer
	}
	m.send(t, c.client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, q.id, body))
	c.open = slices.DeleteFunc(slices.Clone(c.open), func(other legacyQuestion) bool { return other == q })
	m.cancelled(t, c)
	m.over = append(append(m.over, q), c.open...)
	if c.open = nil; how == "rejected" && c.way == "waits" { // which is what the user says
		c.said = append(c.said, "declined")
		m.goOn(t, c, false)
		return
	}
	c.fail(m, false)
	m.reply(t, c, "")
}

// cancelled reads that the open questions of a call are cancelled.
func (m *legacyModel) cancelled(t *rapid.T, c *legacyCall) {
	for _, q := range c.open {
		m.next(t, c, func(frame string) bool {
			return strings.Contains(frame, "notifications/cancelled") && strings.Contains(frame, `"requestId":`+q.id+`,`)
		})
	}
}

// late answers a question that is not open any more. Nothing happens.
func (m *legacyModel) late(t *rapid.T) {
	if len(m.over) == 0 {
		t.Skip("no such question")
	}
	q := m.over[rapid.IntRange(0, len(m.over)-1).Draw(t, "question")]
	answer, _ := stepAnswer(q.step, "accept", "late")
	m.send(t, q.client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.id, answer))
}

// cancel cancels a call. Its questions are cancelled, and there is no reply.
func (m *legacyModel) cancel(t *rapid.T) {
	running := slices.DeleteFunc(slices.Clone(m.calls), func(c *legacyCall) bool { return c.ended })
	if len(running) == 0 {
		t.Skip("no such call")
	}
	c := running[rapid.IntRange(0, len(running)-1).Draw(t, "call")]
	m.send(t, c.client, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, c.n))
	m.cancelled(t, c)
	c.fail(m, len(c.open) > 0)
}

// lose cuts the link of a client, who comes back. All its calls are over.
func (m *legacyModel) lose(t *rapid.T) {
	client := rapid.IntRange(0, 1).Draw(t, "client")
	if err := m.peers[client].close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range m.calls {
		if c.client == client && !c.ended {
			c.fail(m, false)
		}
	}
	m.over = slices.DeleteFunc(m.over, func(q legacyQuestion) bool { return q.client == client })
	m.dial(t, client)
}

// pass lets time pass, from one event of a call to the next.
func (m *legacyModel) pass(t *rapid.T, d time.Duration) {
	for until := time.Now().Add(d); ; {
		at := until
		for _, c := range m.calls {
			if !c.ended && c.due().Before(at) {
				at = c.due()
			}
		}
		pass(time.Until(at))
		for _, c := range m.calls { // one of them, or several of the same moment
			if !c.ended && !c.due().After(at) {
				m.expire(t, c)
			}
		}
		if !at.Before(until) {
			return
		}
	}
}

// due is when a call goes on by itself.
func (c *legacyCall) due() time.Time {
	limit := c.began.Add(12 * time.Minute)
	for _, at := range []time.Time{c.next, c.asked.Add(10 * time.Minute)} {
		if (at == c.next) == !c.next.IsZero() && at.Before(limit) {
			limit = at
		}
	}
	return limit
}

func (m *legacyModel) expire(t *rapid.T, c *legacyCall) {
	if !c.next.IsZero() {
		m.settle(t, c)
		return
	}
	m.cancelled(t, c)
	c.fail(m, true)
	m.reply(t, c, "took longer")
}

// check compares what the handlers did. Nothing has come that was not expected.
func (m *legacyModel) check(t *rapid.T) {
	for client, w := range m.peers {
		if frames := w.came(); len(frames) > 0 {
			t.Fatalf("client %d got %s, want nothing", client, frames)
		}
	}
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	for _, c := range m.calls {
		if runs := m.s.runs[c.n]; runs != c.runs {
			t.Fatalf("the handler of call %d, %s %q, ran %d times, want %d", c.n, c.way, c.steps, runs, c.runs)
		}
		if ends := m.s.ends[c.n]; c.way == "waits" && (c.ended != (len(ends) == 1) || c.failed && !errors.Is(ends[0], server.ErrUnanswered)) {
			t.Fatalf("the handler of call %d, %q, has returned %v; the call is over: %t, unanswered: %t", c.n, c.steps, ends, c.ended, c.failed)
		}
	}
}

// end closes the links and the server.
func (m *legacyModel) end(t *rapid.T) {
	for _, w := range m.peers {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}
	if err := m.s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
