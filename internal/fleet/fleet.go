// Package fleet is the engine of programs that start many supervised sessions, call them, make their
// servers fail, and check the books: the demo (cmd/bowline), which tells a person what happens, and
// internal/tools/fleet, which measures thousands. It knows neither what a server is nor what is printed.
//
// Its functions block the goroutine that calls them. Each and StartLoad run what they are given on
// goroutines of their own, which have ended when Each and Load.End return. So nothing runs in the
// background when a program counts what is left over.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

// A Member is one session of a fleet. The types of a program embed it.
type Member struct {
	Session *client.Session // nil until it is connected
}

// base makes types that embed a Member, and no others, fit a Fleet.
func (m *Member) base() *Member { return m }

// AwaitBack waits until the session is ready, and suffices says of its incarnation that it is one after the
// loss. It returns since when. The status is read again after suffices was asked, so it is never older
// than what suffices has seen.
func (m *Member) AwaitBack(ctx context.Context, suffices func(epoch uint64) bool) (since time.Time, err error) {
	for {
		status := m.Session.Conn().Status()
		if suffices(status.Epoch) {
			status = m.Session.Conn().Status()
			if status.State == conn.Ready {
				return status.Since, nil
			}
		}
		if status.State == conn.Closing {
			return time.Time{}, status.Reason
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("still %s: %w", status.State, context.Cause(ctx))
		}
	}
}

// A Fleet is sessions under one supervisor.
type Fleet[M interface{ base() *Member }] struct {
	Members    []M
	Supervisor *supervisor.Supervisor
	Goroutines int // of the process before the first session
}

// New returns a fleet without members.
func New[M interface{ base() *Member }](name string) *Fleet[M] {
	return &Fleet[M]{Supervisor: supervisor.New(supervisor.Options{Name: name}), Goroutines: runtime.NumGoroutine()}
}

// Sessions are those of all members, unless their start has failed.
func (f *Fleet[M]) Sessions() (sessions []*client.Session) {
	for _, m := range f.Members {
		if s := m.base().Session; s != nil {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

// Stats are the counts of all sessions.
func (f *Fleet[M]) Stats() []conn.Stats {
	var stats []conn.Stats
	for _, s := range f.Sessions() {
		stats = append(stats, s.Conn().Stats())
	}
	return stats
}

// Drain closes every session and the supervisor before ctx ends. A session that was not drained is an
// error: a call in flight may have been given up.
func (f *Fleet[M]) Drain(ctx context.Context) error {
	closed := f.Supervisor.Close(ctx)
	return errors.Join(Each(f.Sessions(), 1, "sessions were not drained", func(s *client.Session) error {
		if status := s.Conn().Status(); status.State != conn.Closing || status.Reason.Kind != conn.Drained {
			return fmt.Errorf("%s, %w", status.State, status.Reason)
		}
		return nil
	}), closed)
}

// Leaked waits for goroutines that are about to end. It returns how many there are now, and an error if
// those are more than before the first session.
func (f *Fleet[M]) Leaked() (now int, err error) {
	now = ledger.SettledGoroutines(f.Goroutines)
	if leaked := now - f.Goroutines; leaked > 0 {
		err = fmt.Errorf("%d goroutines are left", leaked)
	}
	return now, err
}

// HasCaller reports whether a method is one that callers call. The others are of handshakes. It is for
// ledger.Ledger.Hooks.
func HasCaller(method string) bool {
	return method != protocol.MethodInitialize && method != protocol.MethodDiscover
}

// Each calls do for all elements, with at most atOnce calls at the same time. Its error says how many
// failed, with the problem in words, and has one of their errors.
func Each[T any](all []T, atOnce int, problem string, do func(T) error) error {
	next := make(chan T)
	var mu sync.Mutex
	var failed int
	var example error
	var doing sync.WaitGroup
	for range min(atOnce, len(all)) {
		doing.Go(func() {
			for one := range next {
				if err := do(one); err != nil {
					mu.Lock()
					failed, example = failed+1, err
					mu.Unlock()
				}
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	doing.Wait()
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d %s, for instance: %w", failed, len(all), problem, example)
}

// A Load is callers that call until it ends.
type Load struct {
	stop    chan struct{}
	callers sync.WaitGroup
}

// StartLoad starts callers. Each runs once, and again until the load ends or once returns false.
func StartLoad(callers int, once func(caller int) (again bool)) *Load {
	l := &Load{stop: make(chan struct{})}
	for i := range callers {
		l.callers.Go(func() {
			for once(i) && !wait.IsClosed(l.stop) {
			}
		})
	}
	return l
}

// End lets the callers finish what they do, and waits for that.
func (l *Load) End() {
	close(l.stop)
	l.callers.Wait()
}

// Strike hits each target at its time after the beginning. A hit that comes late does not put off those
// after it.
func Strike[T any](ctx context.Context, plan iter.Seq2[time.Duration, T], hit func(T) error) error {
	began := time.Now()
	for at, target := range plan {
		if err := wait.Sleep(ctx, at-time.Since(began)); err != nil {
			return err
		}
		if err := hit(target); err != nil {
			return err
		}
	}
	return nil
}
