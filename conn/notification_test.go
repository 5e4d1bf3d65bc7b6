package conn_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// worth is a dialect in which "changed" is superfluous when another follows,
// and a "log" may be missed.
type worth struct{ dialect }

func (w worth) Classify(m *jsonrpc.Message) conn.Class {
	switch m.Method {
	case "changed":
		return conn.Class{Key: m.Method}
	case "log":
		return conn.Class{Droppable: true}
	default:
		return w.dialect.Classify(m)
	}
}

// Guarantees: G-0006.1, G-0006.2, G-0006.3, G-0006.4
func TestWhatIsShedIsToldAndTheRestIsHandledInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		var handled, shed []string
		note := func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-release
			handled = append(handled, in.Method+string(in.Params))
			return nil, nil
		}
		r := scripted(t, s, conn.Options{
			Dialect: worth{}, MaxNotices: 4,
			Handler: handler{"changed": note, "log": note, "other": note},
			Hooks:   telemetry.Hooks{Shed: func(e telemetry.Shed) { shed = append(shed, e.Method) }},
		})
		for i, method := range []string{"other", "other", "log", "changed", "log", "changed", "other", "other", "other"} {
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":[%d]}`, method, i))
			synctest.Wait()
		}
		if want := []string{"changed", "log", "log", "other"}; !slices.Equal(shed, want) || r.Stats().Shed != 4 {
			t.Errorf("shed %q, want %q; %d are counted", shed, want, r.Stats().Shed)
		}
		close(release)
		synctest.Wait()
		if want := []string{"other[0]", "other[1]", "changed[5]", "other[6]", "other[7]"}; !slices.Equal(handled, want) {
			t.Errorf("handled %q, want %q", handled, want)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0006.4
func TestProgressThatWasNotPickedUpIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release, shed := &script{}, make(chan struct{}), ""
		var got []string
		r := scripted(t, s, conn.Options{Dialect: dialect{}, Hooks: telemetry.Hooks{Shed: func(e telemetry.Shed) { shed += e.Method + " " }}})
		result := r.calling(t.Context(), conn.Request{Method: "m", OnProgress: func(p json.RawMessage) { <-release; got = append(got, string(p)) }})
		for i := range 4 {
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"progress","params":[1,%d]}`, i))
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		s.say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-result; err != nil || !slices.Equal(got, []string{"[1,0]", "[1,3]"}) {
			t.Errorf("got %q, and %v", got, err)
		}
		synctest.Wait()
		if shed != "progress progress " || r.Stats().Shed != 2 {
			t.Errorf("shed %q, %d are counted", shed, r.Stats().Shed)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0015.2
func TestNotificationHandlerMayCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r run
		s, answered := &script{}, 0
		call := func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
			if _, err := r.Call(ctx, conn.Request{Method: "m"}); err == nil {
				answered++
			}
			return nil, nil
		}
		r = scripted(t, s, conn.Options{Handler: handler{"n": call}, MaxNotices: 4})
		for id := range 5 { // more than enough to pause for, were nobody waiting
			s.say(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
			if id == 0 {
				continue
			}
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id))
			synctest.Wait()
		}
		if answered != 4 {
			t.Errorf("%d calls were answered", answered)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0015.3
func TestPanicOfANotificationHandlerLosesItsNotificationOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, handled, where := &script{}, 0, ""
		r := scripted(t, s, conn.Options{
			Handler: handler{
				"bad":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("bad") },
				"good": func(context.Context, *conn.Incoming) (json.RawMessage, error) { handled++; return nil, nil },
			},
			Hooks: telemetry.Hooks{Panic: func(e telemetry.Panic) { where = e.Where }},
		})
		s.say(`{"jsonrpc":"2.0","method":"bad"}`)
		s.say(`{"jsonrpc":"2.0","method":"good"}`)
		synctest.Wait()
		if handled != 1 || where != "bad" || r.State() != conn.Ready {
			t.Errorf("%d were handled, a panic was told of %q, %s", handled, where, r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0015.4
func TestIdleConnHasNoGoroutineForNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{})
		before := goroutines()
		for range 100 {
			s.say(`{"jsonrpc":"2.0","method":"n"}`)
		}
		pass(time.Second)
		if now := goroutines(); now > before {
			t.Errorf("%d goroutines, and %d before", now, before)
		}
		r.Stop()
		<-r.ended
	})
}
