package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// A call cannot ask its client more often than MaxRounds, in whichever way it asks.
//
// Guarantees: G-0031.7
func TestACallAsksAtMostMaxRoundsTimes(t *testing.T) {
	const most = 3
	insists := func(ctx context.Context, _ struct{}) (string, error) {
		for n := 1; ; n++ {
			if err := server.Confirm(ctx, fmt.Sprintf("Sure, for the %d. time?", n)); err != nil {
				if c := server.RequestFrom(ctx); c.Session != nil && !errors.Is(err, server.ErrUnanswered) && !errors.Is(err, server.ErrInputRequired) {
					t.Errorf("got %v, want %v", err, server.ErrUnanswered)
				}
				return "", err
			}
		}
	}
	requires := func(ctx context.Context, _ struct{}) (string, error) {
		var n int
		if _, err := server.RequestFrom(ctx).State(&n); err != nil || n > 2*most {
			return "", errors.Join(errors.New("it was asked too often"), err)
		}
		return "", &server.InputRequired{Requests: question("again"), State: n + 1}
	}
	newInsisting := func() *server.Server {
		s := newServer(server.Options{
			Asking: server.AskingOptions{MaxRounds: most}, Tasks: &server.TaskOptions{PollInterval: time.Millisecond},
		})
		server.AddTool(s, protocol.Tool{Name: "waits"}, insists, server.Asks(server.Waits, forms))
		server.AddTool(s, protocol.Tool{Name: "reruns"}, insists, server.Asks(server.Reruns, forms))
		server.AddTool(s, protocol.Tool{Name: "requires"}, requires)
		mayBeTask := &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}
		server.AddTool(s, protocol.Tool{Name: "task", Execution: mayBeTask}, insists, server.Asks(server.Waits, forms))
		server.AddTool(s, protocol.Tool{Name: "task_requires", Execution: mayBeTask}, requires, server.Asks(server.Waits, forms))
		return s
	}
	var asked atomic.Int64
	o := client.Options{MaxRounds: 100, Tasks: true, Elicit: func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		if asked.Add(1) > 2*most {
			return client.Decline()
		}
		return fillIn(ctx, s, p)
	}}
	everywhereSince(t, protocol.Version20250618, newInsisting, o, func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, tool := range []string{"waits", "reruns", "requires", "task", "task_requires"} {
			asked.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
			cancel()
			said := fmt.Sprint(err)
			if err == nil && result.IsError {
				said = result.Content.Text()
			}
			if n := asked.Load(); n != most || !strings.Contains(said, fmt.Sprintf("asked %d times already", most)) {
				t.Errorf("%s: %d questions were asked, want %d, and the outcome is %q", tool, n, most, said)
			}
		}
	})
}

// When the server closes, the context of a handler whose question waits for the next round ends, even if another goroutine of the
// handler has asked.
//
// Guarantees: G-0031.7
func TestCloseEndsTheContextOfAHandlerWhoseQuestionWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		causes := make(chan error, 1)
		server.AddTool(s, protocol.Tool{Name: "asks_beside"}, func(ctx context.Context, _ struct{}) (string, error) {
			answered := make(chan error, 1)
			go func() { answered <- server.Confirm(ctx, "Sure?") }()
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", <-answered
		}, server.Asks(server.Waits, forms))
		if first := dial(t, s).round("asks_beside", ""); first.State == "" {
			t.Fatalf("got %+v, want a question", first)
		}
		closing, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(closing); err != nil {
			t.Errorf("Close returned %v", err)
		}
		if cause := <-causes; !errors.Is(cause, server.ErrClosed) {
			t.Errorf("the context ended with %v, want %v", cause, server.ErrClosed)
		}
	})
}

// What a handler that Waits reports goes to the request of the present round, and not to the one that began the call.
//
// Guarantees: G-0031.1
func TestProgressGoesToThePresentRound(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "reports"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Progress(ctx, 1, 2, "")
		if err := server.Confirm(ctx, "Sure?"); err != nil {
			return "", err
		}
		server.Progress(ctx, 2, 2, "")
		return "done", nil
	}, server.Asks(server.Waits, forms))
	w := dial(t, s)
	call := func(token, more string) string {
		return strings.Replace(withForms(`1`, "tools/call", `"name":"reports"`+more), `"_meta":{`, `"_meta":{"progressToken":"`+token+`",`, 1)
	}
	w.send(call("first", ""))
	w.want(`"progressToken":"first","progress":1`)
	var asked struct {
		Result struct {
			State string `json:"requestState"`
		} `json:"result"`
	}
	w.read(&asked)
	w.send(call("second", retryParams(asked.Result.State, yes)))
	w.want(`"progressToken":"second","progress":2`)
	w.want(`done`)
}

