package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A story is what was told, by whom it was told: in either part the order is
// certain.
type story struct {
	mu            sync.Mutex
	callers, conn []string
}

func (s *story) tell(part *[]string, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*part = append(*part, fmt.Sprintf(format, args...))
}

// span is the context key of the call that a hook is told of.
type span struct{}

// hooks write down everything.
func (s *story) hooks() telemetry.Hooks {
	byCaller := func(ctx context.Context, format string, args ...any) {
		s.tell(&s.callers, "%v "+format, append([]any{ctx.Value(span{})}, args...)...)
	}
	return telemetry.Hooks{
		RequestStarted: func(ctx context.Context, e telemetry.RequestStarted) context.Context {
			ctx = context.WithValue(ctx, span{}, fmt.Sprint("span of ", e.ID))
			byCaller(ctx, "%s started, %d", e.Method, e.ID)
			return ctx
		},
		Retried: func(ctx context.Context, e telemetry.Retried) {
			byCaller(ctx, "%s retried after attempt %d, %d in %d: %s, %s, %v", e.Method, e.Attempt, e.ID, e.Epoch, e.Cause, e.Delivery, e.Err)
		},
		RequestStopped: func(ctx context.Context, e telemetry.RequestStopped) {
			byCaller(ctx, "%s stopped, %d, after %d: %s, %s, %v, %v", e.Method, e.ID, e.Attempts, e.Cause, e.Delivery, e.Duration, e.Err)
		},
		Transition: func(e telemetry.Transition) { s.tell(&s.conn, "%d %s → %s: %s", e.Epoch, e.From, e.To, e.Kind) },
		Gap: func(e telemetry.Gap) {
			s.tell(&s.conn, "gap from %d to %d of %v, %d calls, %s, %v", e.Lost, e.Epoch, e.Duration, e.Calls, e.Kind, e.Reason)
		},
		NotificationReceived: func(e telemetry.NotificationReceived) {
			s.tell(&s.conn, "%d received %s of %d bytes", e.Epoch, e.Method, e.Size)
		},
		LateReply:    func(e telemetry.Reply) { s.tell(&s.conn, "%d late reply to %d, %s", e.Epoch, e.ID, e.Cause) },
		UnknownReply: func(e telemetry.Reply) { s.tell(&s.conn, "%d unknown reply to %d", e.Epoch, e.ID) },
		Violation:    func(e telemetry.Violation) { s.tell(&s.conn, "%d violation", e.Epoch) },
	}
}

// The story of a server that is killed, from connect to close. The backoff has
// no jitter: it is clamped to one length.
//
// Guarantees: G-0024.1, G-0024.3, G-0024.4, G-0024.5
func TestStoryOfAKilledServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(story)
		r, _ := fatedRun(t, conn.Options{Name: "c", Hooks: s.hooks(), BackoffMin: time.Second, BackoffMax: time.Second}, answered, lost, answered, silence)
		if _, err := r.Call(t.Context(), conn.Request{Method: "first"}); err != nil {
			t.Error(err)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "second", Retries: 2, Repeatable: true}); err != nil {
			t.Error(err)
		}
		r.Call(t.Context(), conn.Request{Method: "third", Timeout: time.Second})
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		<-r.ended
		r.Call(t.Context(), conn.Request{Method: "fourth"})
		wantCallers := []string{
			"span of 1 first started, 1",
			"span of 1 first stopped, 1, after 1: answered, sent, 0s, <nil>",
			"span of 2 second started, 2",
			"span of 2 second retried after attempt 1, 2 in 1: link lost, unknown, link broken: EOF",
			"span of 2 second stopped, 3, after 2: answered, sent, 1s, <nil>",
			"span of 4 third started, 4",
			"span of 4 third stopped, 4, after 1: timed out, unknown, 1s, third: timed out (unknown): conn: request timed out",
			"span of 5 fourth started, 5",
			"span of 5 fourth stopped, 5, after 1: shut down, not sent, 0s, fourth: shut down (not sent): drained",
		}
		wantConn := []string{
			"1 starting → initializing: link opened",
			"1 initializing → ready: handshaken",
			"1 ready → backoff: link broken",
			"1 backoff → starting: retry due",
			"2 starting → initializing: link opened",
			"2 initializing → ready: handshaken",
			"gap from 1 to 2 of 1s, 1 calls, link broken, link broken: EOF",
			"2 ready → closing: drained",
		}
		if diff := cmp.Diff(wantCallers, s.callers); diff != "" {
			t.Errorf("the callers' part (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantConn, s.conn); diff != "" {
			t.Errorf("the connection's part (-want +got):\n%s", diff)
		}
	})
}

