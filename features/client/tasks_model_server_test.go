package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A tasksWorld is what the servers of all clients have in common. Servers and users lock it; the model does what it does while
// nobody else runs.
type tasksWorld struct {
	mu      sync.Mutex
	tasks   []*servedTask
	prompts []*taskPrompt
	keys    int
	passed  time.Duration
	all     []*taskSide
}

// A servedTask is a task as its server knows it.
type servedTask struct {
	id        string
	status    protocol.TaskStatus
	code      int64 // of the error with which it has failed
	forgotten bool
	key, last string            // its open question, and that which was open when it ended
	slow      bool              // its status shows a question for a while after the answer
	shown     string            // that question
	given     map[string]string // the first answer to each question

	direct  int           // how often Task.Cancel has reached a server
	cancels []abandonment // that servers have yet to get
	got     int           // how often a server was asked to cancel it
	extra   int           // how many of these may be repetitions
}

// An abandonment is the end of a call whose task goes on.
type abandonment struct {
	side *taskSide
	at   time.Time
}

// A taskPrompt is a question that a user has not answered. That of a legacy server belongs to no wait.
type taskPrompt struct {
	side   *taskSide
	task   *servedTask
	key    string
	waiter *taskWaiter
	reply  chan string
}

type waiterKey struct{}

// A taskSide is a session of one era, and its server.
type taskSide struct {
	*client.Session
	*fakeServer
	world    *tasksWorld
	modern   bool
	away     bool
	cutAfter string // the method after whose next request the link breaks
	holds    bool   // the next answer to a poll is held back
	held     []frame
	refuses  int64           // the error of all polls; 0 for none
	results  []heldResult    // requests for results that are not there yet
	asked    map[string]bool // the questions that were sent on this link
	c        *client.Client
}

type heldResult struct {
	frame
	task *servedTask
}

func newTaskSide(t *rapid.T, world *tasksWorld, modern bool) *taskSide {
	s := &taskSide{world: world, modern: modern, asked: make(map[string]bool), fakeServer: new(fakeServer)}
	s.answer = s.serve
	version := protocol.Version20251125
	if modern {
		version = protocol.Latest
	}
	s.c = client.New(clientInfo, client.Options{
		ProtocolVersion: version, Tasks: true, MaxRounds: modelRounds, Elicit: s.elicit,
		Conn: conn.Tuning{RequestTimeout: 5 * time.Second, BackoffMin: 10 * time.Millisecond, BackoffMax: time.Second, Log: slog.New(slog.DiscardHandler)},
	})
	var err error
	if s.Session, err = s.c.Connect(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ListTools(context.Background(), nil); err != nil { // so it knows that the tool needs a task
		t.Fatal(err)
	}
	return s
}

// Open implements transport.Transport.
func (s *taskSide) Open(ctx context.Context) (transport.Link, error) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if s.away {
		return nil, errors.New("nobody is there")
	}
	return s.fakeServer.Open(ctx)
}

