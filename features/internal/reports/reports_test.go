package reports

import (
	"context"
	"encoding/json"
	"math"
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
			r.Add(t.Context(), float64(i-2), 0, "")
		}
		for i := range 3 {
			synctest.Wait()
			if want := []float64{-2, -1, 0}[:i+1]; !slices.Equal(sent, want) {
				t.Errorf("%v are being sent, want %v", sent, want)
			}
			next <- true
		}
		synctest.Wait()
		r.Add(t.Context(), 3, 0, "")
		ended := false
		go func() { r.End(); ended = true }()
		if synctest.Wait(); len(sent) != 4 || ended {
			t.Errorf("%v are being sent, ended: %t, want one more, and that the end waits for it", sent, ended)
		}
		next <- true
	})
}

// While one report is being sent, 16 wait, and the newest takes the place of the last one. What does not grow, what is no number, and what comes after
// the end is not sent. A report has the values of who has made it, and ends with the request.
//
// Guarantees: G-0031.20
func TestTheNewestReportIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		request, cancel := context.WithCancel(t.Context())
		next, sent := make(chan bool), []float64(nil)
		r := New(request, jsonrpc.ID{}, func(ctx context.Context, p *protocol.ProgressParams) {
			if ctx.Value(key{}) != p.Progress {
				t.Errorf("the context of %v has the value %v", p.Progress, ctx.Value(key{}))
			}
			if sent = append(sent, p.Progress); (ctx.Err() != nil) != (p.Progress > 1) {
				t.Errorf("the context of %v has ended: %v, want it to end with the request", p.Progress, ctx.Err())
			}
			<-next
		})
		for i := range 40 {
			done := float64(i + 1)
			ctx, end := context.WithCancel(context.WithValue(t.Context(), key{}, done))
			r.Add(ctx, done, 0, "")
			end()
			r.Add(ctx, math.NaN(), 0, "")
			r.Add(ctx, done, 0, "again")
			synctest.Wait()
		}
		cancel()
		ended := make(chan bool)
		go func() { r.End(); close(ended) }()
		for range 17 {
			next <- true
		}
		<-ended
		r.Add(t.Context(), 41, 0, "late")
		synctest.Wait()
		if want := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 40}; !slices.Equal(sent, want) {
			t.Errorf("got %v, want %v", sent, want)
		}
	})
}

// A report without a number of its progress says nothing.
func TestMalformedReportsAreIgnored(t *testing.T) {
	var got []float64
	tell := To(func(p *protocol.ProgressParams) { got = append(got, p.Progress) })
	for _, params := range []string{`{"progressToken":1,"progress":0}`, `{"progressToken":1}`, `{"progress":null}`, `{"progress":"1"}`, `[]`, ``, `{"progress":2.5}`} {
		tell(json.RawMessage(params))
	}
	if want := []float64{0, 2.5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
