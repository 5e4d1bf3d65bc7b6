package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Waiting calls are limited in bytes. A large call takes the place of older calls of
// the same client, and never that of another client's call.
//
// Guarantees: G-0031.7
func TestLargeCallsThatWaitAreBounded(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		ended := make(chan string, 100)
		s := newServer(server.Options{Asking: server.AskingOptions{MaxWaitingBytes: 1 << 20}})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, in struct{ Who, Text string }) (string, error) {
			err := server.Confirm(ctx, "Sure?")
			if err != nil {
				ended <- in.Who
			}
			return in.Who, err
		}, server.Asks(server.Waits, forms))
		ada, eve := dial(t, s), dial(t, s)
		arguments := func(who string, bytes int) string {
			return fmt.Sprintf(`,"arguments":{"Who":%q,"Text":%q}`, who, strings.Repeat("x", bytes))
		}
		mine := ada.round("t", arguments("ada", 10))
		for range 20 {
			if r := eve.round("t", arguments("eve", 200<<10)); r.Error != nil && !r.Error.is(jsonrpc.CodeOverloaded, "overloaded") {
				t.Fatalf("got %+v", r.Error)
			}
		}
		synctest.Wait()
		if got := ada.round("t", arguments("ada", 10)+retryParams(mine.State, yes)); !strings.Contains(got.Text, "ada") {
			t.Errorf("got %+v, want %q in it", got, "ada")
		}
		for len(ended) > 0 {
			if who := <-ended; who != "eve" {
				t.Errorf("the call of %s was ended, want only calls of eve ended", who)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Questions that a handler asks from several goroutines at once are asked one after the
// other, and each goroutine gets its own answer.
func TestQuestionsFromGoroutinesAreAllAsked(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			answers := make([]string, 3)
			var asking sync.WaitGroup
			for i := range answers {
				asking.Go(func() {
					key := fmt.Sprint("k", i)
					got, err := server.Ask(ctx, question(key))
					answers[i] = fmt.Sprint(textOf(got, key), err)
				})
			}
			asking.Wait()
			return strings.Join(answers, " "), nil
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		r, asked := w.round("t", ""), 0
		for ; len(r.Keys) > 0; asked++ {
			var answers []string
			for _, key := range r.Keys {
				answers = append(answers, fmt.Sprintf(`%q:{"action":"accept","content":{%q:"%s!"}}`, key, key, key))
			}
			r = w.round("t", retryParams(r.State, strings.Join(answers, ",")))
			if asked > 5 {
				t.Fatal("the tool still asks after 6 rounds, want it to end")
			}
		}
		if !strings.Contains(r.Text, "k0!<nil> k1!<nil> k2!<nil>") {
			t.Errorf("got %+v after %d rounds", r, asked)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
