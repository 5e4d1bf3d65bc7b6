package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// says returns the options of a client whose user gives the same answer to every question.
func says(answer func() (*protocol.ElicitResult, error)) mcptest.Options {
	return mcptest.Options{Client: client.Options{
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return answer()
		},
	}}
}

func yes() (*protocol.ElicitResult, error) { return client.Accept(nil) }

// A tool is a Go function, which you can test without MCP. This test calls it through a
// client, once in a legacy revision and once in 2026-07-28.
func TestBook(t *testing.T) {
	mcptest.Eras(t, newServer(), says(yes), func(t *testing.T, session *client.Session) {
		if got, err := dinner(t.Context(), session); err != nil || got != "booked for 4 at 19:30:00" {
			t.Errorf("got %q, %v", got, err)
		}
		_, err := client.Call[string](t.Context(), session, "book", Table{People: 13, Time: "19:30:00"})
		if failed := new(client.ToolError); !errors.As(err, &failed) {
			t.Errorf("a table for 13: got %v", err)
		}
	})
}

func TestNobodyIsBookedWithoutConsent(t *testing.T) {
	mcptest.Eras(t, newServer(), says(client.Decline), func(t *testing.T, session *client.Session) {
		if got, err := dinner(t.Context(), session); err == nil {
			t.Errorf("got %q", got)
		}
	})
}

// The test compares every message of the conversation with a file that people can review.
func TestConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says(yes)
		o.Through = func(inner transport.Transport) transport.Transport {
			return mcptest.Record(t, inner, filepath.Join("testdata", "dinner.txt"))
		}
		if _, err := dinner(t.Context(), mcptest.Connect(t, newServer(), o)); err != nil {
			t.Error(err)
		}
	})
}

// A client without a server: the recorded server answers.
func TestDinnerWithARecordedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := mcptest.Script(t, filepath.Join("testdata", "dinner.txt"))
		session, err := client.New(protocol.Implementation{Name: "mcptest", Version: "1"}, says(yes).Client).Connect(t.Context(), recorded)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.Background())
		if got, err := dinner(t.Context(), session); err != nil || got != "booked for 4 at 19:30:00" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// The connection breaks during a call. Nobody knows whether the server ran the call, so
// it is not retried, and the error says so. The session reconnects by itself. Inside
// synctest, the pause before it reconnects takes no real time.
func TestDinnerOverABadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := says(yes)
		o.Through = func(inner transport.Transport) transport.Transport {
			return fault.New(inner, fault.Plan{Faults: []fault.Fault{
				{Kind: fault.Die, Direction: fault.Outbound, Link: 1, At: []int{2}}, // the second frame is the call
			}})
		}
		session := mcptest.Connect(t, newServer(), o)
		if got, err := dinner(t.Context(), session); !errors.Is(err, client.ErrLost) || client.NotExecuted(err) {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := dinner(t.Context(), session); err != nil || got != "booked for 4 at 19:30:00" {
			t.Errorf("the next one: got %q, %v", got, err)
		}
	})
}
