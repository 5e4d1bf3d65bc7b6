package stdio_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// discardingStream is a stream that discards what is written.
type discardingStream struct{ io.Writer }

func (discardingStream) Close() error { return nil }

type handler func(context.Context, *conn.Incoming) (json.RawMessage, error)

func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	return h(ctx, in)
}
func (handler) ServeNotification(context.Context, *conn.Incoming) {}

// A request waits no longer behind many slow handlers than behind one.
//
// Guarantees: G-0055.3
func TestManySlowHandlersDelayNoMoreThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, peer := io.Pipe()
		link, err := stdio.Pair(in, discardingStream{io.Discard}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		quick, last := make(chan struct{}, 1), make(chan time.Time, 1)
		c := conn.Accept(link, conn.Options{Handler: handler(func(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
			switch in.Method {
			case "quick":
				quick <- struct{}{}
			case "slow":
				<-ctx.Done()
			case "last":
				last <- time.Now()
			}
			return json.RawMessage("{}"), nil
		})})
		if err := c.Start(t.Context(), func(error) {}); err != nil {
			t.Fatal(err)
		}
		sent := 0
		request := func(method string) string {
			sent++
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`+"\n", sent, method)
		}
		send := func(frames string) {
			if _, err := io.WriteString(peer, frames); err != nil {
				t.Error(err)
			}
		}
		for range 100 {
			send(request("quick"))
			<-quick
		}
		synctest.Wait()
		var together strings.Builder
		for range 100 {
			together.WriteString(request("slow"))
		}
		together.WriteString(request("last"))
		began := time.Now()
		send(together.String())
		if waited := (<-last).Sub(began); waited > 2*time.Millisecond {
			t.Errorf("a request behind 100 slow ones waited for %v, want less", waited)
		}
		c.Stop()
		<-c.Done()
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}
