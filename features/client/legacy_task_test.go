package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// legacyTask returns a task of 2025-11-25 with further members.
func legacyTask(status, more string) string {
	return fmt.Sprintf(`{"taskId":"t","status":%q,"createdAt":"2026-11-27T00:00:00Z","lastUpdatedAt":"2026-11-27T00:00:00Z","ttl":null%s}`, status, more)
}

const madeResult = `{"content":[{"type":"text","text":"made"}]}`

// legacyTaskServer returns a server of 2025-11-25 whose tool becomes a task, and that answers poll n, from 1, with poll, and tasks/result
// with outcome.
func legacyTaskServer(poll func(f frame, n int) string, outcome response) *fakeServer {
	polls := 0
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodInitialize:
			return f.initialized(protocol.Version20251125, `{"tools":{},"tasks":{"cancel":{},"list":{},"requests":{"tools":{"call":{}}}}}`)
		case protocol.MethodCallTool:
			return []string{f.result(`{"task":` + legacyTask("working", "") + `}`)}
		case protocol.MethodGetTask:
			polls++
			return []string{poll(f, polls)}
		case protocol.MethodGetTaskResult:
			return outcome(f)
		case protocol.MethodCancelTask:
			return []string{f.result(legacyTask("cancelled", ""))}
		default:
			return nil
		}
	}}
}

// waitForTask starts a task, and waits for it for three hours of the bubble at most.
func waitForTask(t *testing.T, s *client.Session) (*protocol.CallToolResult, error) {
	t.Helper()
	task, err := s.StartTool(t.Context(), &protocol.CallToolParams{Name: "make"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	return task.Wait(ctx)
}

// A server of 2025-11-25 answers tasks/result when the task has ended. That request has no timeout, whatever the options say, and it is
// made once, when the task asks for something or has ended.
//
// Guarantees: G-0032.12
func TestLegacyResultIsWaitedForWithoutATimeout(t *testing.T) {
	for _, status := range []string{"input_required", "completed", "failed"} {
		for _, timeout := range []time.Duration{0, time.Second, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				server := legacyTaskServer(func(f frame, n int) string {
					if n < 3 {
						return f.result(legacyTask("working", ""))
					}
					return f.result(legacyTask(status, ""))
				}, func(f frame) []string {
					pass(2 * time.Hour)
					return []string{f.result(madeResult)}
				})
				session := openFake(t, server, client.Options{
					ProtocolVersion: protocol.Version20251125,
					Calls:           client.CallOptions{Timeout: timeout}, Conn: conn.Tuning{RequestTimeout: time.Minute, Liveness: -1},
				})
				began := time.Now()
				result, err := waitForTask(t, session)
				if err != nil || result.Content.Text() != "made" {
					t.Errorf("%s, timeout %v: got %+v, %v, want %q", status, timeout, result, err, "made")
				}
				if took, want := time.Since(began), 2*time.Hour+3*time.Second; took != want {
					t.Errorf("%s, timeout %v: it took %v, want %v", status, timeout, took, want)
				}
				if asked := len(server.received(protocol.MethodGetTaskResult)); asked != 1 {
					t.Errorf("%s, timeout %v: the server got %d requests for the result, want 1", status, timeout, asked)
				}
			})
		}
	}
}

