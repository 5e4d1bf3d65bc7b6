package supervisor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/supervisor"
)

// wantText wants an error to say so, word for word.
func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestRefusalsOfAStuckChild are true of one that was told to stop, and say what
// can be done.
//
// Guarantees: G-0002.13
func TestRefusalsOfAStuckChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{Name: "app"}), make(chan struct{})
		spec := supervisor.ChildSpec{ID: "a", Run: ignoresStop(release), Shutdown: time.Second}
		c := start(t, s, spec)
		if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.StuckError)) {
			t.Errorf("Stop returned %v", err)
		}
		err := c.Restart(t.Context())
		wantText(t, err, `supervisor app: restarting child "a": the child is stopping; it can be restarted when its Done is closed`)
		if !errors.Is(err, supervisor.ErrStopped) || errors.As(err, new(*supervisor.IntensityError)) {
			t.Errorf("Restart returned %v", err)
		}
		_, err = s.Start(t.Context(), spec)
		wantText(t, err, `supervisor app: starting child "a": supervisor app: child id "a" is in use`)
		close(release)
		<-c.Done()
		if err := c.Restart(t.Context()); err != nil {
			t.Errorf("once it is over, Restart returned %v", err)
		}
		stop(t, s)
	})
}
