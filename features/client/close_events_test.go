package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

var question = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` + elicitForm + `}`

// A server sends events, and then the answer to a call. The caller closes the session as soon
// as it has the answer. The program gets each event before Close returns, although it needs a
// millisecond for each.
//
// Guarantees: G-0030.9
func TestCloseDeliversEachKindOfEvent(t *testing.T) {
	notification := func(method, params string) string {
		return `{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`
	}
	logged := notification(protocol.NotificationMessage, `{"level":"info","data":1}`)
	for name, c := range map[string]struct{ frame, want string }{
		"tools":     {notification(protocol.NotificationToolsListChanged, `{}`), "*client.ToolsChanged"},
		"prompts":   {notification(protocol.NotificationPromptsListChanged, `{}`), "*client.PromptsChanged"},
		"resources": {notification(protocol.NotificationResourcesListChanged, `{}`), "*client.ResourcesChanged"},
		"resource":  {updated("file:///a"), "*client.ResourceUpdated"},
		"log":       {logged, "*client.LogMessage"},
		"completed": {notification(protocol.NotificationElicitationComplete, `{"elicitationId":"1"}`), "*client.ElicitationComplete"},
		"question":  {question, "*client.NotAnswered"},
		"schema":    {logged, "*client.SchemaRefused"},
		"unknown":   {notification("notifications/x", `{}`), "*client.Notification"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				frames := append(slices.Repeat([]string{logged}, 99), c.frame)
				if c.want != "*client.SchemaRefused" { // which comes with the answer
					frames = append([]string{logged}, frames...)
				}
				want := append(slices.Repeat([]string{"*client.LogMessage"}, 100), c.want)
				var got []string
				s := toolAnswering("", `{"$ref":"#/none"}`)
				others := s.answer
				s.answer = func(f frame) []string {
					if f.Method == protocol.MethodCallTool {
						return append(frames, f.result(`{"content":[]}`))
					}
					return others(f)
				}
				session := openFake(t, s, client.Options{
					Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
						return nil, errors.New("no terminal")
					},
					OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
						pass(time.Millisecond)
						got = append(got, fmt.Sprintf("%T", e))
					},
				})
				if c.want == "*client.SchemaRefused" {
					if _, err := toolNames(t, session); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := client.Call[struct{}](t.Context(), session, "t", nil); err != nil {
					t.Fatal(err)
				}
				if err := session.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if c.want == "*client.NotAnswered" || c.want == "*client.SchemaRefused" { // they come beside the server's events
					slices.Sort(got)
					slices.Sort(want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %d events when Close returned, the last of them %q; want %d, the last of them %q", len(got), got[max(len(got)-1, 0):], len(want), c.want)
				}
			})
		})
	}
}

// The server is lost, and the program closes the session at once. It gets the Lost event before
// Close returns.
//
// Guarantees: G-0030.9
func TestCloseDeliversLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported events
		s := answering(nil)
		session := openFake(t, s, client.Options{OnEvent: reported.on})
		s.cut()
		for status := session.Status(); status.State == conn.Ready; status = session.Status() {
			<-status.Changed()
		}
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
		reported.mu.Lock()
		defer reported.mu.Unlock()
		if len(reported.all) != 1 || !strings.HasPrefix(reported.all[0], "lost") {
			t.Errorf("got the events %q when Close returned, want one that begins with %q", reported.all, "lost")
		}
	})
}

// The events of calls that Close lets finish come before Close returns, too.
//
// Guarantees: G-0030.9
func TestCloseDeliversWhatCameDuringADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answeringWith(protocol.MethodCallTool, func(f frame) []string {
			pass(time.Second)
			return []string{updated("file:///a"), updated("file:///b"), f.result(`{"content":[]}`)}
		})
		got := 0
		session := openFake(t, s, client.Options{OnEvent: func(context.Context, *client.Session, client.Event) {
			pass(50 * time.Millisecond)
			got++
		}})
		var calling sync.WaitGroup
		calling.Go(func() {
			if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := session.Close(context.Background()); err != nil || got != 2 {
			t.Errorf("Close returned %v after %d events, want no error after 2", err, got)
		}
		calling.Wait()
	})
}

// Close waits for a question that is with its handler, which then fails. The program gets the event
// before Close returns, although OnEvent is busy when the handler fails.
//
// Guarantees: G-0030.9, G-0072.2
func TestCloseDeliversNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(nil)
		var got []string
		session := openFake(t, s, client.Options{
			Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				pass(time.Second)
				s.sendFrame(updated("file:///a"))
				pass(time.Millisecond)
				return nil, errors.New("no terminal")
			},
			OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
				pass(50 * time.Millisecond)
				got = append(got, fmt.Sprintf("%T", e))
			},
		})
		s.sendFrame(question)
		synctest.Wait()
		want := []string{"*client.ResourceUpdated", "*client.NotAnswered"}
		if err := session.Close(context.Background()); err != nil || !slices.Equal(got, want) {
			t.Errorf("Close returned %v after the events %q, want no error after %q", err, got, want)
		}
	})
}

// While OnEvent waits for a call, Close does not make the question that came in that call wait for OnEvent.
//
// Guarantees: G-0030.9
func TestCloseWhileOnEventWaitsForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, call := &fakeServer{}, frame{}
		s.answer = func(f frame) []string {
			switch {
			case f.Method == protocol.MethodInitialize:
				return f.initialized(protocol.LatestLegacy, withTools)
			case f.Method == protocol.MethodCallTool:
				call = f
				return []string{question}
			case f.Method == "": // the answer to the question
				return []string{call.result(`{"content":[]}`)}
			}
			return nil
		}
		called := make(chan error, 1)
		session := openFake(t, s, client.Options{
			Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				pass(time.Second)
				return nil, errors.New("no terminal")
			},
			OnEvent: func(ctx context.Context, s *client.Session, e client.Event) {
				if _, ok := e.(*client.ResourceUpdated); ok {
					_, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
					called <- err
				}
			},
		})
		s.sendFrame(updated("file:///a"))
		synctest.Wait()
		began := time.Now()
		if err := session.Close(context.Background()); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("Close returned %v after %v, want no error after a second", err, time.Since(began))
		}
		if err := <-called; err != nil {
			t.Errorf("the call of OnEvent: %v, want its result", err)
		}
	})
}

// A tool of a real server logs 200 messages and returns. The program has them all when Close
// returns, in memory and over stdio.
//
// Guarantees: G-0030.9
func TestCloseDeliversTheLog(t *testing.T) {
	for name, open := range map[string]func() transport.Transport{
		"inmem": func() transport.Transport { return inmem.New(loggingServer().Accept, inmem.Options{}) },
		"stdio": func() transport.Transport {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			return &stdio.Command{Path: self, Env: []string{roleVariable + "=talk"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			session, err := client.New(clientInfo, client.Options{
				ProtocolVersion: protocol.LatestLegacy,
				OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, ok := e.(*client.LogMessage); ok {
						got++
					}
				},
			}).Connect(timeoutContext(t), open())
			if err != nil {
				t.Fatal(err)
			}
			if err := session.SetLogLevel(timeoutContext(t), protocol.LogInfo); err != nil {
				t.Fatal(err)
			}
			if _, err := session.CallTool(timeoutContext(t), &protocol.CallToolParams{Name: "talk"}); err != nil {
				t.Fatal(err)
			}
			if err := session.Close(timeoutContext(t)); err != nil {
				t.Error(err)
			}
			if got != 200 {
				t.Errorf("got %d log messages when Close returned, want 200", got)
			}
		})
	}
}

// loggingServer returns a server whose tool logs 200 messages.
func loggingServer() *server.Server {
	s := server.New(serverInfo, server.Options{LogRate: -1})
	server.AddTool(s, protocol.Tool{Name: "talk"}, func(ctx context.Context, _ struct{}) (string, error) {
		for i := range 200 {
			server.Logger(ctx).Info("m", "i", i)
		}
		return "", nil
	})
	return s
}
