package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

var errBroken = errors.New("the store is broken")

// A moodyStore fails while it is in a mood.
type moodyStore struct {
	server.MemoryTaskStore
	mood error
}

func (s *moodyStore) Save(ctx context.Context, r *server.TaskRecord) error {
	if s.mood != nil {
		return s.mood
	}
	return s.MemoryTaskStore.Save(ctx, r)
}

// A taskClient is a client of one era with its link.
type taskClient struct {
	rawPeer
	user     string
	legacy   bool
	sent     int
	answers  map[string]taskAnswer
	asked    []modelQuestion   // questions that it was asked
	statuses map[string]string // the last status of each task that it was notified of
	served   chan error
}

// A taskAnswer is the answer to a request.
type taskAnswer struct {
	Result json.RawMessage `json:"result"`
	Error  *fault          `json:"error"`
}

// A modelQuestion is an elicitation for a task.
type modelQuestion struct{ id, task, text string }

func (c *taskClient) dial(s *server.Server) {
	ours, theirs := inmem.Pipe(inmem.Options{})
	c.link, c.frames, c.served = ours, make(chan string, 100), make(chan error, 1)
	c.answers, c.asked, c.statuses = make(map[string]taskAnswer), nil, make(map[string]string)
	served := c.served
	go func() {
		served <- s.ServeLink(context.Background(), peertest.From(&transport.Origin{Identity: c.user, RemoteAddr: "192.0.2.1:7"}, theirs))
	}()
	ours.Bind(&c.rawPeer)
	ours.Grant(transport.Main, cap(c.frames))
	if c.legacy {
		c.say(legacy(`"i"`, "initialize", `"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"tasks":{}},"clientInfo":{"name":"c","version":"1"}`))
		c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
}

func (c *taskClient) hangUp() {
	c.link.Close(0)
	<-c.served
}

// say sends a frame, and takes what the server then sends.
func (c *taskClient) say(frame string) {
	if err := c.link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
		panic(err)
	}
	c.hear()
}

func (c *taskClient) hear() {
	synctest.Wait()
	for len(c.frames) > 0 {
		var f struct {
			taskAnswer
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Message string                             `json:"message"`
				TaskID  string                             `json:"taskId"`
				Status  string                             `json:"status"`
				Meta    map[string]struct{ TaskID string } `json:"_meta"`
			} `json:"params"`
		}
		if err := json.Unmarshal([]byte(<-c.frames), &f); err != nil {
			panic(err)
		}
		switch {
		case f.Method == protocol.MethodElicit:
			c.asked = append(c.asked, modelQuestion{string(f.ID), f.Params.Meta[protocol.MetaRelatedTask].TaskID, f.Params.Message})
		case f.Method == "notifications/tasks/status":
			c.statuses[f.Params.TaskID] = f.Params.Status
		case f.Method == "":
			c.answers[string(f.ID)] = f.taskAnswer
		}
		c.link.Grant(transport.Main, 1)
	}
}

// send sends a request in the era of the client, and returns its id.
func (c *taskClient) send(method, params string) string {
	c.sent++
	id := fmt.Sprint(c.sent)
	if c.legacy {
		c.say(legacy(id, method, params))
	} else {
		c.say(withTasks(id, method, params))
	}
	return id
}

// ask sends a request that is answered at once.
func (c *taskClient) ask(method, params string) taskAnswer {
	return c.answers[c.send(method, params)]
}

func (a taskAnswer) refused(t *rapid.T, code int64, text string) {
	if !a.Error.is(code, text) {
		t.Fatalf("got %s, %v, want the error %d with %q", a.Result, a.Error, code, text)
	}
}

func (a taskAnswer) accepted(t *rapid.T) {
	if a.Error != nil || a.Result == nil {
		t.Fatalf("got %s, %v, want a result", a.Result, a.Error)
	}
}

// taskID returns the id of the task that a call has become.
func (a taskAnswer) taskID(t *rapid.T, legacy bool) string {
	var created struct {
		protocol.Task
		Inner *protocol.LegacyTask `json:"task"`
	}
	if a.Error != nil || json.Unmarshal(a.Result, &created) != nil || legacy != (created.Inner != nil) || !legacy && created.TaskID == "" {
		t.Fatalf("got %s, %v, want a task", a.Result, a.Error)
	}
	if legacy {
		return created.Inner.TaskID
	}
	return created.TaskID
}

