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

// A POST whose client gives up while it waits for its turn uses the link no more: the end of the link does not wait for it.
//
// Guarantees: G-0034.8
func TestAPostThatGivesUpItsTurnIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newServerLink(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/sse", nil), "", 1<<20)
		l.Bind(newRecorder())
		if refused := l.enter(t.Context()); refused != nil {
			t.Fatalf("the first POST is refused: %+v", refused)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if refused := l.enter(ctx); refused == nil {
				t.Error("a POST has its turn before the first one has ended")
			}
		})
		synctest.Wait()
		giveUp()
		waiting.Wait()
		l.next()
		l.leave()
		l.leave() // the GET request
		began := time.Now()
		if err := l.end(transport.ErrClosed, time.Minute); err != nil || time.Since(began) != 0 {
			t.Errorf("the link ended with %v after %v, want at once", err, time.Since(began))
		}
	})
}
