package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// questioner is a server with a tool for each kind of question, which returns what became of its question, and one that asks nothing.
func questioner() (s *server.Server, runs func() int) {
	// It gives up before the gateway does: otherwise the gateway's "cancel" and its own end come at one moment.
	expires := server.AskingOptions{Expiry: 9 * time.Minute}
	s, n := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Asking: expires}), make(chan int, 1)
	n <- 0
	add := func(name string, ask func(context.Context) (string, error)) {
		server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
			n <- <-n + 1
			return ask(ctx)
		}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
	}
	elicit := func(q *protocol.ElicitParams) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			answers, err := server.Ask(ctx, protocol.InputRequests{"q": q})
			if err != nil {
				return "", err
			}
			return answers["q"].(*protocol.ElicitResult).Action, nil
		}
	}
	add("form", elicit(&protocol.ElicitParams{Message: "?", RequestedSchema: []byte(`{"type":"object","properties":{}}`)}))
	add("URL", elicit(&protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "?", URL: "https://example.com/"}))
	add("sample", askForSample)
	add("roots", askForRoots)
	add("none", func(context.Context) (string, error) { return "done", nil })
	return s, func() int {
		now := <-n
		defer func() { n <- now }()
		return now
	}
}

// respondent is a client whose user does as before says, and then answers, or refuses.
func respondent(before func(context.Context) error, refuses bool) client.Options {
	elicit := func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		if err := before(ctx); err != nil {
			return nil, err
		}
		if refuses {
			return client.Decline()
		}
		return client.Accept(nil)
	}
	refused := func(ctx context.Context) error {
		if err := before(ctx); err != nil {
			return err
		}
		if refuses {
			return &jsonrpc.Error{Code: -1, Message: "the user said no"}
		}
		return nil
	}
	return client.Options{
		Elicit: elicit, ElicitURL: func(ctx context.Context, s *client.Session, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return elicit(ctx, s, p)
		},
		Sample: func(ctx context.Context, _ *client.Session, _ *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			answer := &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("sampled")}}
			return answer, refused(ctx)
		},
		Roots: func(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
			return []protocol.Root{{URI: "file:///root"}}, refused(ctx)
		},
	}
}

// outcome says in a few words how a call has ended.
func outcome(result *protocol.CallToolResult, err error) string {
	var fault *jsonrpc.Error
	var unanswered *client.InputError
	switch {
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.As(err, &unanswered):
		return "not answered"
	case errors.As(err, &fault):
		return fmt.Sprintf("error %d", fault.Code)
	case err != nil:
		return err.Error()
	case result.InputRequired != nil:
		return "asks"
	case result.IsError:
		return "tool error"
	default:
		return result.Content.Text()
	}
}

// tampered makes a call by hand, and changes a byte of the state that comes with the question before it answers.
func tampered(ctx context.Context, session *client.Session, tool string) (*protocol.CallToolResult, error) {
	view := session.With(client.CallOptions{ManualInput: true})
	result, err := view.CallTool(ctx, &protocol.CallToolParams{Name: tool})
	if err != nil || result.InputRequired == nil {
		return result, err
	}
	state := *result.InputRequired.RequestState
	changed := flipped(state, len(state)/2)
	answers := protocol.InputResponses{}
	for key := range result.InputRequired.InputRequests {
		answers[key] = &protocol.ElicitResult{Action: protocol.ElicitAccept}
	}
	return view.CallTool(ctx, &protocol.CallToolParams{Name: tool, InputParams: protocol.InputParams{InputResponses: answers, RequestState: &changed}})
}