// A call that has asked in rounds, and then becomes a task, goes on with the next question: the answers of the rounds stay answers to
// their own questions.
//
// Guarantees: G-0032.8
func TestATaskGoesOnAfterTheQuestionsOfItsRounds(t *testing.T) {
	bubble(t, server.TaskOptions{After: time.Second}, func(t *testing.T, s *taskServer) {
		server.AddTool(s.Server, protocol.Tool{Name: "confirms", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				if err := server.Confirm(ctx, "Sure?"); err != nil {
					return "", err
				}
				<-s.goOn
				if err := server.Confirm(ctx, "Really?"); err != nil {
					return "", err
				}
				return "done", nil
			}, server.Asks(server.Reruns, forms))
		w := dial(t, s.Server)
		first := w.ask(withTasks(`1`, "tools/call", `"name":"confirms"`))
		var state, id string
		if err := json.Unmarshal(first.Result["requestState"], &state); err != nil {
			t.Fatalf("got %s, %v", first.Result, first.Error)
		}
		w.send(withTasks(`1`, "tools/call", `"name":"confirms"`+retryParams(state, yes)))
		pass(2 * time.Second)
		var begun response
		if w.read(&begun); json.Unmarshal(begun.Result["taskId"], &id) != nil {
			t.Fatalf("got %s, %v, want a task", begun.Result, begun.Error)
		}
		s.goOn <- struct{}{}
		synctest.Wait()
		asked := w.getTask(id)
		if _, found := asked.InputRequests["2"]; !found || len(asked.InputRequests) != 1 {
			t.Fatalf("the task is %+v, want its second question", asked)
		}
		w.send(withTasks(`3`, "tasks/update", `"taskId":"`+id+`","inputResponses":{"2":{"action":"accept","content":{}}}`))
		w.want(`"resultType":"complete"`)
		synctest.Wait()
		if got := w.getTask(id); !strings.Contains(string(got.FinalResult), `"text":"done"`) {
			t.Errorf("got %+v, want %q", got, "done")
		}
	})
}