// elicit is the user of a side.
func (s *taskSide) elicit(ctx context.Context, _ *client.Session, params *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	p := &taskPrompt{side: s, key: params.Message, reply: make(chan string)}
	p.waiter, _ = ctx.Value(waiterKey{}).(*taskWaiter)
	world := s.world
	world.mu.Lock()
	p.task = world.tasks[slices.IndexFunc(world.tasks, func(one *servedTask) bool { return strings.HasPrefix(p.key, one.id+"-") })]
	world.prompts = append(world.prompts, p)
	world.mu.Unlock()
	defer func() {
		world.mu.Lock()
		defer world.mu.Unlock()
		world.prompts = slices.DeleteFunc(world.prompts, func(other *taskPrompt) bool { return other == p })
	}()
	select {
	case action := <-p.reply:
		if action == "fails" {
			return nil, errors.New("not now")
		}
		return &protocol.ElicitResult{Action: action}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve answers a request twice, the second time with an error.
func (s *taskSide) serve(f frame) []string {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	switch f.Method {
	case protocol.MethodInitialize:
		return f.initialized(protocol.Version20251125, `{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`)
	case protocol.MethodDiscover:
		return []string{f.result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)}
	case protocol.MethodListTools:
		return []string{f.result(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"make","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`)}
	case "":
		s.answered(f)
	case protocol.NotificationCancelled:
		var cancelled struct{ RequestID json.RawMessage }
		if err := json.Unmarshal(f.Params, &cancelled); err != nil {
			panic(err)
		}
		s.results = slices.DeleteFunc(s.results, func(r heldResult) bool { return string(r.ID) == string(cancelled.RequestID) })
	}
	if f.ID == nil || f.Method == "" {
		return nil
	}
	answer := s.execute(f)
	if s.cutAfter == f.Method {
		s.cutAfter = ""
		s.world.lost(s)
		return nil
	}
	if answer == "" {
		return nil
	}
	return []string{answer, f.fault(jsonrpc.CodeInvalidParams, `null`)}
}

// execute does what a request asks for, and returns the answer if there is one now.
func (s *taskSide) execute(f frame) string {
	var params struct {
		TaskID         string
		InputResponses map[string]struct{ Action string }
	}
	if err := json.Unmarshal(f.Params, &params); err != nil {
		panic(err)
	}
	if f.Method == protocol.MethodCallTool {
		one := &servedTask{id: fmt.Sprint("t", len(s.world.tasks)), status: protocol.TaskWorking, given: make(map[string]string)}
		s.world.tasks = append(s.world.tasks, one)
		if s.modern {
			return f.result(one.state("task", ""))
		}
		return f.result(`{"task":` + one.legacyState() + `}`)
	}
	i := slices.IndexFunc(s.world.tasks, func(one *servedTask) bool { return one.id == params.TaskID })
	if i < 0 {
		return f.result(`{}`) // a ping
	}
	one := s.world.tasks[i]
	if f.Method == protocol.MethodCancelTask {
		if one.got++; s.cutAfter == f.Method {
			one.extra++
		}
	}
	switch {
	case s.refuses != 0:
		return f.fault(s.refuses, `null`)
	case one.forgotten:
		return f.fault(jsonrpc.CodeInvalidParams, `null`)
	}
	switch f.Method {
	case protocol.MethodGetTask:
		if s.holds {
			s.holds, s.held = false, append(s.held, f)
			return ""
		}
	case protocol.MethodGetTaskResult:
		if one.status.Ended() {
			return one.outcome(f)
		}
		s.results = append(s.results, heldResult{f, one})
		s.askFor(one)
		return ""
	case protocol.MethodUpdateTask:
		for key, answer := range params.InputResponses {
			one.give(key, answer.Action)
		}
		return f.result(`{"resultType":"complete"}`)
	case protocol.MethodCancelTask:
		if one.status.Ended() && !s.modern {
			return f.fault(jsonrpc.CodeInvalidParams, `null`)
		}
		if !one.status.Ended() {
			s.world.ends(one, protocol.TaskCancelled)
			s.world.tellWaiting(one)
		}
		if s.modern {
			return f.result(`{"resultType":"complete"}`)
		}
	}
	if s.modern {
		return f.result(one.state("complete", one.more()))
	}
	return f.result(one.legacyState())
}

func (one *servedTask) state(kind, more string) string {
	status := one.status
	if status == protocol.TaskWorking && one.shown != "" {
		status = protocol.TaskInputRequired
	}
	return fmt.Sprintf(`{"resultType":%q,"taskId":%q,"status":%q,"createdAt":"2026-11-27T00:00:00Z","lastUpdatedAt":"2026-11-27T00:00:00Z","ttlMs":null,"pollIntervalMs":4000%s}`, kind, one.id, status, more)
}

func (one *servedTask) legacyState() string {
	return strings.Replace(strings.Replace(one.state("complete", ""), "ttlMs", "ttl", 1), "pollIntervalMs", "pollInterval", 1)
}

// more is what a modern state has of the questions and the outcome.
func (one *servedTask) more() string {
	switch {
	case one.status == protocol.TaskCompleted:
		return fmt.Sprintf(`,"result":{"resultType":"complete","content":[{"type":"text","text":%q}]}`, "made "+one.id)
	case one.status == protocol.TaskFailed:
		return fmt.Sprintf(`,"error":{"code":%d,"message":"broken"}`, one.code)
	case cmp.Or(one.key, one.shown) != "":
		key := cmp.Or(one.key, one.shown)
		return strings.Replace(asks(key), "Sure?", key, 1)
	default:
		return ""
	}
}

// outcome answers tasks/result.
func (one *servedTask) outcome(f frame) string {
	switch {
	case one.forgotten:
		return f.fault(jsonrpc.CodeInvalidParams, `null`)
	case one.status == protocol.TaskCompleted:
		return f.result(`{"content":[{"type":"text","text":"made ` + one.id + `"}]}`)
	case one.status == protocol.TaskFailed:
		return f.fault(one.code, `null`)
	default:
		return f.fault(jsonrpc.CodeInternalError, `null`)
	}
}

func (one *servedTask) give(key, action string) {
	if one.key == key && key != "" {
		one.given[key], one.key, one.status = action, "", protocol.TaskWorking
		if one.slow {
			one.shown = key
		}
	}
}

// answered takes the answer to a question of a legacy server.
func (s *taskSide) answered(f frame) {
	var key string
	var answer struct{ Result struct{ Action string } }
	if json.Unmarshal(f.ID, &key) != nil || json.Unmarshal(f.Raw, &answer) != nil {
		panic(string(f.Raw))
	}
	for _, one := range s.world.tasks {
		one.give(key, answer.Result.Action)
	}
}

func (w *tasksWorld) ends(one *servedTask, status protocol.TaskStatus) {
	one.status, one.key, one.last, one.shown = status, "", one.key, ""
}

// askFor asks the question of a task on the link on which its result is waited for.
func (s *taskSide) askFor(one *servedTask) {
	if waits := slices.ContainsFunc(s.results, func(r heldResult) bool { return r.task == one }); !waits || one.key == "" || s.asked[one.key] {
		return
	}
	s.asked[one.key] = true
	s.say(`{"jsonrpc":"2.0","id":"` + one.key + `","method":"elicitation/create","params":{"message":"` + one.key + `","requestedSchema":{"type":"object","properties":{}}}}`)
}

// say sends a frame on the present link, from another goroutine because the receiver may be one that waits for the world.
func (s *taskSide) say(frame string) {
	s.fakeServer.mu.Lock()
	link := s.links[len(s.links)-1]
	s.fakeServer.mu.Unlock()
	s.serving.Go(func() { _ = link.Send(outbound(frame)) }) // unless the link is lost
}

// tellWaiting answers the requests for the result of a task that has ended.
func (w *tasksWorld) tellWaiting(one *servedTask) {
	for _, side := range w.all {
		side.results = slices.DeleteFunc(side.results, func(r heldResult) bool {
			if r.task == one {
				side.say(one.outcome(r.frame))
			}
			return r.task == one
		})
	}
}

// lost breaks the link of a side.
func (w *tasksWorld) lost(s *taskSide) {
	s.results, s.held = nil, nil
	clear(s.asked)
	s.serving.Go(s.cut)
}
