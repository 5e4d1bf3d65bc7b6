package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// AddLedger adds the tool "mark" to a server: it writes the id of a call to a file that all
// nodes share, and returns after so many milliseconds. So the file says what was executed, and
// how often.
func AddLedger(s *server.Server, path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	server.AddTool(s, protocol.Tool{Name: "mark", Description: "Writes the id to the ledger."},
		func(ctx context.Context, in markArguments) (string, error) {
			if _, err := file.WriteString(in.ID + "\n"); err != nil { // one write, so no line is torn
				return "", err
			}
			timer := time.NewTimer(time.Duration(in.Wait) * time.Millisecond)
			defer timer.Stop()
			select {
			case <-timer.C:
				return in.ID, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
	return nil
}

type markArguments struct {
	ID   string `json:"id"`
	Wait int    `json:"wait"`
}

// LoadOptions say what a Load does.
type LoadOptions struct {
	URL      string
	Sessions int           // how many sessions there are
	Busy     int           // how many of them have a call under way at any time; the others are idle
	Wait     time.Duration // how long a call takes
}

// A Load uses sessions while nodes fail. Nothing is repeated: each failure is counted.
type Load struct {
	options LoadOptions
	clients []*loadSession
	ctx     context.Context
	cancel  context.CancelFunc
	calling sync.WaitGroup

	mu     sync.Mutex
	counts ledger.Counts
	calls  map[string]ledger.Outcome
	failed []string // texts of failures, the first hundred
}

type loadSession struct {
	client  *client.Client
	session *client.Session
	calls   atomic.Int64
}

// StartLoad opens the sessions, in the revision that has sessions, and begins to call.
func StartLoad(ctx context.Context, o LoadOptions) (*Load, error) {
	l := &Load{options: o, counts: ledger.Counts{}, calls: map[string]ledger.Outcome{}}
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range o.Sessions {
		c := client.New(protocol.Implementation{Name: "load", Version: "1"}, client.Options{ProtocolVersion: protocol.LatestLegacy})
		session, err := c.Connect(ctx, &streamable.Client{URL: o.URL})
		if err != nil {
			return nil, errors.Join(err, l.close(ctx))
		}
		s := &loadSession{client: c, session: session}
		l.clients = append(l.clients, s)
		if i < o.Busy {
			l.calling.Go(func() {
				for l.ctx.Err() == nil {
					_ = l.call(i, s, l.options.Wait) // it is counted
				}
			})
		}
	}
	return l, nil
}

// call makes one call, which also the end of the Load does not cancel.
func (l *Load) call(i int, s *loadSession, wait time.Duration) error {
	id := fmt.Sprintf("%d-%d", i, s.calls.Add(1))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), callTimeout)
	defer cancel()
	_, err := client.Call[string](ctx, s.session, "mark", markArguments{ID: id, Wait: int(wait.Milliseconds())})
	outcome, other := ledger.OutcomeOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if other != nil {
		outcome = ledger.Answered() // the tool itself has failed, or its result is wrong
	}
	l.counts[outcome]++
	l.calls[id] = outcome
	if err != nil && len(l.failed) < 100 {
		l.failed = append(l.failed, fmt.Sprintf("%s %s: %v", time.Now().Format("05.000"), id, err))
	}
	return err
}

// callTimeout is above the default timeout of a call, which so decides.
const callTimeout = time.Minute

// Recover makes every session call until a call succeeds, and returns how long each session
// took. It fails if a session has had no success when ctx ends.
func (l *Load) Recover(ctx context.Context) (took []time.Duration, err error) {
	since := time.Now()
	took = make([]time.Duration, len(l.clients))
	errs := make([]error, len(l.clients))
	var recovering sync.WaitGroup
	for i, s := range l.clients {
		recovering.Go(func() {
			for {
				errs[i] = l.call(i, s, 0)
				took[i] = time.Since(since)
				if errs[i] == nil {
					return
				}
				timer := time.NewTimer(recoverPause)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					errs[i] = fmt.Errorf("session %d has not recovered: %w", i, errs[i])
					return
				}
			}
		})
	}
	recovering.Wait()
	slices.Sort(took)
	return took, errors.Join(errs...)
}

// recoverPause is the time between two attempts of a session to recover.
const recoverPause = 50 * time.Millisecond

// Books is what a Load has done.
type Books struct {
	Counts ledger.Counts
	Lost   int      // sessions whose client had to begin another one
	Failed []string // the first failures
}

// Stop ends the calls, closes the sessions, and compares what the callers know with the ledger.
// The error lists contradictions: a call that was executed twice, or although it was not sent.
func (l *Load) Stop(ctx context.Context, path string) (Books, error) {
	l.cancel()
	l.calling.Wait()
	books := Books{Counts: l.counts, Failed: l.failed}
	for _, s := range l.clients {
		if s.session.Status().Epoch > 1 {
			books.Lost++
		}
	}
	executed, err := ReadLedger(path)
	if err != nil {
		return books, errors.Join(err, l.close(ctx))
	}
	var wrong []error
	for id, outcome := range l.calls {
		call := ledger.Call{Reported: 1, Outcome: outcome, Executed: executed[id]}
		if why := call.Contradiction(1); why != "" {
			wrong = append(wrong, fmt.Errorf("call %s: %s: %s", id, outcome, why))
		}
	}
	return books, errors.Join(append(wrong, l.close(ctx))...)
}

func (l *Load) close(ctx context.Context) error {
	l.cancel()
	l.calling.Wait()
	errs := make([]error, len(l.clients))
	var closing sync.WaitGroup
	for i, s := range l.clients {
		closing.Go(func() { errs[i] = s.client.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// ReadLedger returns how often each call was executed.
func ReadLedger(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	executed := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		i, n, _ := strings.Cut(lines.Text(), "-")
		if _, err := strconv.Atoi(i + n); err != nil {
			return nil, fmt.Errorf("the ledger has the line %q", lines.Text())
		}
		executed[lines.Text()]++
	}
	return executed, lines.Err()
}
