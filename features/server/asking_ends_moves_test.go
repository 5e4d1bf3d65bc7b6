package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

func (m *endsModel) side(t *rapid.T) *endsSide { return sideOf(t, m.sides) }

func sideOf(t *rapid.T, some []*endsSide) *endsSide {
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "side")]
}

// pick draws a call.
func (m *endsModel) pick(t *rapid.T, which func(*endsCall) bool) *endsCall {
	some := slices.DeleteFunc(slices.Clone(m.calls), func(c *endsCall) bool { return !which(c) })
	if len(some) == 0 {
		t.Skip("no such call")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "call")]
}

func (m *endsModel) begin(t *rapid.T) {
	side, way := m.side(t), rapid.SampledFrom(slices.Sorted(maps.Keys(endsWays))).Draw(t, "way")
	steps := rapid.StringOfN(rapid.RuneFrom([]rune("cfusrpw")), 0, 4, -1).Draw(t, "steps")
	m.start(side, way, steps, side.modern && !endsWays[way] && rapid.IntRange(0, 3).Draw(t, "manual") == 0)
}

// start begins a call, if there is a place for it.
func (m *endsModel) start(side *endsSide, way, steps string, manual bool) {
	c := &endsCall{n: len(m.calls), side: side, way: way, steps: steps, isTask: endsWays[way] && (way != "taskreruns" || !side.modern)}
	place := m.hasPlace(c)
	m.mu.Lock()
	m.calls = append(m.calls, c)
	m.mu.Unlock()
	if c.by = m.request(c, side, manual, c.params(nil, "")); place {
		m.goOn(c)
	} else {
		c.fail(nil, &endsWant{err: errOverloaded})
	}
}