// The answers of all rounds are there when the call becomes a task before its handler asks again. They are checked as in a round, and
// what the client has not answered is asked by the task.
//
// Guarantees: G-0031.6, G-0032.7
func TestATaskHasTheAnswersOfItsRounds(t *testing.T) {
	said := func(key, text string) string {
		return `"` + key + `":{"action":"accept","content":{"` + key + `":` + text + `}}`
	}
	for name, test := range map[string]struct {
		rounds []string // the answers of all requests for the call; during the last one it becomes a task
		asked  string   // the question of the task
		want   string   // in its result
		other  bool     // in the last round, the handler asks something else under the same keys
	}{
		"of no round":          {[]string{``}, "a", `"text":"lm"`, false},
		"of the first request": {[]string{said("a", `"x"`)}, "b", `"text":"xm"`, false},
		"all at once":          {[]string{said("a", `"x"`) + `,` + said("b", `"y"`)}, "", `"text":"xy"`, false},
		"of the last round":    {[]string{``, said("a", `"x"`)}, "b", `"text":"xm"`, false},
		"of all rounds":        {[]string{``, said("a", `"x"`), said("b", `"y"`)}, "", `"text":"xy"`, false},
		"early, of all rounds": {[]string{said("a", `"x"`), said("b", `"y"`)}, "", `"text":"xy"`, false},
		"to another question":  {[]string{``, said("b", `"y"`)}, "a", `"text":"lm"`, false},
		"misfits at first":     {[]string{said("a", `7`)}, "", `"a"`, false},
		"misfits":              {[]string{``, said("a", `7`)}, "", `"a"`, false},
		"misfits later":        {[]string{said("a", `"x"`) + `,` + said("b", `7`)}, "", `"b"`, false},
		"to what was asked":    {[]string{``, said("a", `"x"`)}, "", "key", true},
		"fits no question":     {[]string{said("a", `"x"`) + `,"b":{"roots":[]}`}, "", `"b"`, false},
	} {
		bubble(t, server.TaskOptions{After: time.Second}, func(t *testing.T, s *taskServer) {
			thinks := false
			server.AddTool(s.Server, protocol.Tool{Name: "thinks", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
				func(ctx context.Context, _ struct{}) (text string, err error) {
					if thinks {
						pass(2 * time.Second)
					}
					for _, key := range []string{"a", "b"} {
						asked := question(key)
						if test.other && thinks {
							asked = protocol.InputRequests{key: question("x")["x"]}
						}
						answers, err := server.Ask(ctx, asked)
						if err != nil {
							return "", err
						}
						text += textOf(answers, key)
					}
					return text, nil
				}, server.Asks(server.Reruns, forms))
			w := dial(t, s.Server)
			var got response
			more := ""
			for i, answers := range test.rounds {
				thinks = i == len(test.rounds)-1
				var state string
				if more = `,"inputResponses":{` + answers + `}`; i > 0 {
					if err := json.Unmarshal(got.Result["requestState"], &state); err != nil {
						t.Fatalf("%s: got %s, %v, want a question", name, got.Result, got.Error)
					}
					more = retryParams(state, answers)
				}
				got = w.ask(withTasks(`1`, "tools/call", `"name":"thinks"`+more))
			}
			var id string
			if err := json.Unmarshal(got.Result["taskId"], &id); err != nil {
				t.Fatalf("%s: got %s, %v, want a task", name, got.Result, got.Error)
			}
			pass(2 * time.Second)
			for n := 0; n < 3; n++ { // what the task asks is answered with l, then m
				asked := w.getTask(id).InputRequests
				if n == 0 && strings.Join(keysOf(asked), "") != test.asked {
					t.Errorf("%s: the task asks %q, want %q", name, keysOf(asked), test.asked)
				}
				for _, key := range keysOf(asked) {
					w.ask(withTasks(`3`, "tasks/update", `"taskId":"`+id+`","inputResponses":{`+said(key, map[string]string{"a": `"l"`, "b": `"m"`}[key])+`}`))
				}
				synctest.Wait()
			}
			if got := w.getTask(id); !strings.Contains(string(got.FinalResult)+got.StatusMessage, test.want) {
				t.Errorf("%s: the task is %s with %s %s, want %s in it", name, got.Status, got.FinalResult, got.StatusMessage, test.want)
			}
		})
	}
}

// An answer stays an answer of the call, although the next round asks something else first. So each question is asked once.
//
// Guarantees: G-0031.1
func TestAnswersOutliveARoundThatDoesNotAskForThem(t *testing.T) {
	s := newServer(server.Options{})
	run := 0
	server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (text string, err error) {
		run++
		keys := map[int][]string{1: {"a"}, 2: {"b", "a"}, 3: {"c", "a", "b"}, 4: {"a", "b", "c"}}[run]
		for _, key := range keys {
			answers, err := server.Ask(ctx, question(key))
			if err != nil {
				return "", err
			}
			text += textOf(answers, key)
		}
		return text, nil
	}, server.Asks(server.Reruns, forms))
	w := dial(t, s)
	got := w.round("t", "")
	for _, key := range []string{"a", "b", "c"} {
		if len(got.Keys) != 1 || got.Keys[0] != key {
			t.Fatalf("got %+v, want the question %q", got, key)
		}
		got = w.round("t", retryParams(got.State, `"`+key+`":{"action":"accept","content":{"`+key+`":"`+key+`"}}`))
	}
	if !strings.Contains(got.Text, `"abc"`) {
		t.Errorf("got %+v, want all three answers", got)
	}
}

// A question for which the call has to become a task fails if there is no room for that, and says so.
//
// Guarantees: G-0032.5
func TestAQuestionFailsThatFindsNoRoomForItsTask(t *testing.T) {
	store := new(faultyStore)
	store.full.Store(true)
	bubble(t, server.TaskOptions{After: time.Minute, Store: store}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.send(withTasks(`1`, "tools/call", `"name":"waits"`))
		w.want("cannot become a task")
		if cause := <-s.causes; !strings.Contains(cause.Error(), "cannot become a task") {
			t.Errorf("the question failed with %v, want %q in it", cause, "cannot become a task")
		}
		store.full.Store(false)
		w.beginTask("waits")
	})
}

// How long a task lives is for the server to say: only a client of 2025-11-25 may ask for less.
//
// Guarantees: G-0032.3
func TestAModernClientDoesNotChooseHowLongATaskLives(t *testing.T) {
	bubble(t, server.TaskOptions{TTL: time.Hour, Legacy: true}, func(t *testing.T, s *taskServer) {
		w, old := dial(t, s.Server), dial(t, s.Server)
		old.session()
		const params = `"name":"work","task":{"ttl":60000}`
		if got := w.ask(withTasks(`1`, "tools/call", params)).text("ttlMs"); got != "3600000" {
			t.Errorf("a modern client: got a TTL of %s ms, want that of the server", got)
		}
		if got := old.ask(legacy(`1`, "tools/call", params)).text("task"); !strings.Contains(got, `"ttl":60000`) {
			t.Errorf("a client of 2025-11-25: got %s, want the TTL that it asks for", got)
		}
	})
}

