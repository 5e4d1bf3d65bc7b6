package conn_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A sample has the counts of Stats, and an outage that grows while it lasts.
//
// Guarantees: G-0024.10
func TestSampleOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{Name: "c", BackoffMin: 2 * time.Second, BackoffMax: 2 * time.Second}, answered, lost, silence)
		read := func() *telemetry.ConnSample {
			t.Helper()
			s := r.Sample()
			if s.Name != "c" || s.Conn == nil || s.Supervisor != nil || s.Gate != nil || s.HTTP != nil {
				t.Fatalf("sample %+v", s)
			}
			sum := s.Conn.InFlight
			for _, settled := range s.Conn.Settled {
				sum += settled.Count
			}
			if sum != s.Conn.Calls {
				t.Errorf("the books do not balance: %+v", s.Conn)
			}
			return s.Conn
		}
		if s := read(); s.State != "ready" || s.Epoch != 1 || s.Outage != 0 || s.Calls != 0 || s.BytesOut != 0 {
			t.Errorf("at the start %+v", s)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Error(err)
		}
		const frame = `{"jsonrpc":"2.0","id":1,"method":"m"}`
		if s := read(); s.Calls != 1 || s.InFlight != 0 || s.BytesOut != uint64(len(frame)) || s.BytesIn == 0 ||
			len(s.Settled) != 1 || s.Settled[0] != (telemetry.Settled{Cause: "answered", Delivery: "sent", Count: 1}) {
			t.Errorf("after a call %+v", s)
		}
		r.Call(t.Context(), conn.Request{Method: "m"}) // it is lost
		advance(time.Second)
		if s := read(); s.State != "backoff" || s.Kind != string(conn.LinkBroken) || s.Outage != time.Second || s.NextAttempt.IsZero() {
			t.Errorf("while it is away %+v", s)
		}
		advance(2 * time.Second)
		waiting := r.calling(t.Context(), conn.Request{Method: "m"})
		synctest.Wait()
		if s := read(); s.State != "ready" || s.Outage != 2*time.Second || s.InFlight != 1 || s.Pending != 1 || s.Calls != 3 || !s.NextAttempt.IsZero() {
			t.Errorf("when it is back %+v", s)
		}
		r.Stop()
		<-waiting
		<-r.ended
		advance(time.Minute)
		if s := read(); s.State != "closing" || s.Outage != 2*time.Second || s.InFlight != 0 || s.Pending != 0 {
			t.Errorf("at the end %+v", s)
		}
	})
}

// An outage that the end of the Conn cuts off does not go on, and none is forgotten
// when the loop panics.
//
// Guarantees: G-0024.10
func TestOutageEndsWithTheConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(script)
		r := scripted(t, s, conn.Options{BackoffMin: time.Hour, BackoffMax: time.Hour})
		s.lose(transport.Loss{Reason: io.EOF})
		advance(time.Minute)
		r.Stop()
		<-r.ended
		advance(time.Hour)
		if outage := r.Sample().Conn.Outage; outage != time.Minute {
			t.Errorf("it was away for %v", outage)
		}
	})
}

// Guarantees: G-0024.10
func TestSampleOfAStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{
			MaxNotifications: 4, Credit: 8,
			Handler: handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }},
		})
		for said := range 4 {
			if credit := r.Sample().Conn.Credit; credit != s.credit()-said {
				t.Errorf("the credit is %d, and the link has %d", credit, s.credit()-said)
			}
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		if credit := r.Sample().Conn.Credit; credit != s.credit()-4 || credit >= 8 {
			t.Errorf("the credit is %d while it is withheld, and the link has %d", credit, s.credit()-4)
		}
		if sample := r.Sample().Conn; sample.Stall != conn.NotificationsWait.String() || sample.Stalls != 1 || sample.BytesIn != 4*30 {
			t.Errorf("while it is not read: %+v", sample)
		}
		close(release)
		synctest.Wait()
		if sample := r.Sample().Conn; sample.Stall != "" || sample.Stalls != 1 || sample.Credit != 8 {
			t.Errorf("when it is read again: %+v", sample)
		}
		r.Stop()
		<-r.ended
		if credit := r.Sample().Conn.Credit; credit != 0 {
			t.Errorf("at the end the credit is %d", credit)
		}
	})
}

// A gate says how many connect and how many wait.
func TestStatsOfAGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := &conn.Gate{Places: 1, Hold: time.Hour}
		if stats := gate.Stats(); stats != (telemetry.GateSample{}) {
			t.Errorf("at first %+v", stats)
		}
		stuck := opening(func(ctx context.Context) (transport.Link, error) { <-ctx.Done(); return nil, ctx.Err() })
		runs := []run{start(conn.New(stuck, conn.Options{Gate: gate})), start(conn.New(stuck, conn.Options{Gate: gate}))}
		synctest.Wait()
		if stats := gate.Stats(); stats != (telemetry.GateSample{Holding: 1, Waiting: 1}) {
			t.Errorf("while two connect %+v", stats)
		}
		for _, r := range runs {
			r.Stop()
			<-r.ended
		}
		if stats := gate.Stats(); stats != (telemetry.GateSample{}) {
			t.Errorf("at the end %+v", stats)
		}
	})
}