// What a server of 2025-11-25 answers to tasks/result is the outcome of the call, also if it is an error. After an error of the moment, Wait
// asks again. A task that was cancelled has no result, and is not asked for one.
//
// Guarantees: G-0032.12
func TestOutcomesOfLegacyTasks(t *testing.T) {
	for name, test := range map[string]struct {
		status  string
		answers []response // to tasks/result, of which the last is repeated
		want    error      // nil for the result
		asked   int        // how often the result is asked for
	}{
		"a result":                      {"completed", []response{withResult(madeResult)}, nil, 1},
		"an error":                      {"failed", []response{withFault(7, `null`)}, &jsonrpc.Error{Code: 7}, 1},
		"an internal error of the call": {"failed", []response{withFault(jsonrpc.CodeInternalError, `null`)}, &jsonrpc.Error{Code: jsonrpc.CodeInternalError}, 1},
		"overloaded, then a result":     {"completed", []response{withFault(jsonrpc.CodeOverloaded, `null`), withFault(jsonrpc.CodeOverloaded, `null`), withResult(madeResult)}, nil, 3},
		"overloaded for ever":           {"completed", []response{withFault(jsonrpc.CodeOverloaded, `null`)}, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}, 10},
		"no content":                    {"completed", []response{withResult(`{}`)}, new(client.ResultError), 1},
		"no object":                     {"completed", []response{withResult(`7`)}, new(client.ResultError), 1},
		"it was cancelled":              {"cancelled", []response{withResult(madeResult)}, client.ErrTaskCancelled, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			server := legacyTaskServer(func(f frame, _ int) string {
				return f.result(legacyTask(test.status, `,"statusMessage":"by the user"`))
			}, func(f frame) []string {
				answer := test.answers[min(asked, len(test.answers)-1)]
				asked++
				return answer(f)
			})
			session := openFake(t, server, client.Options{ProtocolVersion: protocol.Version20251125})
			began := time.Now()
			result, err := waitForTask(t, session)
			if test.want == nil && (err != nil || result.Content.Text() != "made") || test.want != nil && result != nil {
				t.Errorf("%s: got %+v, %v", name, result, err)
			}
			if unread := new(client.ResultError); errors.As(test.want, &unread) {
				if !errors.As(err, &unread) {
					t.Errorf("%s: got %v, want a %T", name, err, test.want)
				}
			} else if !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			var failed *client.CallError
			if test.want != nil && (!errors.As(err, &failed) || failed.ID == 0) {
				t.Errorf("%s: got %#v, want a *client.CallError with an id", name, err)
			}
			if test.want == client.ErrTaskCancelled && !strings.Contains(err.Error(), "by the user") {
				t.Errorf("%s: got %v, want the message of the status in it", name, err)
			}
			if took, want := time.Since(began), time.Duration(max(test.asked, 1))*time.Second; asked != test.asked || took != want {
				t.Errorf("%s: the result was asked for %d times in %v, want %d times in %v", name, asked, took, test.asked, want)
			}
		})
	}
}

// A server of either revision says how often it wants to be polled. Wait keeps that, between 100 ms and a minute, from the first poll on.
//
// Guarantees: G-0032.10
func TestIntervalsOfPollsAreBounded(t *testing.T) {
	for said, want := range map[string]time.Duration{
		"":  time.Second,
		"0": 100 * time.Millisecond, "-1": 100 * time.Millisecond, "-9223372036854775808": 100 * time.Millisecond,
		"99": 100 * time.Millisecond, "100": 100 * time.Millisecond, "101": 101 * time.Millisecond,
		"7000": 7 * time.Second, "60000": time.Minute, "60001": time.Minute, "9223372036854775807": time.Minute,
	} {
		for _, version := range []string{protocol.Version20251125, protocol.Latest} {
			synctest.Test(t, func(t *testing.T) {
				member := map[string]string{protocol.Version20251125: `,"pollInterval":`, protocol.Latest: `,"pollIntervalMs":`}[version] + said
				if said == "" {
					member = ""
				}
				var polls []time.Duration
				var server *fakeServer
				var began time.Time
				note := func() int { polls = append(polls, time.Since(began)); return len(polls) }
				if version == protocol.Latest {
					task := func(kind, status, more string) string {
						return strings.Replace(taskStatus(kind, status, more), `,"pollIntervalMs":7000`, member, 1)
					}
					server = pollServer(new([]time.Duration), func(f frame, _ int) string {
						if note() < 3 {
							return f.result(task("complete", "working", ""))
						}
						return f.result(task("complete", "completed", made))
					})
					inner := server.answer
					server.answer = func(f frame) []string {
						if f.Method == protocol.MethodCallTool {
							return []string{f.result(task("task", "working", ""))}
						}
						return inner(f)
					}
				} else {
					server = legacyTaskServer(func(f frame, _ int) string {
						if note() < 3 {
							return f.result(legacyTask("working", member))
						}
						return f.result(legacyTask("completed", member))
					}, withResult(madeResult))
					inner := server.answer
					server.answer = func(f frame) []string {
						if f.Method == protocol.MethodCallTool {
							return []string{f.result(`{"task":` + legacyTask("working", member) + `}`)}
						}
						return inner(f)
					}
				}
				session := openFake(t, server, client.Options{ProtocolVersion: version, Tasks: true})
				began = time.Now()
				if result, err := waitForTask(t, session); err != nil || result.Content.Text() != "made" {
					t.Errorf("%s, %q: got %+v, %v", version, said, result, err)
				}
				if !slices.Equal(polls, []time.Duration{want, 2 * want, 3 * want}) {
					t.Errorf("%s, %q: it was polled at %v, want each %v", version, said, polls, want)
				}
			})
		}
	}
}

