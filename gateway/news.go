package gateway

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

const (
	quiet = 100 * time.Millisecond // how long no list must change before clients are told
	pause = time.Second            // between two times that they are told
)

// news are the lists that have changed and that clients have not been told of. A server that starts changes several lists, and
// several servers start at once: one notification for each list is enough.
type news struct {
	announce func([]catalogue.Kind) // runs on a goroutine of a timer, once at a time

	mu      sync.Mutex
	changed map[catalogue.Kind]bool
	timer   *time.Timer // nil: nobody waits for it
	told    time.Time
	closed  bool
	running sync.WaitGroup
}

// tell notes that lists have changed.
func (n *news) tell(kinds ...catalogue.Kind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || len(kinds) == 0 {
		return
	}
	if n.changed == nil {
		n.changed = make(map[catalogue.Kind]bool)
	}
	for _, kind := range kinds {
		n.changed[kind] = true
	}
	wait := max(quiet, pause-time.Since(n.told))
	if n.timer == nil || !n.timer.Stop() {
		n.running.Add(1)
	}
	n.timer = time.AfterFunc(wait, n.tellNow)
}

func (n *news) tellNow() {
	defer n.running.Done()
	n.mu.Lock()
	var kinds []catalogue.Kind
	for _, kind := range catalogue.Kinds() {
		if n.changed[kind] {
			kinds = append(kinds, kind)
		}
	}
	n.changed, n.told = nil, time.Now()
	n.mu.Unlock()
	if len(kinds) > 0 {
		n.announce(kinds)
	}
}

// close forgets what was not told, and waits until nothing is being told.
func (n *news) close() {
	n.mu.Lock()
	n.closed = true
	if n.timer != nil && n.timer.Stop() {
		n.running.Done()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// announce tells clients that lists have changed, and saves them.
func (g *Gateway) announce(kinds []catalogue.Kind) {
	for _, kind := range kinds {
		g.server.ListChanged(featureOf[kind])
	}
	defer g.eye.wake()
	if err := g.known.Save(); err != nil {
		text := "what servers offer is not kept for the next start: " + err.Error()
		g.unsaved.Store(&text)
		g.log().Warn("bowline: what servers offer is not kept for the next start", "error", err)
	} else {
		g.unsaved.Store(nil)
	}
}

var featureOf = map[catalogue.Kind]string{
	catalogue.Tools: server.KindTool, catalogue.Prompts: server.KindPrompt, catalogue.Resources: server.KindResource, catalogue.Templates: server.KindTemplate,
}
