package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// tasked starts a gateway over one server with tasks, which is another one on each connection. They hold until the end of the test.
func tasked(t *testing.T, version, block string) (f *fleet, clientOf func(string) *client.Session) {
	f = newFleetFor(t, version, map[string]*server.Server{}, gateway.Options{}, load(t, `{"mcpServers":{}}`))
	f.each = func() *server.Server {
		s, _ := taskServer()
		return s
	}
	f.apply(oneWith(t, block))
	return f, func(identity string) *client.Session {
		f.identity = identity
		return f.client(version, taskUser(identity))
	}
}

// isLostTask reports whether a task has failed with its server.
func isLostTask(t *testing.T, task *client.Task) {
	t.Helper()
	status, err := task.Status(timeout(t))
	if err != nil || status.Status != protocol.TaskFailed || !strings.Contains(status.StatusMessage, `lost with the server "a"`) {
		t.Errorf("%+v, %v", status, err)
	}
}

// If the file says that another connection serves a client from now on, nothing is asked there about a task of the one before: it would be
// that of somebody else, if anybody's.
//
// Guarantees: G-0094.2, G-0094.3
func TestTaskIsNotLookedForOnAnotherConnection(t *testing.T) {
	for before, after := range map[string]string{"user": "all", "all": "user"} {
		taskEras(t, func(t *testing.T, version string) {
			f, clientOf := tasked(t, version, `{"share":"`+before+`"}`)
			task := start(t, clientOf("ann"), "a__hold")
			f.apply(oneWith(t, `{"share":"`+after+`"}`))
			isLostTask(t, task)
		})
	}
}

// Each request about a task that was lost says so in the form of its revision: the status of the task, what has become of its call, and to cancel it is an error in 2025-11-25 alone.
//
// Guarantees: G-0094.3
func TestWhatALostTaskAnswers(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		f, clientOf := tasked(t, version, `{}`)
		session := clientOf("ann")
		task := start(t, session, "a__hold")
		failOn(t, f.Do(t.Context(), "a", admin.Stop))
		const lost = `the task was lost with the server "a": it has ended since. It may have been executed`
		status, err := task.Status(timeout(t))
		if err != nil || status.Status != protocol.TaskFailed || status.StatusMessage != lost || status.TaskID != task.ID() {
			t.Errorf("its status: %+v, %v", status, err)
		}
		_, err = task.Wait(timeout(t))
		var fault *jsonrpc.Error
		if !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInternalError || fault.Message != `the server "a" is away: it has ended since. It may have been executed` || !strings.Contains(string(fault.Data), `"delivery":"unknown"`) {
			t.Errorf("its result: %v, %+v", err, fault)
		}
		switch err := task.Cancel(timeout(t)); {
		case protocol.IsModern(version) && err != nil:
			t.Errorf("to cancel it: %v", err)
		case !protocol.IsModern(version) && (!errors.As(err, &fault) || fault.Code != jsonrpc.CodeInvalidParams || fault.Message != "the task has ended: it has failed"):
			t.Errorf("to cancel it: %v", err)
		}
	})
}

// What a server has told of the end of a task holds when the server is lost, although nobody has asked for it.
//
// Guarantees: G-0094.3
func TestTheEndOfATaskThatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := taskServer()
		f := newFleet(t, protocol.LatestLegacy, map[string]*server.Server{"a": s})
		task := start(t, f.client(protocol.LatestLegacy, taskUser("ann")), "a__hold")
		close(release)
		pass(time.Second)
		synctest.Wait()
		failOn(t, f.Do(t.Context(), "a", admin.Stop))
		if status, err := task.Status(timeout(t)); err != nil || status.Status != protocol.TaskCompleted {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

// A task that has ended does not fail later, when its server has ended, too.
//
// Guarantees: G-0094.3
func TestEndedTaskStaysWhatItWas(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		f, clientOf := tasked(t, version, `{}`)
		task := start(t, clientOf("ann"), "a__hold")
		failOn(t, task.Cancel(timeout(t)))
		synctest.Wait()
		if status, err := task.Status(timeout(t)); err != nil || status.Status != protocol.TaskCancelled {
			t.Fatalf("%+v, %v", status, err)
		}
		failOn(t, f.Do(t.Context(), "a", admin.Stop))
		status, err := task.Status(timeout(t))
		if modern := protocol.IsModern(version); modern && !strings.Contains(fmt.Sprint(err), "it had ended") || !modern && (err != nil || status.Status != protocol.TaskCancelled) {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

// A task that waits for its user does not keep others from the server, however few requests that may get at once.
//
// Guarantees: G-0094.1
func TestWaitForATaskTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, clientOf := tasked(t, protocol.LatestLegacy, `{"concurrency":1}`)
		o, answer := taskUser("ann"), make(chan bool)
		elicit := o.Elicit
		o.Elicit = func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			<-answer
			return elicit(ctx, s, p)
		}
		task := start(t, f.client(protocol.LatestLegacy, o), "a__ask")
		waited := make(chan string)
		go func() {
			result, err := task.Wait(t.Context())
			waited <- outcome(result, err)
		}()
		pass(time.Second)
		began := time.Now()
		if got, err := client.Call[string](t.Context(), clientOf("bob"), "a__plain", nil); err != nil || got != "plain" || time.Since(began) > time.Second {
			t.Errorf("another client: %q, %v after %s", got, err, time.Since(began))
		}
		close(answer)
		if got := <-waited; got != "ann:who" {
			t.Error(got)
		}
	})
}