// wait waits for the result of a legacy task.
func (m *taskModel) wait(t *rapid.T) {
	m.waitFor(t, m.pick(t, func(one *modelTask) bool { return isThere(one) && one.legacy }))
}

func (m *taskModel) waitFor(t *rapid.T, one *modelTask) {
	var some []*taskClient
	for _, c := range m.clients {
		if c.legacy {
			some = append(some, c)
		}
	}
	c := rapid.SampledFrom(some).Draw(t, "client")
	id := c.send("tasks/result", fmt.Sprintf(`"taskId":%q`, one.id))
	if c.user != one.user {
		c.answers[id].refused(t, jsonrpc.CodeInvalidParams, "unknown task")
		return
	}
	one.waiters = append(one.waiters, &taskWaiter{client: c, id: id})
}

// answerLegacy answers, twice, the question of a task that a waiting client was asked, or refuses it.
func (m *taskModel) answerLegacy(t *rapid.T, one *modelTask) {
	for _, w := range one.waiters {
		if w.question == "" {
			continue
		}
		how, want := `"result":{"action":"accept","content":{"`+one.asks+`":"yes"}}`, "yes"
		if rapid.IntRange(0, 2).Draw(t, "refused") == 0 {
			how, want = `"error":{"code":-1,"message":"no"}`, ""
		}
		answer := `{"jsonrpc":"2.0","id":` + w.question + `,` + how + `}`
		w.question, one.status = "", protocol.TaskWorking
		w.client.say(answer)
		one.wantAnswer(t, want)
		w.client.say(answer)
		return
	}
	t.Skip("nobody was asked")
}

// lose breaks the link of a client, which dials again. Its requests are lost.
func (m *taskModel) lose(c *taskClient) {
	c.hangUp()
	c.dial(m.server)
	for _, one := range m.tasks {
		one.waiters = slices.DeleteFunc(one.waiters, func(w *taskWaiter) bool { return w.client == c })
		if one.starter == c {
			one.starter = nil
		}
	}
}

// check compares everything that a client can see with the model.
func (m *taskModel) check(t *rapid.T) {
	pass(100 * time.Millisecond) // a change is reported soon
	for _, c := range m.clients {
		c.hear()
	}
	listed := map[string][]string{}
	for _, one := range m.tasks {
		if isThere(one) {
			m.checkTask(t, one)
		}
		if isThere(one) {
			listed[one.user] = append(listed[one.user], one.id)
		}
	}
	for _, c := range m.clients {
		if c.legacy {
			var list struct{ Tasks []protocol.LegacyTask }
			if got := c.ask("tasks/list", ""); json.Unmarshal(got.Result, &list) != nil {
				t.Fatalf("got the list %s, %v", got.Result, got.Error)
			}
			var ids []string
			for _, one := range list.Tasks {
				ids = append(ids, one.TaskID)
			}
			if slices.Sort(ids); !slices.Equal(ids, slices.Sorted(slices.Values(listed[c.user]))) {
				t.Fatalf("%s gets the list %q, want %q", c.user, ids, listed[c.user])
			}
		}
	}
}

func (m *taskModel) checkTask(t *rapid.T, one *modelTask) {
	expired := !one.expires.After(time.Now())
	if expired && !one.status.Ended() {
		one.stop(t, protocol.TaskFailed, server.ErrTaskExpired)
	}
	for _, w := range one.waiters {
		if w.question != "" && time.Since(w.since) >= modelAnswers && one.status == protocol.TaskInputRequired {
			w.question, one.status = "", protocol.TaskWorking
			one.wantAnswer(t, "")
		}
	}
	for _, c := range m.clients {
		got := c.ask("tasks/get", fmt.Sprintf(`"taskId":%q`, one.id))
		if c.user != one.user || expired {
			got.refused(t, jsonrpc.CodeInvalidParams, "unknown task")
			continue
		}
		one.checkState(t, c, got)
	}
	one.checkWaiters(t, expired)
	if one.run != nil && !errors.Is(context.Cause(one.run.ctx), one.why) {
		t.Fatalf("the handler of %+v ended with %v, want %v", one, context.Cause(one.run.ctx), one.why)
	}
	if expired {
		one.status = ""
	} else if r, err := m.store.Load(t.Context(), one.id); m.store.mood == nil && one.status.Ended() && (err != nil || r.Task.Status != one.status) {
		t.Fatalf("the store has %+v, %v, want it to be %s", r, err, one.status)
	}
}