// The list of the tasks of 2025-11-25 has all pages and all members.
//
// Guarantees: G-0032.12
func TestListOfLegacyTasks(t *testing.T) {
	server := legacyTaskServer(nil, nil)
	inner := server.answer
	server.answer = func(f frame) []string {
		if f.Method != protocol.MethodListTasks {
			return inner(f)
		}
		if cursorOf(f) == "none" {
			return []string{f.result(`{"tasks":[` + legacyTask("working", `,"statusMessage":"halfway","pollInterval":5`) + `],"nextCursor":"2"}`)}
		}
		return []string{f.result(`{"tasks":[{"taskId":"u","status":"failed","createdAt":"2026-11-27T01:00:00Z","lastUpdatedAt":"2026-11-27T02:00:00Z","ttl":60000}]}`)}
	}
	session := openFake(t, server, client.Options{ProtocolVersion: protocol.Version20251125})
	var got []string
	for task, err := range session.Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ttl, poll := int64(-1), int64(-1)
		if task.TTLMs != nil {
			ttl = *task.TTLMs
		}
		if task.PollIntervalMs != nil {
			poll = *task.PollIntervalMs
		}
		got = append(got, fmt.Sprint(task.TaskID, " ", task.Status, " ", task.StatusMessage, " ", task.CreatedAt, " ", task.LastUpdatedAt, " ", ttl, " ", poll))
	}
	want := []string{
		"t working halfway 2026-11-27T00:00:00Z 2026-11-27T00:00:00Z -1 5",
		"u failed  2026-11-27T01:00:00Z 2026-11-27T02:00:00Z 60000 -1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, malformed := range []string{`{}`, `{"tasks":null}`} {
		broken := legacyTaskServer(nil, nil)
		inner := broken.answer
		broken.answer = func(f frame) []string {
			if f.Method == protocol.MethodListTasks {
				return []string{f.result(malformed)}
			}
			return inner(f)
		}
		for _, err := range openFake(t, broken, client.Options{ProtocolVersion: protocol.Version20251125}).Tasks(t.Context()) {
			if !errors.As(err, new(*client.ResultError)) {
				t.Errorf("%s: got %v, want a *client.ResultError", malformed, err)
			}
		}
	}
}

// A legacy server may answer a call that could have become a task.
//
// Guarantees: G-0032.12
func TestACallThatBecomesNoTask(t *testing.T) {
	s := legacyTaskServer(nil, nil)
	s.on(protocol.MethodCallTool, func(f frame, _ func(frame) []string) []string { return []string{f.result(madeResult)} })
	task, err := openFake(t, s, client.Options{ProtocolVersion: protocol.Version20251125}).StartTool(t.Context(), &protocol.CallToolParams{Name: "make"})
	if err != nil || task.ID() != "" || !strings.Contains(string(s.received(protocol.MethodCallTool)[0].Params), `"task"`) {
		t.Fatalf("got %+v, %v, want a task without an ID for a call that asked for one", task, err)
	}
	if result, err := task.Wait(t.Context()); err != nil || result.Content.Text() != "made" {
		t.Errorf("got %+v, %v, want the answer of the call", result, err)
	}
}

// What looks like a task is none if a legacy server was not asked for one.
//
// Guarantees: G-0032.12
func TestTasksThatNobodyAskedForAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{answer: func(f frame) []string {
			if f.Method == protocol.MethodCallTool {
				return []string{f.result(`{"content":[{"type":"text","text":"made"}],"task":{"taskId":"a","status":"working","createdAt":"x","lastUpdatedAt":"x","ttl":null}}`)}
			}
			return allAnswers(protocol.Version20251125)(f)
		}}
		session := openFake(t, s, client.Options{ProtocolVersion: protocol.Version20251125, Tasks: true})
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "make"})
		if err != nil || len(result.Content) != 1 {
			t.Errorf("got %+v, %v, want the content", result, err)
		}
		if n := len(s.received(protocol.MethodGetTask)); n > 0 {
			t.Errorf("the server is asked %d times for a task", n)
		}
	})
}