// A task whose server has left the file, is another one there or was stopped is lost at once, and its client is told.
//
// Guarantees: G-0094.3, G-0094.4
func TestClientIsToldThatItsTaskIsLost(t *testing.T) {
	tests := map[string]func(*fleet){
		"removed": func(f *fleet) { f.apply(load(f.t, `{"mcpServers":{}}`)) },
		"changed": func(f *fleet) { f.apply(load(f.t, `{"mcpServers":{"a":{"command":"/bin/other"}}}`)) },
		"stopped": func(f *fleet) { failOn(f.t, f.Do(f.t.Context(), "a", admin.Stop)) },
		"died": func(f *fleet) {
			f.kill("a", true)
			synctest.Wait()
			failOn(f.t, f.Do(f.t.Context(), "a", admin.Wake))
		},
	}
	for name, lose := range tests {
		synctest.Test(t, func(t *testing.T) {
			f, _ := tasked(t, protocol.LatestLegacy, `{}`)
			o, told := taskUser("ann"), make(chan string, 8)
			o.OnEvent = func(_ context.Context, _ *client.Session, e client.Event) {
				if n, ok := e.(*client.Notification); ok {
					told <- string(n.Params)
				}
			}
			start(t, f.client(protocol.LatestLegacy, o), "a__hold")
			lose(f)
			synctest.Wait()
			if len(told) != 1 || !strings.Contains(<-told, `"status":"failed"`) {
				t.Errorf("%s: the client was not told", name)
			}
		})
	}
}

// A task that nobody can ask for any more, since the session has ended to which its connection belongs, does not keep that connection.
//
// Guarantees: G-0095.3
func TestTaskEndsWithTheSessionOfItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, clientOf := tasked(t, protocol.LatestLegacy, `{"share":"client"}`)
		session := clientOf("ann")
		start(t, session, "a__hold")
		session.Close(timeout(t))
		synctest.Wait()
		if a, _ := f.Report().Server("a"); a.Connections != 0 {
			t.Errorf("%d connections are left", a.Connections)
		}
	})
}

// A client asks about its tasks as often as the file lets it ask for anything.
//
// Guarantees: G-0094.1, G-0100.1
func TestRequestsAboutTasksCount(t *testing.T) {
	taskEras(t, func(t *testing.T, version string) {
		s, _ := taskServer()
		f := newFleetFor(t, version, map[string]*server.Server{"a": s}, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"rate":{"perMinute":4}}}`))
		f.identity = "ann"
		task := start(t, f.client(version, taskUser("ann")), "a__hold")
		for i := range 4 {
			if _, err := task.Status(timeout(t)); (err == nil) != (i < 3) {
				t.Errorf("request %d about the task: %v", i+1, err)
			}
		}
	})
}

// If nobody may ask for the result of a task that the gateway has begun for a call, the call may have been executed all the same.
//
// Guarantees: G-0094.5
func TestResultOfATaskThatIsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := taskServer()
		f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"rate":{"perMinute":1}}}`))
		f.identity = "ann"
		session := f.client(protocol.Latest, client.Options{})
		toolNames(t, session) // it is known then which tools are tasks
		result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__must", Arguments: []byte(`{}`)})
		if err != nil || !result.IsError || !strings.Contains(result.Content.Text(), "It may have been executed") {
			t.Errorf("%+v, %v", result, err)
		}
	})
}
