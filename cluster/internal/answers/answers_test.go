package answers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, responses := make(chan struct{}), make(chan int, 2000)
		running := make(chan struct{}, 2000)
		p := New(func(_ context.Context, body []byte) []byte {
			running <- struct{}{}
			<-hold
			return append(body, '!')
		})
		for n := range 64 + 1024 + 10 {
			p.Push([]byte{byte(n)}, func(response []byte) {
				if !slices.Equal(response, []byte{byte(n), '!'}) {
					t.Errorf("request %d got %q", n, response)
				}
				responses <- n
			})
		}
		synctest.Wait()
		if len(running) != 64 {
			t.Errorf("%d run at once, want 64", len(running))
		}
		close(hold)
		synctest.Wait()
		all := map[int]bool{}
		for range len(responses) {
			all[<-responses] = true
		}
		if len(all) != 64+1024 || all[64+1024] {
			t.Errorf("%d requests were answered, the first that is too many: %v", len(all), all[64+1024])
		}
		p.Stop()
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		p := New(func(ctx context.Context, _ []byte) []byte {
			<-ctx.Done()
			served++
			return nil
		})
		p.Push(nil, func([]byte) {})
		p.Stop()
		p.Stop()
		p.Push(nil, func([]byte) { t.Error("it was served after Stop") })
		synctest.Wait()
		if served != 1 {
			t.Errorf("%d were served when Stop returned", served)
		}
	})
}