func (one *modelTask) checkState(t *rapid.T, c *taskClient, got taskAnswer) {
	var state struct {
		protocol.Task
		InputRequests map[string]json.RawMessage
		Result        json.RawMessage
		Error         *fault
	}
	if got.Error != nil || json.Unmarshal(got.Result, &state) != nil || state.Status != one.status {
		t.Fatalf("%s (legacy: %t) gets %s, %v, want %+v", c.user, c.legacy, got.Result, got.Error, one)
	}
	if one.message != "" && one.status != protocol.TaskFailed && one.status != protocol.TaskCompleted && state.StatusMessage != one.message {
		t.Fatalf("the message is %q, want %q", state.StatusMessage, one.message)
	}
	if c.legacy {
		status, notified := c.statuses[one.id]
		if !notified && (one.starter != c || one.status == protocol.TaskWorking) {
			return
		}
		if status != string(one.status) {
			t.Fatalf("%s was notified of %q, want %s", c.user, status, one.status)
		}
		return
	}
	if one.asks != "" && one.key == "" {
		for key := range state.InputRequests {
			if slices.Contains(one.used, key) {
				t.Fatalf("the key %q was used before, want another", key)
			}
			one.key, one.used = key, append(one.used, key)
		}
	}
	_, open := state.InputRequests[one.key]
	if (one.asks != "") != open || (len(state.InputRequests) > 0) != open || !strings.Contains(string(state.Result)+fmt.Sprint(state.Error), one.result) {
		t.Fatalf("got %s, want %+v", got.Result, one)
	}
}

// checkWaiters checks that everybody gets the result, and that one of those who wait is asked.
func (one *modelTask) checkWaiters(t *rapid.T, expired bool) {
	asked := 0
	for _, w := range one.waiters {
		got, ended := w.client.answers[w.id]
		if ended != (expired || one.status.Ended()) {
			t.Fatalf("tasks/result of %+v ended: %t, with %s, %v", one, ended, got.Result, got.Error)
		}
		if ended && !expired && one.status == protocol.TaskCancelled {
			got.refused(t, jsonrpc.CodeInternalError, "the task is cancelled")
		}
		if ended && (got.Error == nil) != (one.status == protocol.TaskCompleted) || !strings.Contains(string(got.Result)+fmt.Sprint(got.Error), one.result) && ended {
			t.Fatalf("tasks/result of %+v got %s, %v", one, got.Result, got.Error)
		}
		w.client.asked = slices.DeleteFunc(w.client.asked, func(q modelQuestion) bool {
			if q.task == one.id {
				w.question, w.since = q.id, time.Now()
			}
			return q.task == one.id
		})
		if w.question != "" {
			asked++
		}
	}
	if one.asks != "" && len(one.waiters) > 0 && asked != 1 {
		t.Fatalf("%d clients were asked the question of %+v, want one", asked, one)
	}
	if one.status.Ended() || expired {
		one.waiters = nil
	}
}

// end closes the server, which ends every handler.
func (m *taskModel) end(t *rapid.T) {
	for _, c := range m.clients {
		c.hangUp()
	}
	closed := make(chan error)
	go func() { closed <- m.server.Close(context.Background()) }()
	synctest.Wait()
	for _, r := range m.runs {
		if len(r.answers) > 0 {
			<-r.answers // its question has ended, too
		}
		if context.Cause(r.ctx) == nil {
			t.Errorf("a handler of %s goes on after Close", r.user)
		}
		r.orders <- taskOrder{"return", ""}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
