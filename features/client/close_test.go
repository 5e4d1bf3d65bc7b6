package client_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A session that is closed right after its server came back tells of that first, even
// if the new server is slow to be restored; but no longer than Close may take.
//
// Guarantees: G-0030.9
func TestRestoredComesBeforeCloseReturns(t *testing.T) {
	for name, c := range map[string]struct {
		slow time.Duration // the new server's answer to what is restored
		took time.Duration
		want []string
	}{
		"at once":     {0, 0, []string{"lost", "restored"}},
		"slow":        {time.Second, time.Second, []string{"lost", "restored"}},
		"never ready": {time.Hour, 5 * time.Second, []string{"lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told events
				over := make(chan struct{})
				s := &fakeServer{}
				s.answer = func(f frame) []string {
					if f.Method == protocol.MethodSetLogLevel && f.Link == 2 {
						timer := time.NewTimer(c.slow)
						defer timer.Stop()
						select {
						case <-timer.C:
						case <-over:
						}
					}
					return everything(protocol.LatestLegacy)(f)
				}
				session := openFake(t, s, client.Options{LogLevel: protocol.LogInfo, OnEvent: told.on})
				synctest.Wait()
				s.cut()
				synctest.Wait()
				if err := session.AwaitReady(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := session.Close(context.Background()); (err != nil) != (c.slow > time.Minute) {
					t.Error(err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("Close took %v", took)
				}
				close(over)
				told.mu.Lock()
				defer told.mu.Unlock()
				for i := range told.all {
					told.all[i], _, _ = strings.Cut(told.all[i], " ")
				}
				if !slices.Equal(told.all, c.want) {
					t.Errorf("told %q when Close returned, want %q", told.all, c.want)
				}
			})
		})
	}
}

// What the server's program does when a session has ended does not delay the client that
// ended it, although the server's side may end on the same goroutine.
//
// Guarantees: G-0054.4
func TestCloseDoesNotWaitForOnUnsubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, held := make(chan string), make(chan struct{})
		s := server.New(serverInfo, server.Options{
			OnSubscribe: func(context.Context, string) error { return nil },
			OnUnsubscribe: func(_ context.Context, uri string) {
				<-held
				ended <- uri
			},
		})
		server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
		session, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).Connect(t.Context(), inmem.New(s.Accept, inmem.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "x://a"}); err != nil {
			t.Fatal(err)
		}
		idle := time.NewTimer(time.Second)
		<-idle.C // until neither side has a goroutine
		if err := session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(held)
		if uri := <-ended; uri != "x://a" {
			t.Errorf("%s has ended", uri)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
