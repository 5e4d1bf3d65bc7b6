//go:build unix

package nodes

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A watch makes calls at one gateway after the other that are to be refused, so that it is known that each of them has refused something while a fault was in force: what happens at
// random may not have. Its calls are in the books of a Load, and are judged as all others.
type watch struct {
	load     *Load
	site     *Site
	sessions int // it has begun, after those of the Load
	seen     watched
}

// watched is what gateways have refused, on purpose.
type watched struct {
	denied  map[string]*[siteNodes]tally // what a persona forbids: by the fault that was in force, and by the node
	crowded *[siteNodes]int              // what was too much at a time, by the node; nil: nobody has tried
}

// A tally is how often a node was asked, and how often it has refused that.
type tally struct{ asked, refused int }

// wrong says which node has not refused something.
func (w *watched) wrong() (wrong []string) {
	for _, fault := range slices.Sorted(maps.Keys(w.denied)) {
		for node, t := range w.denied[fault] {
			if t.refused < t.asked {
				wrong = append(wrong, fmt.Sprintf("%s: node %d has refused %d of %d calls that a persona forbids while that was in force", fault, node, t.refused, t.asked))
			}
		}
	}
	if w.crowded != nil {
		for node, limited := range w.crowded {
			if limited == 0 {
				wrong = append(wrong, fmt.Sprintf("node %d has refused no call for a limit, of %d at a time", node, crowd))
			}
		}
	}
	return wrong
}

// print writes the counts, with a line for each fault.
func (w *watched) print(to io.Writer) {
	for _, fault := range slices.Sorted(maps.Keys(w.denied)) {
		fmt.Fprintf(to, "%s: refused by each node meanwhile, since a persona forbids it:", fault)
		for _, t := range w.denied[fault] {
			fmt.Fprintf(to, " %d", t.refused)
		}
		fmt.Fprintln(to)
	}
	if w.crowded != nil {
		fmt.Fprintf(to, "refused by each node as too much at a time: %d\n", *w.crowded)
	}
}

func newWatch(load *Load, site *Site) *watch {
	return &watch{load: load, site: site, seen: watched{denied: map[string]*[siteNodes]tally{}}}
}

const (
	watchTimeout = 30 * time.Second       // until a node has refused a call
	crowd        = 2 * mostInFlight       // calls at a time
	crowdHeld    = 500 * time.Millisecond // how long each of them takes
)

// during has each node refuse a call while a fault is in force, but for one that is down. It returns when all have, or have not within a while.
func (w *watch) during(ctx context.Context, fault string, down int) {
	if w.site.behind == nil {
		return
	}
	if w.seen.denied[fault] == nil {
		w.seen.denied[fault] = new([siteNodes]tally)
	}
	for node := range siteNodes {
		if node == down {
			continue
		}
		t := &w.seen.denied[fault][node]
		if t.asked++; w.until(ctx, node, w.load.forbidden) {
			t.refused++
		}
	}
}

// crowd makes more calls at a time at a node than a persona allows, until some were refused.
func (w *watch) crowd(ctx context.Context, node int) {
	if w.seen.crowded == nil {
		w.seen.crowded = new([siteNodes]int)
	}
	w.until(ctx, node, func(s *loadSession) bool {
		w.seen.crowded[node] += w.load.crowd(s)
		return w.seen.crowded[node] > 0
	})
}

// until tries something in sessions at a node until it succeeds. A node that has just lost another one may have to be asked again.
func (w *watch) until(ctx context.Context, node int, try func(*loadSession) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	for ctx.Err() == nil {
		if w.once(ctx, node, try) {
			return true
		}
		_ = wait.Sleep(ctx, pauseFailed) // then there is no time left
	}
	return false
}

// once begins a session at a node, in the revision in which the node needs no other for it, and tries something.
func (w *watch) once(ctx context.Context, node int, try func(*loadSession) bool) bool {
	user := w.site.behind.watcher
	s := &loadSession{number: w.load.options.Sessions + w.sessions, user: user}
	w.sessions++
	s.client = client.New(protocol.Implementation{Name: "watch", Version: "1"}, client.Options{ProtocolVersion: protocol.Latest, FailFast: true})
	defer s.client.Close(context.WithoutCancel(ctx))
	var err error
	s.session, err = s.client.Connect(ctx, &streamable.Client{URL: w.site.NodeURL(node), HTTP: &http.Client{Transport: &noted{next: w.load.pool, token: user.Token}}})
	return err == nil && try(s)
}

// crowd makes calls of a session at the same time, and returns how many were refused as too many.
func (l *Load) crowd(s *loadSession) (limited int) {
	var calling sync.WaitGroup
	all := make([]*loadCall, crowd)
	for i := range all {
		call, id := l.begin(s)
		all[i] = call
		calling.Go(func() {
			answer, err := l.callOwn(s, id)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.check(id, answer, err)
			l.end(call, err)
		})
	}
	calling.Wait()
	for _, call := range all {
		if call.isLimited() {
			limited++
		}
	}
	return limited
}

// callOwn makes a call of a crowd, which is of the server that the user has for himself.
func (l *Load) callOwn(s *loadSession, id string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), callTimeout)
	defer cancel()
	return client.Call[string](ctx, s.session, child.Own+"__"+child.Tool, child.Arguments{Arguments: marks.Of(id, crowdHeld), User: s.user.Name})
}