// Guarantees: G-0024.6
func TestLateRepliesSayHowTheirRequestsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := new(story)
		s := &script{}
		r := scripted(t, s, conn.Options{Hooks: told.hooks(), RequestTimeout: time.Second})
		wantEnd(t, <-r.calling(t.Context(), conn.Request{Method: "a"}), conn.TimedOut, conn.Unknown)
		ctx, cancel := context.WithCancel(t.Context())
		left := r.calling(ctx, conn.Request{Method: "b"})
		cancel()
		wantEnd(t, <-left, conn.Cancelled, conn.Unknown)
		told.conn = nil
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":2,"result":1}`, `{"jsonrpc":"2.0","id":1,"result":1}`,
			`{"jsonrpc":"2.0","id":7,"result":1}`, `{"jsonrpc":"2.0","method":"log","params":[1]}`,
		} {
			s.deliver(frame)
		}
		synctest.Wait()
		want := []string{"1 late reply to 2, cancelled", "1 late reply to 1, timed out", "1 unknown reply to 7", "1 received log of 3 bytes"}
		if diff := cmp.Diff(want, told.conn); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		r.Stop()
		<-r.ended
	})
}

// A gap lasts until there is a ready incarnation, however many fail to become
// one, and counts the calls of the one that was lost.
//
// Guarantees: G-0024.5
func TestGapIsToldOnceItIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var gaps []telemetry.Gap
		var s *script
		opens := 0
		var first *conn.Incarnation
		shakes := func(ctx context.Context, incarnation *conn.Incarnation) error {
			if first == nil {
				first = incarnation
			}
			if incarnation.Epoch() == 3 {
				_, err := incarnation.Call(ctx, conn.Request{Method: "hello"}) // lost as well, but not with the first
				return err
			}
			return nil
		}
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			if opens++; opens == 2 {
				return nil, errors.New("refused")
			}
			s = &script{onSend: func(_ *script, o transport.Outbound) error {
				if o.Tag == 0 {
					return transport.ErrBusy
				}
				return nil
			}}
			return s, nil
		}), conn.Options{
			Name: "c", Handshake: shakes, BackoffMin: time.Second, BackoffMax: time.Second,
			Hooks: telemetry.Hooks{Gap: func(g telemetry.Gap) { gaps = append(gaps, g) }},
		}))
		synctest.Wait()
		for range 3 {
			r.calling(t.Context(), conn.Request{Method: "m"})
		}
		go r.Notify(t.Context(), "n", nil) // waits for the link, and is no call
		synctest.Wait()
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		if _, err := first.Call(t.Context(), conn.Request{Method: "m"}); !conn.NotExecuted(err) { // not lost, but refused
			t.Error(err)
		}
		advance(2 * time.Second) // to the third attempt
		s.lose(transport.Loss{Reason: io.ErrUnexpectedEOF})
		advance(time.Second)
		if len(gaps) != 1 {
			t.Fatalf("told of %v", gaps)
		}
		g := gaps[0]
		if g.Conn != "c" || g.Lost != 1 || g.Epoch != 4 || g.Calls != 3 || g.Duration != 3*time.Second || g.Kind != string(conn.LinkBroken) || !errors.Is(g.Reason, io.EOF) {
			t.Errorf("told of %+v", g)
		}
		r.Stop()
		<-r.ended
	})
}

