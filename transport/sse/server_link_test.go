package sse

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A bounded number of POSTs of a session wait for each other. One whose client gives up uses the link no more, so that the end of
// the link does not wait for it.
//
// Guarantees: G-0034.5, G-0034.8
func TestPostsThatWaitForTheirTurnAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newServerLink(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sse", nil), "", 1<<20)
		l.Bind(newRecorder())
		if refused := l.enter(t.Context()); refused != nil {
			t.Fatalf("the first POST is refused: %+v", refused)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range maxWaiting - 1 {
			waiting.Go(func() {
				if refused := l.enter(ctx); refused == nil {
					t.Error("a POST has its turn before the first one has ended")
				}
			})
		}
		synctest.Wait()
		if refused := l.enter(ctx); refused == nil || refused.status != http.StatusServiceUnavailable {
			t.Errorf("one POST more: got %+v, want the status 503", refused)
		}
		giveUp()
		waiting.Wait()
		l.next()
		l.leave()
		if refused := l.enter(t.Context()); refused != nil {
			t.Errorf("after the others have left: %+v", refused)
		}
		l.next()
		l.leave()
		l.leave() // the GET request
		began := time.Now()
		if err := l.end(transport.ErrClosed, time.Minute); err != nil || time.Since(began) != 0 {
			t.Errorf("the link ended with %v after %v, want at once", err, time.Since(began))
		}
	})
}
