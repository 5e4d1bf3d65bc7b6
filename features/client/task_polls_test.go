package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// taskStatus returns a modern task with further members.
func taskStatus(kind, status, more string) string {
	return fmt.Sprintf(`{"resultType":%q,"taskId":"t","status":%q,"createdAt":"2026-11-27T00:00:00Z","lastUpdatedAt":"2026-11-27T00:00:00Z","ttlMs":null,"pollIntervalMs":7000%s}`,
		kind, status, more)
}

// made is the rest of a task that has ended.
const made = `,"result":{"resultType":"complete","content":[{"type":"text","text":"made"}]}`

// asks is the rest of a task that asks a question with a key.
func asks(key string) string {
	return `,"inputRequests":{"` + key + `":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}}`
}

// pollServer returns a modern server whose tool becomes a task, and that answers poll n, from 1, with poll.
func pollServer(polls *[]time.Duration, poll func(f frame, n int) string) *fakeServer {
	began := time.Now()
	return &fakeServer{answer: func(f frame) []string {
		switch f.Method {
		case protocol.MethodDiscover:
			return []string{f.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)}
		case protocol.MethodCallTool:
			return []string{f.result(taskStatus("task", "working", ""))}
		case protocol.MethodGetTask:
			*polls = append(*polls, time.Since(began))
			return []string{poll(f, len(*polls))}
		case protocol.MethodUpdateTask:
			return []string{f.result(`{"resultType":"complete"}`)}
		default:
			return nil
		}
	}}
}

// The first poll of a call that has become a task, and each after that, comes after the interval that the server wants. After an error
// the next one comes a second later, also if no interval is known yet.
//
// Guarantees: G-0032.10
func TestPollsKeepTheirInterval(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		wait func(context.Context, *client.Session) (*protocol.CallToolResult, error)
		want []time.Duration
	}{
		"a call": {func(ctx context.Context, session *client.Session) (*protocol.CallToolResult, error) {
			return session.CallTool(ctx, &protocol.CallToolParams{Name: "make"})
		}, []time.Duration{7 * s, 8 * s, 9 * s, 16 * s}},
		"a task of another session": {func(ctx context.Context, session *client.Session) (*protocol.CallToolResult, error) {
			return session.Task("t").Wait(ctx)
		}, []time.Duration{0, 1 * s, 2 * s, 9 * s}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var polls []time.Duration
			server := pollServer(&polls, func(f frame, n int) string {
				switch n {
				case 1, 2:
					return f.fault(-32603, `null`)
				case 3:
					return f.result(taskStatus("complete", "working", ""))
				default:
					return f.result(taskStatus("complete", "completed", made))
				}
			})
			session, err := connect(t, server, client.Options{Tasks: true}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			result, err := test.wait(t.Context(), session)
			if err != nil || result.Content.Text() != "made" {
				t.Errorf("%s: got %+v, %v", name, result, err)
			}
			if !slices.Equal(polls, test.want) {
				t.Errorf("%s: it was polled at %v, want %v", name, polls, test.want)
			}
		})
	}
}

// A question of a task is answered once, however often the server shows it. A task that asks too often is given up.
//
// Guarantees: G-0032.10
func TestEachQuestionOfATaskIsAnsweredOnce(t *testing.T) {
	for name, test := range map[string]struct {
		status  string
		key     func(poll int) string
		answers int
		want    error
	}{
		"the same question":   {"input_required", func(int) string { return "a" }, 1, nil},
		"another each time":   {"input_required", func(n int) string { return fmt.Sprint(n) }, 5, client.ErrTooMany},
		"two questions twice": {"input_required", func(n int) string { return fmt.Sprint(n % 2) }, 2, nil},
		"it does not wait":    {"working", func(int) string { return "a" }, 0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var polls []time.Duration
			server := pollServer(&polls, func(f frame, n int) string {
				if n > 12 {
					return f.result(taskStatus("complete", "completed", made))
				}
				return f.result(taskStatus("complete", test.status, asks(test.key(n))))
			})
			answers := 0
			session, err := connect(t, server, client.Options{Tasks: true, MaxRounds: 5, Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				answers++
				return client.Accept(nil)
			}}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "make"}); !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
			if sent := len(server.received(protocol.MethodUpdateTask)); answers != test.answers || sent != test.answers {
				t.Errorf("%s: %d questions were asked and %d answers sent, want %d", name, answers, sent, test.answers)
			}
		})
	}
}