// After a panic of the loop the next Run tells of the gap, and what was for the
// incarnation before is for none.
//
// Guarantees: G-0003.14, G-0024.5
func TestGapOfAPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var gaps []telemetry.Gap
		panics := true
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			return &script{onSend: func(*script, transport.Outbound) error {
				if panics {
					panics = false
					panic("send")
				}
				return nil
			}}, nil
		}), conn.Options{Hooks: telemetry.Hooks{Gap: func(g telemetry.Gap) { gaps = append(gaps, g) }}})
		r := start(c)
		synctest.Wait()
		wantEnd(t, <-r.calling(t.Context(), conn.Request{Method: "m"}), conn.LinkLost, conn.Unknown)
		if err := <-r.ended; !errors.As(err, new(*conn.PanicError)) {
			t.Fatal(err)
		}
		if _, err := c.Call(t.Context(), conn.Request{Method: "m", Epoch: 1, WaitForReady: true}); !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) {
			t.Errorf("before it runs again: %v", err)
		}
		advance(time.Minute)
		again := start(c)
		synctest.Wait()
		if len(gaps) != 1 || gaps[0].Lost != 1 || gaps[0].Epoch != 2 || gaps[0].Calls != 1 || gaps[0].Duration != time.Minute || !errors.As(gaps[0].Reason, new(*conn.PanicError)) {
			t.Errorf("told of %+v", gaps)
		}
		again.Stop()
		<-again.ended
	})
}

// A hook that panics has missed its event, and nobody else notices.
//
// Guarantees: G-0024.1
func TestPanicOfAHookLosesOnlyItsEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := fatedRun(t, conn.Options{Hooks: telemetry.Hooks{
			RequestStarted:       func(context.Context, telemetry.RequestStarted) context.Context { panic("started") },
			Retried:              func(context.Context, telemetry.Retried) { panic("retried") },
			RequestStopped:       func(context.Context, telemetry.RequestStopped) { panic("stopped") },
			Transition:           func(telemetry.Transition) { panic("transition") },
			Gap:                  func(telemetry.Gap) { panic("gap") },
			NotificationReceived: func(telemetry.NotificationReceived) { panic("received") },
		}}, lost)
		if _, err := r.Call(t.Context(), conn.Request{Method: "m", Retries: 1, Repeatable: true}); err != nil {
			t.Error(err)
		}
		if stats := r.Stats(); stats.Calls != stats.Ended() {
			t.Errorf("the books do not balance: %+v", stats)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// The hooks' context is theirs alone: the call lives as long as its caller's.
//
// Guarantees: G-0024.3
func TestAContextOfTheHooksEndsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var found []any
		r, _ := fatedRun(t, conn.Options{Hooks: telemetry.Hooks{
			RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context {
				ended, end := context.WithCancel(context.WithValue(ctx, span{}, "mine"))
				end()
				return ended
			},
			RequestStopped: func(ctx context.Context, _ telemetry.RequestStopped) { found = append(found, ctx.Value(span{})) },
		}})
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Error(err)
		}
		if len(found) != 1 || found[0] != "mine" {
			t.Errorf("found %v", found)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0004.9
func TestStallIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []telemetry.Stalled
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{
			MaxNotifications: 4,
			Handler:          handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }},
			Hooks:            telemetry.Hooks{Stalled: func(e telemetry.Stalled) { told = append(told, e) }},
		})
		for range 4 { // one is with the handler; the next one finds the link not read
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		advance(3 * time.Second)
		close(release)
		synctest.Wait()
		switch {
		case len(told) != 2:
			t.Fatalf("told %+v", told)
		case told[0].Over || told[0].Why != conn.NotificationsWait.String() || !told[0].Since.Equal(time.Now().Add(-3*time.Second)):
			t.Errorf("began as %+v", told[0])
		case !told[1].Over || told[1].Duration != 3*time.Second || !told[1].Since.Equal(told[0].Since):
			t.Errorf("ended as %+v", told[1])
		case r.Stats().Stalls != 1:
			t.Errorf("%d are counted", r.Stats().Stalls)
		}
		r.Stop()
		<-r.ended
	})
}

func TestMissedProbesAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []int
		r := scripted(t, &script{}, conn.Options{
			Dialect: dialect{}, Liveness: time.Second,
			Hooks: telemetry.Hooks{Missed: func(e telemetry.Missed) { told = append(told, e.InRow) }},
		})
		advance(3 * time.Second)
		if len(told) != 2 || told[0] != 1 || told[1] != 2 || r.State() != conn.Backoff {
			t.Errorf("told %v, in %s", told, r.State())
		}
		r.Stop()
		<-r.ended
	})
}

func TestBusyRetriesAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []telemetry.BusyRetry
		refusals := 2
		s := &script{onSend: func(*script, transport.Outbound) error {
			if refusals--; refusals >= 0 {
				return transport.ErrBusy
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{Hooks: telemetry.Hooks{BusyRetry: func(e telemetry.BusyRetry) { told = append(told, e) }}})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		advance(time.Second)
		if len(told) != 2 || told[0].Attempts != 1 || told[1].Attempts != 2 || told[1].ID == 0 {
			t.Errorf("told %+v", told)
		}
		r.Stop()
		<-result
		<-r.ended
	})
}

// A hook that returns in time is not stuck, however many events wait for it when
// the Conn closes.
//
// Guarantees: G-0009.3
func TestCloseWhileEventsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told, s := 0, new(script)
		r := scripted(t, s, conn.Options{Handler: handler{}, Hooks: telemetry.Hooks{
			NotificationReceived: func(telemetry.NotificationReceived) { advance(40 * time.Millisecond); told++ },
		}})
		for range 10 {
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
		}
		synctest.Wait()
		began := time.Now()
		r.Stop()
		if err, took := <-r.ended, time.Since(began); err != nil || told != 3 || took != 120*time.Millisecond {
			t.Errorf("Run: %v after %v; %d events were told", err, took, told)
		}
	})
}

// A described transport knows where its peer is, its links which HTTP they speak, and its
// dialect the revision; or all of them panic when they are asked.
type described struct {
	transport.Transport
	panics bool
}

func (d described) say(what string) string {
	if d.panics {
		panic(what)
	}
	return what
}

func (d described) Endpoint() string { return d.say("https://far.test") }

func (d described) Open(ctx context.Context) (transport.Link, error) {
	link, err := d.Transport.Open(ctx)
	return describedLink{link, d}, err
}

type describedLink struct {
	transport.Link
	described
}

func (l describedLink) Network() transport.Network { return transport.Network{HTTP: l.say("2")} }

type describedDialect struct {
	dialect
	described
}

func (d describedDialect) Version() string { return d.say("2025-11-25") }

// Who counts sessions learns what the one was that has ended: from the transition out of
// ready, and from no other.
//
// Guarantees: G-0060.1
func TestATransitionDescribesWhatHasEnded(t *testing.T) {
	for _, panics := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var told []telemetry.Transition
			panicked := 0
			d := described{panics: panics}
			d.Transport = &fated{fates: []fate{answered}}
			r := start(conn.New(d, conn.Options{Dialect: describedDialect{described: d}, Hooks: telemetry.Hooks{
				Transition: func(e telemetry.Transition) { told = append(told, e) },
				Panic: func(e telemetry.Panic) {
					if e.Where == "Dialect.Version" || e.Where == "Transport.Endpoint" || e.Where == "Link.Network" {
						panicked++
					}
				},
			}}))
			synctest.Wait()
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			<-r.ended
			ended := 0
			for _, e := range told {
				got, want := [...]string{e.Version, e.Endpoint, e.HTTP}, [3]string{}
				if e.From == "ready" {
					if ended++; !panics {
						want = [...]string{"2025-11-25", "https://far.test", "2"}
					}
				}
				if got != want {
					t.Errorf("%s → %s is of %q, want %q", e.From, e.To, got, want)
				}
			}
			if ended != 1 || panics != (panicked == 3) {
				t.Errorf("%d sessions ended, and %d panics were told", ended, panicked)
			}
		})
	}
}
