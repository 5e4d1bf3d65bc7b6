package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// pending is what a client knows of a call that asks a question.
type pending struct {
	tool, state string
	used        bool
	expires     time.Time // of the question
}

// Two random clients begin calls, answer once or twice, cancel and stay silent.
// Whatever they do, each charge ends in exactly one refund or one shipment, no state is
// accepted twice, and every place becomes free again.
//
// Guarantees: G-0031.4, G-0031.7
func TestRandomRoundsHaveNoEffectTwice(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random, s := rand.New(rand.NewPCG(seed, 0)), new(shop)
			srv := s.server(server.Options{Asking: server.AskingOptions{MaxWaiting: 6, MaxWaitingPerClient: 4, Expiry: time.Minute}})
			clients := []*rawPeer{dial(t, srv), dial(t, srv)}
			var calls []*pending
			passed := 0
			for range 200 {
				w := clients[random.IntN(2)]
				w.link.Grant(transport.Main, 1) // one credit for each answer
				if random.IntN(3) == 0 || len(calls) == 0 {
					tool := []string{"three", "one_reruns"}[random.IntN(2)]
					if r := w.round(tool, ""); r.Error == nil {
						calls = append(calls, &pending{tool: tool, state: r.State, expires: time.Now().Add(time.Minute)})
					} else if !r.Error.is(jsonrpc.CodeOverloaded, "overloaded") {
						t.Fatalf("seed %d: got %+v, want the error %d with %q", seed, r.Error, jsonrpc.CodeOverloaded, "overloaded")
					}
					continue
				}
				call := calls[random.IntN(len(calls))]
				switch random.IntN(4) {
				case 0:
					pass(time.Duration(random.IntN(40)) * time.Second)
				default:
					answer := []string{yes, `"1":{"action":"decline"}`}[random.IntN(2)]
					r := w.round(call.tool, retryParams(call.state, answer))
					switch {
					case r.Error == nil && (call.used || !time.Now().Before(call.expires)):
						t.Fatalf("seed %d: got %+v for a state that was used or has expired, want an error", seed, r)
					case r.Error == nil:
						call.used = true
						passed++
					case !r.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state"):
						t.Fatalf("seed %d: got %+v", seed, r.Error)
					}
				}
				synctest.Wait()
				waiting := s.charges.Load() - s.refunds.Load() - s.shipments.Load()
				if waiting < 0 || waiting > 6 {
					t.Fatalf("seed %d: %d handlers wait, want 0 to 6", seed, waiting)
				}
			}
			pass(2 * time.Hour)
			synctest.Wait()
			if s.charges.Load() != s.refunds.Load()+s.shipments.Load() || passed < 5 {
				t.Errorf("seed %d: %d charges, %d refunds, %d shipments, %d retries passed; want as many charges as refunds and shipments, and 5 retries at least", seed, s.charges.Load(), s.refunds.Load(), s.shipments.Load(), passed)
			}
			for range 4 { // every place is free again
				if r := clients[0].round("three", ""); r.Error != nil {
					t.Errorf("seed %d: got %+v, want no error", seed, r.Error)
				}
			}
			if err := srv.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Waiting calls are limited in bytes. A large call takes the place of older calls of
// the same client, and never that of another client's call.
//
// Guarantees: G-0031.7
func TestLargeCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
