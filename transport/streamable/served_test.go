package streamable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// wantHeld checks how much requests hold that are served.
func (s *served) wantHeld(t testing.TB, want int) {
	t.Helper()
	if got := s.small.Held() + s.medium.Held() + s.large.Held() + s.open.Held(); got != want {
		t.Errorf("requests that are served hold %d, want %d", got, want)
	}
}

// costOfBody returns what a request counts.
func costOfBody(t *testing.T, text string) int {
	t.Helper()
	items, err := jsonrpc.DecodeBatch([]byte(text), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cost := len(text)
	for _, item := range items {
		cost += int(item.Message.Memory)
	}
	return cost
}

// valuesOf returns a member with so many values.
func valuesOf(n int) string { return `"values":[` + strings.Repeat("0,", n-1) + "0]," }

// legacyHold returns a request of a session that gets no answer by itself.
func legacyHold(more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"hold","params":{%s"a":1}}`, more)
}

// A request counts its bytes and what its values take, until its receiver releases that, whether it has been answered or its
// stream was ended. A batch counts what all its messages do.
//
// Guarantees: G-0083.11
func TestRequestsHoldRoomUntilTheirReceiverReleasesIt(t *testing.T) {
	listen := `"notifications":{"resourceSubscriptions":["a:0"` + strings.Repeat(`,"a:1"`, 9_999) + `]},`
	for name, test := range map[string]struct {
		version, body string
		lines         []string
		large         bool
	}{
		"modern":          {"", modernBody("hold", ""), modernHeader("hold"), false},
		"modern, large":   {"", modernBody("hold", valuesOf(100_000)), modernHeader("hold"), true},
		"10,000 URIs":     {"", modernBody("subscriptions/listen", listen), modernHeader("subscriptions/listen"), true},
		"session":         {"2025-06-18", legacyHold(""), nil, false},
		"session, large":  {"2025-11-25", legacyHold(valuesOf(2000)), nil, true},
		"session, batch":  {"2025-03-26", "[" + legacyHold("") + strings.Repeat(","+legacyHold(valuesOf(100)), 10) + "]", nil, false},
		"session, events": {"2025-03-26", legacyHold(""), nil, false},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", ends), func(t *testing.T) {
				inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
					lines := test.lines
					if test.version != "" {
						session := b.initialize()
						if test.version != "2025-11-25" {
							w, done := b.serve(t.Context(), "POST", initializeBody(test.version))
							<-done
							session = "Mcp-Session-Id: " + w.Header().Get("Mcp-Session-Id")
						}
						lines = []string{session}
					}
					w, done := b.serve(t.Context(), "POST", test.body, lines...)
					p, cost := b.peer(t, b.links()-1), costOfBody(t, test.body)
					b.handler.served.wantHeld(t, cost)
					pools := b.handler.served
					if got := pools.medium.Held()+pools.large.Held()+pools.open.Held() > 0; got != test.large {
						t.Errorf("it counts as a large one: %t, want %t", got, test.large)
					}
					if got := pools.open.Held() > 0; got != (name == "10,000 URIs") {
						t.Errorf("it counts as one that stays open: %t", got)
					}
					if held := b.handler.bodies.held(); held > 0 {
						t.Errorf("a body that was delivered holds %d", held)
					}
					p.mustSend(t, transport.Outbound{Stream: p.newest(), Frame: notice(1)})
					pass(time.Minute)
					b.handler.served.wantHeld(t, cost)
					if ends {
						p.post(func() { p.link.End(p.newest()) })
					} else {
						p.mustSend(t, answering(p.newest(), heldAnswer))
					}
					if <-done; w.Code != 200 {
						t.Errorf("got %d %s", w.Code, w.Body)
					}
					b.handler.served.wantHeld(t, cost)
					for range 2 {
						p.returned(0)
						b.handler.served.wantHeld(t, 0)
					}
				})
			})
		}
	}
}

// The request of a client that has left holds room until its receiver releases it, however the request ends.
//
// Guarantees: G-0083.11
func TestRequestsOfClientsThatLeaveHoldRoom(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *bench, *peer){
		"answered": func(t *testing.T, _ *bench, p *peer) {
			if err := p.send(t, transport.Outbound{Stream: p.newest(), Frame: notice(1)}); !errors.Is(err, transport.ErrNoRoute) {
				t.Errorf("a notification: %v", err)
			}
			p.link.(*serverLink).served.wantHeld(t, costOfBody(t, legacyHold("")))
			if err := p.send(t, answering(p.newest(), heldAnswer)); !errors.Is(err, transport.ErrNoRoute) {
				t.Errorf("the answer: %v", err)
			}
		},
		"ended": func(_ *testing.T, _ *bench, p *peer) { p.post(func() { p.link.End(p.newest()) }) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
				session := b.initialize()
				ctx, leave := context.WithCancel(t.Context())
				_, done := b.serve(ctx, "POST", legacyHold(""), session)
				leave()
				<-done
				p := b.peer(t, 0)
				b.handler.served.wantHeld(t, costOfBody(t, legacyHold("")))
				end(t, b, p)
				synctest.Wait()
				b.handler.served.wantHeld(t, costOfBody(t, legacyHold("")))
				p.returned(0)
				b.handler.served.wantHeld(t, 0)
			})
		})
	}
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		ctx, leave := context.WithCancel(t.Context())
		_, done := b.serve(ctx, "POST", modernBody("hold", ""), modernHeader("hold")...)
		leave()
		<-done
		p := b.peer(t, 0)
		if lost := p.count(func(p *peer) int { return len(p.lost) }); lost != 1 {
			t.Errorf("%d streams were lost, want 1", lost)
		}
		b.handler.served.wantHeld(t, costOfBody(t, modernBody("hold", "")))
		p.returned(0)
		b.handler.served.wantHeld(t, 0)
	})
}

// A request whose client comes back for the answer holds room all the time.
//
// Guarantees: G-0083.11
func TestResumedRequestsHoldRoom(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session, cost := b.initialize(), costOfBody(t, legacyHold(""))
		ctx, leave := context.WithCancel(t.Context())
		_, done := b.serve(ctx, "POST", legacyHold(""), session)
		pass(2 * time.Second) // its response begins, with the id of an event
		leave()
		<-done
		b.handler.served.wantHeld(t, cost)
		w, resumed := b.serve(t.Context(), "GET", "", session, "Last-Event-ID: 2-0")
		b.handler.served.wantHeld(t, cost)
		p := b.peer(t, 0)
		p.mustSend(t, answering(p.newest(), heldAnswer))
		<-resumed
		if !strings.Contains(w.Body.String(), heldAnswer) {
			t.Errorf("got %d %q, want the answer", w.Code, w.Body)
		}
		b.handler.served.wantHeld(t, cost)
		p.returned(0)
		b.handler.served.wantHeld(t, 0)
	})
}

// What requests hold is limited, for all links together and for each client. A large request beyond that waits, and is
// refused after 10 s without being delivered; others may take what is free, and small ones never wait for it.
//
// Guarantees: G-0083.12
func TestServedRequestsAreBounded(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 24 << 20, Identify: byUser}, false, func(t *testing.T, b *bench) {
		large := modernBody("hold", valuesOf(80_000)) // it counts 3 MB
		hold := func(user string) (status func() int, isOver func() bool) {
			w, done := b.serve(t.Context(), "POST", large, append(modernHeader("hold"), userHeader(user))...)
			return func() int {
				<-done
				if text := w.Body.String(); w.Code == 503 && (!strings.Contains(text, "-32050") || w.Header().Get("Retry-After") == "") {
					t.Errorf("got %s, %v", text, w.Header())
				}
				return w.Code
			}, func() bool { return wait.IsClosed(done) }
		}
		first, _ := hold("greedy")
		second, _ := hold("greedy")
		begun := time.Now()
		refused, _ := hold("greedy")
		p := b.peer(t, 0)
		if got := p.count(func(p *peer) int { return len(p.received) }); got != 2 {
			t.Errorf("%d requests of one client are delivered, want 2 within half of 12 MiB", got)
		}
		other, isOver := hold("other")
		if got := b.peer(t, 1).count(func(p *peer) int { return len(p.received) }); got != 1 {
			t.Error("a large request of another client was not delivered at once")
		}
		w, done := b.serve(t.Context(), "POST", modernBody("echo", ""), append(modernHeader("echo"), userHeader("greedy"))...)
		if <-done; w.Code != 200 || time.Since(begun) > 0 {
			t.Errorf("a small request: got %d after %v, want 200 at once", w.Code, time.Since(begun))
		}
		if got := refused(); got != 503 || time.Since(begun) != requestPatience {
			t.Errorf("got %d after %v, want 503 after %v", got, time.Since(begun), requestPatience)
		}
		if got := p.count(func(p *peer) int { return len(p.received) }); got != 3 {
			t.Errorf("%d requests of one client were delivered, want 3: two large ones and a small one", got)
		}
		if isOver() {
			t.Fatal("a request that holds room has ended, want that it does not while others wait")
		}
		b.peer(t, 1).post(func() { b.peer(t, 1).link.End(1) })
		b.peer(t, 1).returned(0)
		other()
		waiting, _ := hold("greedy")
		p.mustSend(t, answering(1, heldAnswer))
		synctest.Wait()
		if got := p.count(func(p *peer) int { return len(p.received) }); got != 3 {
			t.Fatal("a request was delivered while the handlers of two others run")
		}
		p.returned(2)
		synctest.Wait()
		if got := p.count(func(p *peer) int { return len(p.received) }); got != 4 {
			t.Fatal("a request was not delivered when another one had been answered")
		}
		for stream := range transport.Stream(3) {
			p.post(func() { p.link.End(stream + 2) })
		}
		if first() != 200 || second() != 200 || waiting() != 200 {
			t.Error("the requests were not answered")
		}
		p.returned(0)
		b.handler.served.wantHeld(t, 0)
	})
}

// A request that waits for room is given up when its client leaves, and refused when the handler closes. A request counts at most
// half of the room for large ones.
//
// Guarantees: G-0083.12
func TestRequestsThatWaitForRoomGiveUp(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 1 << 20}, false, func(t *testing.T, b *bench) {
		huge := modernBody("hold", valuesOf(50_000))
		_, first := b.serve(t.Context(), "POST", huge, modernHeader("hold")...)
		p := b.peer(t, 0)
		if held := b.handler.served.large.Held(); held != 256<<10 {
			t.Errorf("a request with 50,000 values holds %d of 512 KiB, want half", held)
		}
		begun := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		_, second := b.serve(ctx, "POST", huge, modernHeader("hold")...)
		leave()
		<-second
		refused, third := b.serve(t.Context(), "POST", huge, modernHeader("hold")...)
		b.handler.stop()
		if <-third; said(refused) != saysBusy(`"id":7,`, "overloaded: shutting down") || time.Since(begun) > 0 {
			t.Errorf("got %d when the handler stops, after %v, want 503 at once, as for a client that leaves", refused.Code, time.Since(begun))
		}
		if got := p.count(func(p *peer) int { return len(p.received) }); got != 1 {
			t.Errorf("%d requests were delivered, want 1", got)
		}
		p.post(func() { p.link.End(1) })
		<-first
	})
}

// The largest request is served beside others, and those that stay open leave room for it, however many there are. Those
// that take all of its room keep no smaller one waiting.
//
// Guarantees: G-0083.12
func TestTheLargestRequestIsServedBesideOthers(t *testing.T) {
	inBubble(t, HandlerOptions{Identify: byUser}, false, func(t *testing.T, b *bench) {
		listen := modernBody("subscriptions/listen", `"notifications":{"resourceSubscriptions":["a:0"`+strings.Repeat(`,"a:1"`, 9_999)+`]},`)
		opened := 0
		for user := range 100 {
			w, done := b.serve(t.Context(), "POST", listen, append(modernHeader("subscriptions/listen"), userHeader(fmt.Sprint(user)))...)
			if !wait.IsClosed(done) {
				opened++
			} else if said(w) != saysBusy(`"id":7,`, "overloaded: too much is being served") {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
		}
		if opened < 4 || opened > 30 {
			t.Errorf("%d of 100 large requests that stay open are, want 4 to 30", opened)
		}
		b.serve(t.Context(), "POST", modernBody("hold", valuesOf(10_000)), append(modernHeader("hold"), userHeader("with one"))...)
		largest := modernBody("hold", valuesOf(1_000_000))
		links := b.links()
		b.serve(t.Context(), "POST", largest, append(modernHeader("hold"), userHeader("good"))...)
		if p := b.peer(t, links); p.count(func(p *peer) int { return len(p.received) }) != 1 {
			t.Error("the largest request was not delivered at once")
		}
		b.serve(t.Context(), "POST", largest, append(modernHeader("hold"), userHeader("first"))...)
		waits, done := b.serve(t.Context(), "POST", largest, append(modernHeader("hold"), userHeader("second"))...)
		small, _ := b.serve(t.Context(), "POST", modernBody("hold", valuesOf(10_000)), append(modernHeader("hold"), userHeader("third"))...)
		if got := b.peer(t, b.links()-1).count(func(p *peer) int { return len(p.received) }); got != 1 || small.Code != 200 {
			t.Error("a smaller request waits for those that are larger")
		}
		begun := time.Now()
		if <-done; said(waits) != saysBusy(`"id":7,`, "overloaded: too much is being served") || time.Since(begun) > requestPatience {
			t.Errorf("another of the largest: got %d after %v, want 503 within %v", waits.Code, time.Since(begun), requestPatience)
		}
	})
}

// A request that gets room when its link has ended holds none, and a batch that is decoded twice counts once.
//
// Guarantees: G-0083.11
func TestRequestsThatAreNotServedHoldNoRoom(t *testing.T) {
	inBubble(t, HandlerOptions{MaxHeld: 1 << 20}, false, func(t *testing.T, b *bench) {
		huge, session := legacyHold(valuesOf(50_000)), b.initialize()
		_, first := b.serve(t.Context(), "POST", huge, session)
		refused, second := b.serve(t.Context(), "POST", huge, session)
		b.peer(t, 0).link.Close(0)
		<-first
		if <-second; said(refused) != saysBusy(`"id":5,`, "overloaded: shutting down") {
			t.Errorf("got %d %s", refused.Code, refused.Body)
		}
		b.handler.served.wantHeld(t, 0)
	})
	batch := &body{frame: []byte("[" + legacyHold("") + "," + legacyHold("") + "]")}
	for range 2 {
		if refused := batch.decodeBatch(); refused != nil || len(batch.frame)+int(batch.Memory) != costOfBody(t, string(batch.frame)) {
			t.Errorf("got %v, and a batch that counts %d", refused, batch.Memory)
		}
	}
}

// What a request takes is counted until its handler has returned, if that ignores that its client has cancelled the request, has
// left or has ended the session.
//
// Guarantees: G-0083.11
func TestHandlersThatIgnoreTheEndHoldRoom(t *testing.T) {
	for name, version := range map[string]string{"modern, disconnected": "2026-07-28", "deleted": "2025-06-18", "cancelled": "2025-06-18", "link lost": "2025-06-18"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOccupied(0)
				exchange := func(ctx context.Context, method, body string, lines ...string) {
					o.ServeHTTP(httptest.NewRecorder(), newRequest(method, body, lines...).WithContext(ctx))
				}
				session := o.begin(version)
				body, lines := o.callBody(version, 5, session)
				cost := costOfBody(t, body)
				ctx, leave := context.WithCancel(t.Context())
				go exchange(ctx, "POST", body, lines...)
				handler := <-o.began
				o.served.wantHeld(t, cost)
				switch name {
				case "modern, disconnected":
					leave()
				case "cancelled":
					go exchange(t.Context(), "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, headerSession+": "+session)
				case "deleted":
					go exchange(t.Context(), "DELETE", "", headerSession+": "+session)
				default:
					o.conns[0].Stop()
				}
				<-handler.Done()
				pass(time.Hour)
				o.served.wantHeld(t, cost)
				close(o.release)
				synctest.Wait()
				o.served.wantHeld(t, 0)
				leave()
				o.Close(time.Second)
			})
		})
	}
}

// A cancelling dialect reads notifications/cancelled.
type cancelling struct{ batching }

func (cancelling) Classify(m jsonrpc.Message) conn.Class {
	var params struct{ RequestID int64 }
	if m.Method != protocol.NotificationCancelled || json.Unmarshal(m.Params, &params) != nil {
		return conn.Class{}
	}
	return conn.Class{Kind: conn.Cancellation, Request: jsonrpc.IntegerID(params.RequestID)}
}
