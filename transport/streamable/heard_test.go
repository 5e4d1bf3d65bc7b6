package streamable

import (
	"net/http"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A stream whose first event is not complete is heard.
//
// Guarantees: G-0025.2
func TestBytesOfAnUnfinishedEventAreHeard(t *testing.T) {
	const comment = ": alive\n\n"
	release := make(chan struct{})
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", typeEvents)
		w.Write([]byte(comment))
		w.(http.Flusher).Flush()
		hold(req, release)
	})
	hearing := r.link.(transport.Hearing)
	if bytes, ok := hearing.Heard(); bytes != 0 || !ok {
		t.Errorf("%d bytes before anything came in, counted: %v", bytes, ok)
	}
	r.call(1, 1)
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		if bytes, _ := hearing.Heard(); bytes > uint64(len(comment)) { // the headers count too
			break
		}
		select {
		case <-look.C:
		case <-guard.C:
			t.Fatal("nothing was heard")
		}
	}
	close(release)
}
