package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// These are what an impatient server sends beside its answers, or instead of them: ID is an id that may be of a request of the client, or of an earlier one
// of the server.
var impatientMessages = []string{
	`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
	`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`,
	`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a"}}`,
	`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"d"}}`,
	`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1}}`,
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}`,
	`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}`,
	`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"working","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":null}}`,
	`{"jsonrpc":"2.0","id":ID,"method":"ping"}`,
	`{"jsonrpc":"2.0","id":ID,"method":"roots/list"}`,
	`{"jsonrpc":"2.0","id":ID,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`,
	`{"jsonrpc":"2.0","id":ID,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`,
	`{"jsonrpc":"2.0","id":ID,"method":"unknown"}`,
	`{"jsonrpc":"2.0","id":ID,"result":{}}`,
	`{"jsonrpc":"2.0","id":ID,"result":{"content":[],"task":{"taskId":"t","status":"working","createdAt":"2025-11-25T00:00:00Z","lastUpdatedAt":"2025-11-25T00:00:00Z","ttl":null}}}`,
	`{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"no"}}`,
	`null`,
	"lose",
}

// An impatientServer says what was drawn, whatever it is asked.
type impatientServer struct {
	fakeServer
	mu    sync.Mutex
	turns [][]string // what it sends before each answer
	moods []string   // how it answers
}

func (s *impatientServer) reply(f frame) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	if len(s.turns) > 0 {
		all, s.turns = s.turns[0], s.turns[1:]
	}
	if f.Method == "" || len(f.ID) == 0 {
		return all
	}
	var response []string
	switch f.Method {
	case protocol.MethodInitialize:
		response = f.initialized(protocol.LatestLegacy, `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`)
	case protocol.MethodDiscover:
		response = []string{f.result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}`)}
	case protocol.MethodListTools:
		response = []string{f.result(`{"resultType":"complete","ttlMs":1000,"cacheScope":"private","tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}]}`)}
	case protocol.MethodReadResource:
		response = []string{f.result(`{"resultType":"complete","contents":[{"uri":"x://a","text":"a"}]}`)}
	case protocol.MethodCallTool:
		response = []string{f.result(`{"resultType":"complete","content":[{"type":"text","text":"done"}],"structuredContent":{}}`)}
	default:
		response = []string{f.result(`{"resultType":"complete"}`)}
	}
	if len(s.moods) > 0 {
		mood := s.moods[0]
		s.moods = s.moods[1:]
		switch mood {
		case "silent":
			return all
		case "twice":
			all = append(all, response...)
		case "late": // in its next turn
			s.turns = append([][]string{response}, s.turns...)
			return all
		}
	}
	return append(all, response...)
}

// A server sends what it likes, whenever it likes: answers late, twice or never, answers to nobody, questions, notifications of changes, and it hangs up. Each
// call of the program ends, the session can be closed, and nothing stays.
//
// Guarantees: G-0003.10
func TestServerThatDoesNotWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := new(impatientServer)
			for range rapid.IntRange(0, 30).Draw(t, "turns") {
				var says []string
				for range rapid.IntRange(0, 3).Draw(t, "messages") {
					says = append(says, strings.ReplaceAll(rapid.SampledFrom(impatientMessages).Draw(t, "message"), "ID", fmt.Sprint(rapid.IntRange(0, 20).Draw(t, "id"))))
				}
				s.turns = append(s.turns, says)
			}
			s.moods = rapid.SliceOfN(rapid.SampledFrom([]string{"answer", "answer", "answer", "answer", "silent", "twice", "late"}), 0, 30).Draw(t, "moods")
			s.answer = func(f frame) []string {
				all := s.reply(f)
				for i, frame := range all {
					if frame == "lose" {
						s.links[f.Link-1].Close(0)
						return all[:i]
					}
				}
				return all
			}
			look := func(ctx context.Context, session *client.Session) {
				client.Asking(ctx)
				_ = fmt.Sprint(session.Server(), session.Status(), session.Name(), session.Endpoint())
			}
			o := client.Options{
				ProtocolVersion: rapid.SampledFrom([]string{"", protocol.LatestLegacy, protocol.Latest}).Draw(t, "revision"),
				LogLevel:        protocol.LogDebug, Tasks: true, CacheBytes: 1 << 20,
				Elicit: func(ctx context.Context, session *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
					look(ctx, session)
					return client.Decline()
				},
				Sample: func(ctx context.Context, session *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
					look(ctx, session)
					_, err := session.ListTools(ctx, nil)
					return &protocol.CreateMessageResult{Role: "assistant", Model: "m"}, err
				},
				Roots: func(ctx context.Context, session *client.Session) ([]protocol.Root, error) {
					look(ctx, session)
					return nil, nil
				},
				OnEvent: func(ctx context.Context, session *client.Session, _ client.Event) { look(ctx, session) },
				OnLog:   func(ctx context.Context, session *client.Session, _ *client.LogMessage) { look(ctx, session) },
			}
			o.Calls.Timeout = time.Minute
			c := client.New(clientInfo, o)
			connecting, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			session, err := c.Connect(connecting, s)
			if err == nil {
				works := map[string]func(context.Context) error{
					"call": func(ctx context.Context) error {
						_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "t"})
						return err
					},
					"list": func(ctx context.Context) error { _, err := session.ListTools(ctx, nil); return err },
					"read": func(ctx context.Context) error {
						_, err := session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "x://a"})
						return err
					},
					"relay": func(ctx context.Context) error {
						_, err := session.Relay(ctx, protocol.MethodCallTool, []byte(`{"name":"t"}`))
						return err
					},
					"subscribe": func(ctx context.Context) error {
						return session.Subscribe(ctx, &protocol.SubscribeParams{URI: "x://a"})
					},
					"unsubscribe": func(ctx context.Context) error {
						return session.Unsubscribe(ctx, &protocol.UnsubscribeParams{URI: "x://a"})
					},
					"level": func(ctx context.Context) error { return session.SetLogLevel(ctx, protocol.LogError) },
					"ping":  session.Ping,
					"start": func(ctx context.Context) error {
						task, err := session.StartTool(ctx, &protocol.CallToolParams{Name: "t"})
						if err == nil {
							_, err = task.Wait(ctx)
						}
						return err
					},
					"watch": func(ctx context.Context) error {
						for _, err := range session.Watch(ctx, "x://a") {
							return err
						}
						return nil
					},
					"clear": func(context.Context) error { session.ClearCache(); return nil },
				}
				var program sync.WaitGroup
				for range rapid.IntRange(0, 12).Draw(t, "calls") {
					name := rapid.SampledFrom([]string{"call", "list", "read", "relay", "subscribe", "unsubscribe", "level", "ping", "start", "watch", "clear"}).Draw(t, "call")
					patience := time.Duration(rapid.SampledFrom([]int{0, 1, 100_000}).Draw(t, "patience")) * time.Millisecond
					program.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), patience)
						defer cancel()
						_ = works[name](ctx)
					})
					if rapid.Bool().Draw(t, "waits") {
						synctest.Wait()
					}
				}
				if rapid.Bool().Draw(t, "waits for all") {
					program.Wait()
				}
				if err := session.Close(context.Background()); err != nil && !errors.Is(err, context.DeadlineExceeded) { // which says what was cut short
					t.Errorf("Close: %v", err)
				}
				program.Wait()
			}
			s.close()
		})
	})
}
