package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// The sample of a Conn has the counts of its Stats, and the time of its outages, which grows while one lasts.
//
// Guarantees: G-0024.10
func TestSampleOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Name: "c", BackoffMin: 2 * time.Second, BackoffMax: 2 * time.Second}}, answered, lost, silence)
		read := func() *telemetry.ConnSample {
			t.Helper()
			s := r.Control().Sample()
			if s.Name != "c" || s.Conn == nil || s.Supervisor != nil || s.Gate != nil || s.HTTP != nil {
				t.Fatalf("got %+v, want the sample of a Conn only", s)
			}
			sum := s.Conn.InFlight
			for _, settled := range s.Conn.Settled {
				sum += settled.Count
			}
			if sum != s.Conn.Calls {
				t.Errorf("%d calls are settled or in flight, want %d: %+v", sum, s.Conn.Calls, s.Conn)
			}
			return s.Conn
		}
		if s := read(); s.State != "ready" || s.Epoch != 1 || s.Outage != 0 || s.Calls != 0 || s.BytesOut != 0 {
			t.Errorf("at the start: %+v, want ready in epoch 1 without calls", s)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Error(err)
		}
		const frame = `{"jsonrpc":"2.0","id":1,"method":"m"}`
		if s := read(); s.Calls != 1 || s.InFlight != 0 || s.BytesOut != uint64(len(frame)) || s.BytesIn == 0 ||
			len(s.Settled) != 1 || s.Settled[0] != (telemetry.Settled{Cause: "answered", Delivery: "sent", Count: 1}) {
			t.Errorf("after a call: %+v, want one that was answered", s)
		}
		r.Call(t.Context(), conn.Request{Method: "m"}) // this call loses the link
		advance(time.Second)
		if s := read(); s.State != "backoff" || s.Kind != string(conn.LinkBroken) || s.Outage != time.Second || s.NextAttempt.IsZero() {
			t.Errorf("in backoff: %+v, want LinkBroken and an outage of 1s", s)
		}
		advance(2 * time.Second)
		waiting := r.calling(t.Context(), conn.Request{Method: "m"})
		synctest.Wait()
		if s := read(); s.State != "ready" || s.Outage != 2*time.Second || s.InFlight != 1 || s.Pending != 1 || s.Calls != 3 || !s.NextAttempt.IsZero() {
			t.Errorf("when it is ready again: %+v, want an outage of 2s and 3 calls, one pending", s)
		}
		r.Stop()
		<-waiting
		<-r.ended
		advance(time.Minute)
		if s := read(); s.State != "closing" || s.Outage != 2*time.Second || s.InFlight != 0 || s.Pending != 0 {
			t.Errorf("at the end: %+v, want closing, an outage of 2s and no call", s)
		}
	})
}

// An outage ends when the Conn ends.
//
// Guarantees: G-0024.10
func TestOutageEndsWithTheConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(script)
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour}})
		s.lose(transport.Loss{Reason: io.EOF})
		advance(time.Minute)
		r.Stop()
		<-r.ended
		advance(time.Hour)
		if outage := r.Control().Sample().Conn.Outage; outage != time.Minute {
			t.Errorf("the outage is %v, want 1m", outage)
		}
	})
}

// The sample has the credit that the link still has, and the reason and number of stalls.
//
// Guarantees: G-0024.10
func TestSampleOfAStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{
			Handler: handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }},
			Tuning: conn.Tuning{
				MaxNotifications: 4,
				Credit:           8,
			},
		})
		for delivered := range 4 {
			if credit := r.Control().Sample().Conn.Credit; credit != s.credit()-delivered {
				t.Errorf("the credit is %d, want %d", credit, s.credit()-delivered)
			}
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		if credit := r.Control().Sample().Conn.Credit; credit != s.credit()-4 || credit >= 8 {
			t.Errorf("during a stall the credit is %d, want %d, less than 8", credit, s.credit()-4)
		}
		if sample := r.Control().Sample().Conn; sample.Stall != conn.NotificationsWait.String() || sample.Stalls != 1 || sample.BytesIn != 4*30 {
			t.Errorf("during a stall: %+v, want NotificationsWait and 120 bytes", sample)
		}
		close(release)
		synctest.Wait()
		if sample := r.Control().Sample().Conn; sample.Stall != "" || sample.Stalls != 1 || sample.Credit != 8 {
			t.Errorf("after the stall: %+v, want no stall and a credit of 8", sample)
		}
		r.Stop()
		<-r.ended
		if credit := r.Control().Sample().Conn.Credit; credit != 0 {
			t.Errorf("at the end the credit is %d, want 0", credit)
		}
	})
}

// The statistics of a gate are how many Conns hold a place and how many wait.
func TestStatsOfAGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := &conn.Gate{Places: 1, Hold: time.Hour}
		if stats := gate.Stats(); stats != (telemetry.GateSample{}) {
			t.Errorf("at the start: %+v, want zero", stats)
		}
		stuck := opening(func(ctx context.Context) (transport.Link, error) { <-ctx.Done(); return nil, ctx.Err() })
		runs := []run{start(conn.New(stuck, conn.Options{Tuning: conn.Tuning{Gate: gate}})), start(conn.New(stuck, conn.Options{Tuning: conn.Tuning{Gate: gate}}))}
		synctest.Wait()
		if stats := gate.Stats(); stats != (telemetry.GateSample{Holding: 1, Waiting: 1}) {
			t.Errorf("while two connect: %+v, want one holding and one waiting", stats)
		}
		for _, r := range runs {
			r.Stop()
			<-r.ended
		}
		if stats := gate.Stats(); stats != (telemetry.GateSample{}) {
			t.Errorf("at the end: %+v, want zero", stats)
		}
	})
}

// A sample counts the bytes of all frames that have come in, also of those that are no messages, and of the frames that the link has taken.
func TestASampleCountsTheBytesThatTravelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(s *script, o transport.Outbound) error {
			if o.Route.Method == "refused" {
				return transport.ErrBusy
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{Name: "c"}})
		began := time.Now()
		s.deliver(`Server started`)
		if err := r.TryNotify(t.Context(), "refused", nil); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("TryNotify returned %v, want %v", err, transport.ErrBusy)
		}
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
		s.deliver(answer)
		if err := <-result; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		want := telemetry.ConnSample{
			State: "ready", Kind: "handshaken", Since: began, Epoch: 1, Credit: 1, Calls: 1, Settled: []telemetry.Settled{{Cause: "answered", Delivery: "sent", Count: 1}}, Malformed: 1,
			BytesIn: uint64(len(`Server started` + answer)), BytesOut: uint64(len(s.frames()[0])),
		}
		got := *r.Control().Sample().Conn
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		r.Stop()
		<-r.ended
	})
}