// A call that could become a task, and for which the store has no room, stays a call: its client gets the result.
//
// Guarantees: G-0032.8
func TestACallWithoutRoomForATaskStaysACall(t *testing.T) {
	store := new(faultyStore)
	store.full.Store(true)
	bubble(t, server.TaskOptions{After: time.Second, Store: store}, func(t *testing.T, s *taskServer) {
		w := dial(t, s.Server)
		w.send(withTasks(`1`, "tools/call", `"name":"work"`))
		pass(time.Minute)
		s.goOn <- struct{}{}
		w.want(`"id":1`, `"text":"done"`)
	})
}

// A handler that returns InputRequired finds its state in the next round, in a call that may become a task as in any other; and none if it has returned
// none the last time.
//
// Guarantees: G-0031.1
func TestTheStateOfAHandlerIsThatOfItsLastRound(t *testing.T) {
	said := func(text string) string {
		return `"a":{"action":"accept","content":{"a":"` + text + `"}}`
	}
	bubble(t, server.TaskOptions{After: time.Minute}, func(t *testing.T, s *taskServer) {
		w, state := dial(t, s.Server), ""
		for _, more := range []string{"", "x", "y"} {
			params := `"name":"explicit"`
			if more != "" {
				params += retryParams(state, said(more))
			}
			got := w.ask(withTasks(`1`, "tools/call", params))
			if more != "y" {
				if err := json.Unmarshal(got.Result["requestState"], &state); err != nil {
					t.Fatalf("after %q: got %s, %v, want a question", more, got.Result, got.Error)
				}
			} else if !strings.Contains(got.text("content"), `"x+y"`) {
				t.Errorf("got %s, %v, want both answers", got.Result, got.Error)
			}
		}
	})
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "forgets"}, func(ctx context.Context, _ struct{}) (string, error) {
		r, kept := server.RequestFrom(ctx), ""
		later, err := r.State(&kept)
		switch {
		case err != nil:
			return "", err
		case r.Answers == nil:
			return "", &server.InputRequired{Requests: question("a"), State: "kept"}
		case later && kept == "kept":
			return "", &server.InputRequired{Requests: question("a")}
		default:
			return fmt.Sprintf("a state: %t", later), nil
		}
	})
	old, w := dial(t, s), dial(t, s)
	old.session()
	old.send(legacy(`1`, "tools/call", `"name":"forgets"`))
	for range 2 {
		old.send(`{"jsonrpc":"2.0","id":` + idOf(old.next()) + `,"result":{"action":"accept","content":{"a":"x"}}}`)
	}
	old.want(`a state: false`)
	got := w.round("forgets", "")
	for range 2 {
		got = w.round("forgets", retryParams(got.State, said("x")))
	}
	if !strings.Contains(got.Text, `a state: false`) {
		t.Errorf("got %+v, want no state in the last round", got)
	}
}

// A call that may not ask any more has given its place back: the next one has room.
//
// Guarantees: G-0031.7
func TestACallThatHasAskedTooOftenGivesItsPlaceBack(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{Asking: server.AskingOptions{MaxWaiting: 1, MaxRounds: 1}})
		server.AddTool(s, protocol.Tool{Name: "insists"}, func(ctx context.Context, _ struct{}) (string, error) {
			for {
				if err := server.Confirm(ctx, "Sure?"); err != nil {
					return "", err
				}
			}
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		for n := range 3 {
			first := w.round("insists", "")
			if first.State == "" {
				t.Fatalf("call %d: got %+v, want a question", n, first)
			}
			if got := w.round("insists", retryParams(first.State, yes)); !strings.Contains(got.Text+fmt.Sprint(got.Error), "asked 1 times already") {
				t.Errorf("call %d: got %+v, %v, want that it has asked too often", n, got, got.Error)
			}
		}
	})
}

// A call of a legacy client whose handler returns InputRequired again and again ends after CallExpiry, however often its user answers.
//
// Guarantees: G-0031.7
func TestALegacyCallThatRequiresInputExpires(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "requires"}, func(context.Context, struct{}) (string, error) {
			return "", &server.InputRequired{Requests: question("a")}
		})
		w, began := dial(t, s), time.Now()
		w.session()
		w.send(legacy(`1`, "tools/call", `"name":"requires"`))
		for range 7 {
			asked := idOf(w.next())
			if len(w.frames) == 0 && time.Since(began) < 54*time.Minute {
				pass(9 * time.Minute)
				w.send(`{"jsonrpc":"2.0","id":` + asked + `,"result":{"action":"accept","content":{"a":"x"}}}`)
			}
		}
		pass(7 * time.Minute)
		synctest.Wait()
		var frames []string
		for len(w.frames) > 0 {
			frames = append(frames, <-w.frames)
		}
		if all := strings.Join(frames, ""); !strings.Contains(all, "the call took longer than 1h0m0s") {
			t.Errorf("after %v: got %s, want that the call took too long", time.Since(began), all)
		}
	})
}
