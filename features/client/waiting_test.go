package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A session can be closed while its supervisor restarts a child on which the session
// depends, even if that restart does not finish.
func TestCloseWhileTheSupervisorWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne})
		fail, begun := make(chan struct{}), false
		spec := supervisor.ChildSpec{
			ID: "first",
			Init: func(ctx context.Context) error {
				if begun {
					<-ctx.Done()
				}
				begun = true
				return context.Cause(ctx)
			},
			Run: func(context.Context) error { <-fail; return errors.New("broken") },
		}
		if _, err := s.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		f := answering(nil)
		session := openFake(t, f, client.Options{Supervisor: s})
		fail <- struct{}{}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := session.Close(ctx); err != nil || time.Since(began) != 0 {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		select {
		case <-session.Conn().Done():
		default:
			t.Errorf("the connection is %s, want closed", session.Conn().State())
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		f.close()
	})
}
