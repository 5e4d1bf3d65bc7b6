package reports

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Reports that are made at once are sent one after the other, in their order, also if sending takes time.
//
// Guarantees: G-0031.20
func TestReportsAreSentOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, sent := make(chan bool), []float64(nil)
		r := New(t.Context(), jsonrpc.ID{}, func(_ context.Context, p *protocol.ProgressParams) {
			sent = append(sent, p.Progress)
			<-next
		})
		for i := range 3 {
			r.Add(t.Context(), float64(i), 0, "")
		}
		for i := range 3 {
			synctest.Wait()
			if want := []float64{0, 1, 2}[:i+1]; !slices.Equal(sent, want) {
				t.Errorf("%v are being sent, want %v", sent, want)
			}
			next <- true
		}
		r.End()
	})
}