// runEra makes one call, and returns its outcome and how often the tool has run.
func runEra(t *testing.T, front, back, question, way string) (string, int) {
	s, runs := questioner()
	f := newFleet(t, back, map[string]*server.Server{"a": s})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := func(context.Context) error { return nil }
	switch way {
	case "leave":
		before = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
	case "late":
		before = func(ctx context.Context) error {
			select {
			case <-time.After(time.Hour):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	o := respondent(before, way == "decline")
	o.Calls.Timeout = -1
	session := f.client(front, o)
	var result *protocol.CallToolResult
	var err error
	if way == "tampered" && protocol.IsModern(front) {
		result, err = tampered(ctx, session, "a__"+question)
	} else {
		result, err = session.CallTool(ctx, &protocol.CallToolParams{Name: "a__" + question})
	}
	<-time.After(2 * time.Hour) // whatever has been left behind has ended
	synctest.Wait()
	return outcome(result, err), runs()
}

// Each kind of question has one outcome for each thing that can happen to it, in each pair of eras, and the server has run the call once.
//
// Guarantees: G-0088.5
func TestEraTable(t *testing.T) {
	var table strings.Builder
	eras := [][2]string{
		{protocol.LatestLegacy, protocol.LatestLegacy}, {protocol.LatestLegacy, protocol.Latest}, {protocol.Latest, protocol.LatestLegacy}, {protocol.Latest, protocol.Latest},
	}
	for _, row := range eraTable {
		var got []string
		for _, era := range eras {
			if row.way == "tampered" && protocol.IsLegacy(era[0]) {
				got = append(got, "-") // there is no state
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				outcome, runs := runEra(t, era[0], era[1], row.question, row.way)
				if got = append(got, outcome); runs != 1 {
					t.Errorf("%s, %s, %s to %s: the tool ran %d times", row.question, row.way, era[0], era[1], runs)
				}
			})
		}
		fmt.Fprintf(&table, "%-8s%-10s%s\n", row.question, row.way, strings.Join(got, " | "))
		if !slices.Equal(got, row.want[:]) {
			t.Errorf("%s, %s: got %q, want %q", row.question, row.way, got, row.want)
		}
	}
	t.Logf("question, what the client does: legacy to legacy | legacy to modern | modern to legacy | modern to modern\n%s", table.String())
}

// eraTable has a row for each question and what the client does. The outcomes are those from legacy to legacy, legacy to modern, modern to
// legacy, and modern to modern. A refusal of the model or of the roots is an error, which only a legacy server can be told; a modern one waits for
// an answer that never comes, so the call ends without it.
var eraTable = []struct {
	question, way string
	want          [4]string
}{
	{"form", "answer", [4]string{"accept", "accept", "accept", "accept"}},
	{"form", "decline", [4]string{"decline", "decline", "decline", "decline"}},
	{"form", "leave", [4]string{"cancelled", "cancelled", "cancelled", "cancelled"}},
	{"form", "late", [4]string{"tool error", "error -32603", "error -32602", "error -32602"}},
	{"form", "tampered", [4]string{"-", "-", "error -32602", "error -32602"}},
	{"URL", "answer", [4]string{"accept", "accept", "accept", "accept"}},
	{"URL", "decline", [4]string{"decline", "decline", "decline", "decline"}},
	{"URL", "leave", [4]string{"cancelled", "cancelled", "cancelled", "cancelled"}},
	{"URL", "late", [4]string{"tool error", "error -32603", "error -32602", "error -32602"}},
	{"URL", "tampered", [4]string{"-", "-", "error -32602", "error -32602"}},
	{"sample", "answer", [4]string{"sampled", "sampled", "sampled", "sampled"}},
	{"sample", "decline", [4]string{"tool error", "error -32603", "not answered", "not answered"}},
	{"sample", "leave", [4]string{"cancelled", "cancelled", "cancelled", "cancelled"}},
	{"sample", "late", [4]string{"tool error", "error -32603", "error -32602", "error -32602"}},
	{"sample", "tampered", [4]string{"-", "-", "error -32602", "error -32602"}},
	{"roots", "answer", [4]string{"file:///root", "file:///root", "file:///root", "file:///root"}},
	{"roots", "decline", [4]string{"tool error", "error -32603", "not answered", "not answered"}},
	{"roots", "leave", [4]string{"cancelled", "cancelled", "cancelled", "cancelled"}},
	{"roots", "late", [4]string{"tool error", "error -32603", "error -32602", "error -32602"}},
	{"roots", "tampered", [4]string{"-", "-", "error -32602", "error -32602"}},
	{"none", "answer", [4]string{"done", "done", "done", "done"}},
	{"none", "decline", [4]string{"done", "done", "done", "done"}},
	{"none", "leave", [4]string{"done", "done", "done", "done"}},
	{"none", "late", [4]string{"done", "done", "done", "done"}},
	{"none", "tampered", [4]string{"-", "-", "done", "done"}},
}
