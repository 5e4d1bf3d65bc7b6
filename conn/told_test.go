package conn_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

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
			s.say(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		pass(3 * time.Second)
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
		pass(3 * time.Second)
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
		pass(time.Second)
		if len(told) != 2 || told[0].Attempts != 1 || told[1].Attempts != 2 || told[1].ID == 0 {
			t.Errorf("told %+v", told)
		}
		r.Stop()
		<-result
		<-r.ended
	})
}