// A result that says it is a task must say which, and of a known status. Each era has its form.
//
// Guarantees: G-0032.10, G-0032.12
func TestMalformedTasksAreRefused(t *testing.T) {
	working := func(id, status string) string {
		return `"taskId":` + id + `,"status":"` + status + `","createdAt":"x","lastUpdatedAt":"x"`
	}
	for _, test := range []struct {
		version, result string
		id              string // empty if it is refused
	}{
		{protocol.Version20251125, `{"task":{` + working(`"a"`, "working") + `,"ttl":null}}`, "a"},
		{protocol.Version20251125, `{"task":{` + working(`"a"`, "done") + `,"ttl":null}}`, ""},
		{protocol.Version20251125, `{"task":{` + working(`""`, "working") + `,"ttl":null}}`, ""},
		{protocol.Version20251125, `{"task":7}`, ""},
		{protocol.Latest, `{"resultType":"task",` + working(`"a"`, "working") + `,"ttlMs":null}`, "a"},
		{protocol.Latest, `{"resultType":"task",` + working(`"a"`, "input_required") + `,"ttlMs":null}`, "a"},
		{protocol.Latest, `{"resultType":"task",` + working(`"a"`, "done") + `,"ttlMs":null}`, ""},
		{protocol.Latest, `{"resultType":"task",` + working(`""`, "working") + `,"ttlMs":null}`, ""},
		{protocol.Latest, `{"resultType":"task",` + working(`7`, "working") + `,"ttlMs":null}`, ""},
		{protocol.Latest, `{"resultType":"complete","task":{` + working(`"a"`, "working") + `,"ttlMs":null}}`, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := legacyTaskServer(nil, nil)
			if test.version == protocol.Latest {
				server = pollServer(new([]time.Duration), nil)
			}
			inner := server.answer
			server.answer = func(f frame) []string {
				if f.Method == protocol.MethodCallTool {
					return []string{f.result(test.result)}
				}
				return inner(f)
			}
			session := openFake(t, server, client.Options{ProtocolVersion: test.version, Tasks: true})
			task, err := session.StartTool(t.Context(), &protocol.CallToolParams{Name: "make"})
			switch {
			case test.id != "" && (err != nil || task.ID() != test.id):
				t.Errorf("%s: got %v, want the task %q", test.result, err, test.id)
			case test.id == "" && !errors.As(err, new(*client.ResultError)):
				t.Errorf("%s: got %v, want a *client.ResultError", test.result, err)
			}
		})
	}
}

// A call of a tool whose task is refused for another reason than the end of its context, or a question without an answer, cancels nothing.
//
// Guarantees: G-0032.11
func TestOnlyCallsThatGiveUpCancelTheirTask(t *testing.T) {
	for name, test := range map[string]struct {
		poll    func(f frame, n int) string
		o       client.Options
		limit   time.Duration
		cancels int
	}{
		"it has failed": {func(f frame, _ int) string {
			return f.result(taskStatus("complete", "failed", `,"error":{"code":7,"message":"broken"}`))
		}, client.Options{}, 0, 0},
		"it was cancelled":                     {func(f frame, _ int) string { return f.result(taskStatus("complete", "cancelled", "")) }, client.Options{}, 0, 0},
		"it is unknown":                        {func(f frame, _ int) string { return f.fault(-32602, `null`) }, client.Options{}, 0, 0},
		"it is never told":                     {func(f frame, _ int) string { return f.fault(-32603, `null`) }, client.Options{}, 0, 0},
		"it has ended":                         {func(f frame, _ int) string { return f.result(taskStatus("complete", "completed", made)) }, client.Options{}, 0, 0},
		"it has ended, and so has the context": {func(f frame, _ int) string { return f.result(taskStatus("complete", "completed", made)) }, client.Options{}, 0, 0},
		"it asks too often": {func(f frame, n int) string {
			return f.result(taskStatus("complete", "input_required", asks(fmt.Sprint(n))))
		}, client.Options{Elicit: acceptAll, MaxRounds: 2}, 0, 1},
		"the context ends":  {func(f frame, _ int) string { return f.result(taskStatus("complete", "working", "")) }, client.Options{}, time.Minute, 1},
		"nobody can answer": {func(f frame, n int) string { return f.result(taskStatus("complete", "input_required", asks("a"))) }, client.Options{}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := pollServer(new([]time.Duration), test.poll)
			inner := server.answer
			server.answer = func(f frame) []string {
				if f.Method == protocol.MethodCancelTask {
					return []string{f.result(`{"resultType":"complete"}`)}
				}
				return inner(f)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if test.limit > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), test.limit)
			}
			defer cancel()
			if strings.Contains(name, "and so has the context") {
				test.o.Middleware = []client.Middleware{func(next client.Handler) client.Handler {
					return func(ctx context.Context, r *client.Request) (any, error) {
						if r.Method == protocol.MethodGetTask {
							defer cancel()
						}
						return next(ctx, r)
					}
				}}
			}
			test.o.Tasks, test.o.ProtocolVersion = true, protocol.Latest
			session := openFake(t, server, test.o)
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "make"})
			if ended := strings.HasPrefix(name, "it has ended"); (err == nil) != ended || (result != nil) != ended {
				t.Errorf("%s: got %+v, %v", name, result, err)
			}
			pass(time.Hour)
			if n := len(server.received(protocol.MethodCancelTask)); n != test.cancels {
				t.Errorf("%s: the server got %d cancellations, want %d", name, n, test.cancels)
			}
		})
	}
}