// params returns the params of a request, with answers and a state.
func (c *endsCall) params(answers protocol.InputResponses, state string) *protocol.CallToolParams {
	p := &protocol.CallToolParams{Name: c.way, Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d,"steps":%q}`, c.n, c.steps))}
	if state != "" {
		p.InputResponses, p.RequestState = answers, &state
	}
	return p
}

// request makes a request for a call.
func (m *endsModel) request(c *endsCall, side *endsSide, manual bool, params *protocol.CallToolParams) *endsCaller {
	k := &endsCaller{of: c, side: side, manual: manual, done: make(chan endsEnd, 1)}
	var ctx context.Context
	ctx, k.cancel = context.WithCancel(context.Background())
	m.callers = append(m.callers, k)
	session := side.With(client.CallOptions{Timeout: -1, ManualInput: manual})
	go func() {
		result, err := session.CallTool(ctx, params)
		k.done <- endsEnd{result, err}
	}()
	return k
}

// reply is what a user does with a question.
func (m *endsModel) reply(t *rapid.T) {
	if len(m.prompts) == 0 {
		t.Skip("nobody is asked")
	}
	of := slices.SortedFunc(slices.Values(m.prompts), func(a, b *endsPrompt) int { return strings.Compare(a.label+a.side.name, b.label+b.side.name) })
	p := of[rapid.IntRange(0, len(of)-1).Draw(t, "prompt")]
	k := m.callers[slices.IndexFunc(m.callers, func(k *endsCaller) bool { return k.side == p.side && slices.Contains(k.labels, p.label) })]
	c, how := k.of, rapid.SampledFrom([]string{"accept", "accept", "accept", "decline", "cancel", "fail"}).Draw(t, "how")
	step := rune(c.steps[k.step])
	answer, said := stepAnswer(step, how, m.text())
	if how == "fail" {
		if answer = ""; k.side.modern || strings.ContainsRune("sr", step) {
			p.reply <- answer
			m.failed(k)
			return
		}
		_, said = stepAnswer(step, "cancel", "") // which a legacy server is told
	}
	p.reply <- answer
	k.given[p.label] = said
	if k.labels = slices.DeleteFunc(k.labels, func(of string) bool { return of == p.label }); len(k.labels) == 0 {
		m.answered(k)
	}
}

// text returns what no user has said before.
func (m *endsModel) text() string {
	m.texts++
	return fmt.Sprint("v", m.texts)
}

// failed says what follows if a user cannot be asked. A modern server learns that only if the call is a task, which is cancelled.
func (m *endsModel) failed(k *endsCaller) {
	c := k.of
	switch {
	case !k.side.modern:
		c.fail(nil, &endsWant{fails: true})
	case c.isTask && !c.over:
		c.fail(server.ErrTaskCancelled, &endsWant{err: errInput})
	default:
		k.end(&endsWant{err: errInput})
		k.left()
	}
}

// left says that nobody answers for a caller any more.
func (k *endsCaller) left() {
	if k.of.by == k {
		k.of.by = nil
	}
}

// answered says what follows when a user has answered all that he was asked.
func (m *endsModel) answered(k *endsCaller) {
	c := k.of
	isOpen := c.asks && !c.over && c.by == k && k.step == len(c.said)
	switch {
	case c.isTask && !isOpen: // somebody else has answered
		k.end(k.later)
	case endsWays[c.way] && !c.isTask && !m.hasPlace(c): // its state is not looked at
		k.end(&endsWant{err: errOverloaded})
		k.left()
	case !isOpen:
		k.end(&endsWant{err: errRefused})
		k.left()
	default:
		m.say(c, k.given)
	}
}

// say notes the answers to a step.
func (m *endsModel) say(c *endsCall, given map[string]string) {
	var texts []string
	for _, of := range slices.Sorted(maps.Keys(given)) {
		texts = append(texts, given[of])
	}
	c.said = append(c.said, strings.Join(texts, "+"))
	m.goOn(c)
}

// finishWork lets a handler go on.
func (m *endsModel) finishWork(t *rapid.T) {
	c := m.pick(t, func(c *endsCall) bool { return !c.over && !c.asks })
	close(m.gate(c, len(c.said)))
	c.said = append(c.said, "worked")
	m.advance(c)
}

// giveUp ends the context of a caller.
func (m *endsModel) giveUp(t *rapid.T) {
	if len(m.callers) == 0 {
		t.Skip("nobody calls")
	}
	m.abandon(m.callers[rapid.IntRange(0, len(m.callers)-1).Draw(t, "caller")])
}

func (m *endsModel) abandon(k *endsCaller) {
	k.cancel()
	switch c := k.of; {
	case c.isTask && !c.over:
		c.fail(server.ErrTaskCancelled, &endsWant{err: context.Canceled})
	default:
		m.lose(k, context.Canceled)
	}
}

// lose says that a caller ends with an error. Modern calls between two rounds go on.
func (m *endsModel) lose(k *endsCaller, err error) {
	c := k.of
	if c.by == k && !c.over && (!c.side.modern || !c.asks) {
		c.close(nil)
	}
	k.end(&endsWant{err: err})
	k.left()
}

// cut breaks the link of a client, which comes back. Tasks go on, and a legacy server asks again for what they need.
func (m *endsModel) cut(t *rapid.T) {
	side := m.side(t)
	_ = side.far.Close(0)
	for _, k := range m.callers {
		switch {
		case k.side != side:
		case !k.of.isTask:
			m.lose(k, client.ErrLost)
		case !side.modern:
			if k.labels = nil; k.of.asks {
				k.of.asked = time.Now()
			}
		}
	}
}

// leaveSession closes a session, and begins another one, which cancels the tasks that nobody waits for.
func (m *endsModel) leaveSession(t *rapid.T) {
	side := m.side(t)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = side.c.Close(now)
	synctest.Wait()
	side.connect(t)
	for _, k := range m.callers {
		if c := k.of; k.side == side {
			if c.isTask && !c.over {
				if err := side.Task(c.task).Cancel(t.Context()); err != nil {
					t.Fatalf("cancelling the task of %v returned %v", c, err)
				}
				c.close(server.ErrTaskCancelled)
			}
			m.lose(k, client.ErrClosed)
		}
	}
}

// passExpiry lets the open questions expire.
func (m *endsModel) passExpiry(t *rapid.T) {
	m.settle(11 * time.Minute)
	m.check(t)
}

// peers returns the modern sessions of a user.
func (m *endsModel) peers(identity string) []*endsSide {
	return slices.DeleteFunc(slices.Clone(m.sides), func(s *endsSide) bool { return s.identity != identity || !s.modern })
}

// answers returns answers to all open questions of a call, and what they say.
func (m *endsModel) answers(t *rapid.T, c *endsCall, keys []string) (protocol.InputResponses, map[string]string) {
	all, said := make(protocol.InputResponses), make(map[string]string)
	step := rune(c.steps[len(c.said)])
	for _, key := range keys {
		raw, says := stepAnswer(step, rapid.SampledFrom(goodAnswers).Draw(t, "how"), m.text())
		var answer protocol.InputResponse = new(protocol.ElicitResult)
		switch step {
		case 's':
			answer = new(protocol.CreateMessageResult)
		case 'r':
			answer = new(protocol.ListRootsResult)
		}
		if err := protocol.Unmarshal([]byte(raw), answer); err != nil {
			t.Fatal(err)
		}
		all[key], said[key] = answer, says
	}
	return all, said
}

func (c *endsCall) state() string { return c.states[len(c.states)-1] }

// asksInRounds reports whether a call that cannot be a task waits for a round.
func asksInRounds(c *endsCall) bool { return c.asks && !c.over && c.isRound() && !endsWays[c.way] }

// proceed continues a call from any session of its user, with its state. Whoever else has the state is too late.
func (m *endsModel) proceed(t *rapid.T) {
	c := m.pick(t, asksInRounds)
	side := sideOf(t, m.peers(c.side.identity))
	answers, said := m.answers(t, c, c.open)
	c.by = m.request(c, side, true, c.params(answers, c.state()))
	m.say(c, said)
}

// race continues a call from two sessions at once, with different answers. One of them is refused.
func (m *endsModel) race(t *rapid.T) {
	c := m.pick(t, asksInRounds)
	state, keys := c.state(), c.open
	var racers []*endsCaller
	var said []map[string]string
	for range 2 {
		side := sideOf(t, m.peers(c.side.identity))
		answers, says := m.answers(t, c, keys)
		racers, said = append(racers, m.request(c, side, true, c.params(answers, state))), append(said, says)
	}
	synctest.Wait()
	loser := 0
	if len(racers[1].done) > 0 {
		end := <-racers[1].done
		if racers[1].done <- end; end.err != nil {
			loser = 1
		}
	}
	racers[loser].end(&endsWant{err: errRefused})
	c.by = racers[1-loser]
	m.say(c, said[1-loser])
}

// refused presents a state that was used, changed, or is not for this user or call. Everything is as before.
func (m *endsModel) refused(t *rapid.T) {
	c := m.pick(t, func(c *endsCall) bool { return len(c.states) > 0 && !endsWays[c.way] })
	state, sides, params := c.state(), m.peers(c.side.identity), c.params(nil, "")
	why := rapid.SampledFrom([]string{"used", "changed", "of another user", "for another tool", "with other arguments"}).Draw(t, "why")
	switch why {
	case "used":
		used := c.states
		if asksInRounds(c) {
			used = used[:len(used)-1]
		}
		if len(used) == 0 {
			t.Skip("no state was used")
		}
		state = rapid.SampledFrom(used).Draw(t, "state")
	case "changed":
		i := rapid.IntRange(0, len(state)-2).Draw(t, "i") // the last letter may have bits that say nothing
		state = state[:i] + map[bool]string{true: "A", false: "B"}[state[i] != 'A'] + state[i+1:]
	case "of another user":
		sides = m.peers(map[string]string{"ada": "eve", "eve": "ada"}[c.side.identity])
	case "for another tool":
		params.Name = map[string]string{"waits": "reruns", "reruns": "explicit", "explicit": "waits"}[c.way]
	default:
		params.Arguments = append(slices.Clone(params.Arguments[:len(params.Arguments)-1]), `,"more":1}`...)
	}
	params.RequestState = &state
	if params.InputResponses = (protocol.InputResponses{}); asksInRounds(c) {
		params.InputResponses, _ = m.answers(t, c, c.open)
	}
	m.request(c, sideOf(t, sides), true, params).end(&endsWant{err: errRefused})
}

// answerTask answers the questions of a modern task from any session of its user, twice. Others can neither see nor answer them.
func (m *endsModel) answerTask(t *rapid.T) {
	c := m.pick(t, func(c *endsCall) bool { return c.asks && !c.over && c.isTask && c.side.modern })
	task := sideOf(t, m.peers(c.side.identity)).Task(c.task)
	status, err := task.Status(t.Context())
	if err != nil {
		t.Fatalf("the status of %v is %v", c, err)
	}
	keys := slices.Sorted(maps.Keys(status.InputRequests))
	answers, said := m.answers(t, c, keys)
	for _, side := range m.peers(map[string]string{"ada": "eve", "eve": "ada"}[c.side.identity]) {
		_, err := side.Task(c.task).Status(t.Context())
		if answered := side.Task(c.task).Answer(t.Context(), answers); !errors.Is(err, client.ErrNoTask) || answered == nil {
			t.Fatalf("another user gets %v for the status of %v, and %v for an answer", err, c, answered)
		}
	}
	later, _ := m.answers(t, c, keys)
	if err := errors.Join(task.Answer(t.Context(), answers), task.Answer(t.Context(), later)); err != nil {
		t.Fatalf("answering %v returned %v", c, err)
	}
	m.say(c, said)
}

// strangeResponse sends a response once more, or one to a question that another client was asked. Nothing happens.
func (m *endsModel) strangeResponse(t *rapid.T) {
	side := m.sides[rapid.IntRange(3, 4).Draw(t, "side")]
	frames := slices.Clone(side.responses)
	for _, p := range m.prompts {
		own := slices.ContainsFunc(m.prompts, func(own *endsPrompt) bool { return own.side == side && own.id == p.id })
		if !p.side.modern && p.side != side && !own {
			frames = append(frames, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"text":"strange"}}}`, p.id))
		}
	}
	if len(frames) == 0 {
		t.Skip("there is none")
	}
	frame := rapid.SampledFrom(frames).Draw(t, "frame")
	if err := side.near.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
		t.Fatal(err)
	}
}

// page says that a user has finished on a page that he has agreed to open.
func (m *endsModel) page(t *rapid.T) {
	c := m.pick(t, func(c *endsCall) bool { return !c.side.modern && !c.over && slices.Contains(c.said, "opened") })
	id, before := label(c.n, slices.Index(c.said, "opened"), ""), len(c.side.pages)
	err := c.session.ElicitationComplete(t.Context(), id)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if told := c.side.pages[before:]; err != nil && !c.isTask || err == nil && !slices.Equal(told, []string{id}) {
		t.Fatalf("the client of %v was told %q, %v, want %q", c, told, err, id)
	}
}
