package streamable

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Close returns after its grace even if the server does not answer.
//
// Guarantees: G-0022.15
func TestCloseIsBoundedThoughNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silentTripper{}}})
		r.link.(*clientLink).remote.session = session{begun: true, id: "s"}
		r.call(1, 1)
		r.send(2, notification("n"))
		r.send(3, notification("n"))
		r.send(4, request(4, "ping", ""))
		begun := time.Now()
		r.link.Close(5 * time.Second)
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("Close took %v, want %v", took, 5*time.Second)
		}
		loss := r.loss()
		if loss.Reason != transport.ErrClosed || !slices.Equal(loss.Unsent, []transport.Tag{3, 4}) || len(r.failed) > 0 {
			t.Errorf("lost %+v, failed %+v", loss, r.failed)
		}
	})
}

// A Close with a shorter grace shortens an earlier Close.
func TestAShorterGraceShortensAnEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &Client{URL: "http://host/", HTTP: &http.Client{Transport: silentTripper{}}})
		r.send(1, notification("n"))
		r.send(2, notification("n"))
		begun := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { r.link.Close(time.Hour) })
		closing.Go(func() { r.link.Close(time.Second) })
		closing.Wait()
		if took := time.Since(begun); took != 700*time.Millisecond {
			t.Errorf("Close took %v, want %v", took, 700*time.Millisecond)
		}
		if err := r.link.Send(outbound(0, initialized)); err != transport.ErrClosed {
			t.Errorf("Send after Close: %v", err)
		}
	})
}

// Close sends queued messages and then ends the session with DELETE.
//
// Guarantees: G-0022.15
func TestCloseFlushesAndDeletesTheSession(t *testing.T) {
	s := &legacyServer{session: "s-1"}
	r := handshake(t, s)
	for range 20 {
		r.send(1, notification("n"))
	}
	if err := r.link.Close(hangGuard); err != nil {
		t.Fatal(err)
	}
	got := s.log()
	notified := 0
	for _, line := range got {
		if line == "POST n s-1 2025-11-25" {
			notified++
		}
	}
	if notified != 20 || got[len(got)-1] != "DELETE - s-1 2025-11-25" || len(r.loss().Unsent) > 0 {
		t.Fatalf("the server saw %q, unsent %v, want notified == 20, got[len(got)-1] == %q and len(r.loss().Unsent) == 0", got, r.loss().Unsent, "DELETE - s-1 2025-11-25")
	}
}

// Close without a grace sends no DELETE.
func TestCloseWithoutGraceSendsNoDelete(t *testing.T) {
	s := &legacyServer{session: "s-1"}
	handshake(t, s).link.Close(0)
	for _, line := range s.log() {
		if strings.HasPrefix(line, "DELETE") {
			t.Fatal(line)
		}
	}
}

// If a link was lost before Bind, Bind reports the loss.
func TestLossBeforeBindIsReportedAtBind(t *testing.T) {
	link, err := (&Client{URL: "http://host/"}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	link.Close(hangGuard)
	r := &testReceiver{t: t, calls: make(chan struct{}, 1), changed: make(chan struct{})}
	link.Bind(r)
	if loss := r.loss(); loss.Reason != transport.ErrClosed {
		t.Fatalf("got %+v, want %v", loss, transport.ErrClosed)
	}
}
