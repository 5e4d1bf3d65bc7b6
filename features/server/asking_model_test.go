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

// A pending call is what a client knows of a call that asks.
type pending struct {
	tool, state string
	used        bool
	expires     time.Time // of the question
}

// Random clients begin calls, answer, answer twice, cancel and stay away. Whatever
// they do, no effect happens twice: each charge ends in one refund or one shipment,
// no state is taken twice, and every place is given back.
//
// Guarantees: G-0031.4, G-0031.7
func TestRandomRoundsHaveNoEffectTwice(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random, s := rand.New(rand.NewPCG(seed, 0)), new(shop)
			srv := s.server(server.Options{Asking: server.AskingOptions{MaxWaiting: 6, MaxWaitingPerClient: 4, Expiry: time.Minute}})
			clients := []*wire{dial(t, srv), dial(t, srv)}
			var calls []*pending
			passed := 0
			for range 200 {
				w := clients[random.IntN(2)]
				w.link.Grant(transport.Main, 1) // for each answer one
				if random.IntN(3) == 0 || len(calls) == 0 {
					tool := []string{"three", "one reruns"}[random.IntN(2)]
					if r := w.round(tool, ""); r.Error == nil {
						calls = append(calls, &pending{tool: tool, state: r.State, expires: time.Now().Add(time.Minute)})
					} else if !r.Error.is(jsonrpc.CodeOverloaded, "overloaded") {
						t.Fatalf("seed %d: got %+v", seed, r.Error)
					}
					continue
				}
				call := calls[random.IntN(len(calls))]
				switch random.IntN(4) {
				case 0:
					pass(time.Duration(random.IntN(40)) * time.Second)
				default:
					answer := []string{yes, `"1":{"action":"decline"}`}[random.IntN(2)]
					r := w.round(call.tool, again(call.state, answer))
					switch {
					case r.Error == nil && (call.used || !time.Now().Before(call.expires)):
						t.Fatalf("seed %d: a state that was used or has expired passed: %+v", seed, r)
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
					t.Fatalf("seed %d: %d handlers wait", seed, waiting)
				}
			}
			pass(2 * time.Hour)
			synctest.Wait()
			if s.charges.Load() != s.refunds.Load()+s.shipments.Load() || passed < 5 {
				t.Errorf("seed %d: %d charges, %d refunds, %d shipments; %d passed", seed, s.charges.Load(), s.refunds.Load(), s.shipments.Load(), passed)
			}
			for range 4 { // every place is there again
				if r := clients[0].round("three", ""); r.Error != nil {
					t.Errorf("seed %d: got %+v", seed, r.Error)
				}
			}
			if err := srv.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What waits is bounded in bytes: large arguments take the places of older calls of
// the same client, and never those of another.
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
		if got := ada.round("t", arguments("ada", 10)+again(mine.State, yes)); !strings.Contains(got.Text, "ada") {
			t.Errorf("got %+v", got)
		}
		for len(ended) > 0 {
			if who := <-ended; who != "eve" {
				t.Errorf("the call of %s was ended", who)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Questions that a handler asks from several goroutines wait for each other.
func TestQuestionsFromGoroutinesAreAllAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			answers := make([]string, 3)
			var asking sync.WaitGroup
			for i := range answers {
				asking.Go(func() {
					key := fmt.Sprint("k", i)
					got, err := server.Ask(ctx, named(key))
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
			r = w.round("t", again(r.State, strings.Join(answers, ",")))
			if asked > 5 {
				t.Fatal("it asks without an end")
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
