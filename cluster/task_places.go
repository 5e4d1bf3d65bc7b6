package cluster

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
)

const (
	defaultTasks     = 32_000
	defaultTaskBytes = 1 << 30 // as many places have, with what the Engine needs for them
	placeBytes       = 32 << 10

	unseenPlace = time.Minute // for so long a task counts that was added here, and that the watch does not show
)

// taskPlaces counts the places that clients have, by what a watch shows and what this node adds and removes itself.
type taskPlaces struct {
	most    int
	begin   sync.Once
	current chan struct{} // closed when the watch has shown everything once, or has ended

	mu       sync.Mutex
	tasks    map[string]taskPlace // by key for List
	held     map[string]int       // by client, and by network
	all      int
	searched time.Time // when tasks that are over were removed
}

// A taskPlace is what one task takes; zero is nothing.
type taskPlace struct {
	places int
	until  int64 // when it does not count any more, in nanoseconds
}

func newTaskPlaces(most int) *taskPlaces {
	return &taskPlaces{most: most, current: make(chan struct{}), tasks: map[string]taskPlace{}, held: map[string]int{}}
}

// placesOf returns how many places a sealed task takes.
func placesOf(size int) int { return max(1, (size+placeBytes-1)/placeBytes) }

// follow begins to watch the keys of all tasks when it is first called, and waits until it has seen them once.
func (p *taskPlaces) follow(ctx context.Context, n *Node, bucket Bucket) error {
	p.begin.Do(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ctx.Err() != nil {
			close(p.current)
			return
		}
		n.running.Go(func() { p.watch(n.ctx, bucket) })
	})
	if err := await(ctx, p.current); err != nil {
		return fmt.Errorf("%w: the tasks of all clients are not known yet: %w", ErrUnavailable, err)
	}
	return nil
}

// watch applies what the bucket shows, until the node is closed.
func (p *taskPlaces) watch(ctx context.Context, bucket Bucket) {
	seen := sync.OnceFunc(func() { close(p.current) })
	defer seen()
	for shown := range bucket.Watch(ctx, indexPrefix) {
		if shown.Current {
			seen()
			continue
		}
		e, ok := parseIndex(shown.Key)
		if !ok {
			continue
		}
		var is taskPlace
		if !shown.Deleted && e.expires > time.Now().UnixNano() {
			n, _ := strconv.Atoi(string(shown.Value)) // the Engine need not be trusted
			is = taskPlace{min(max(n, 1), placesOf(MaxMessage)), e.expires}
		}
		p.set(e, is)
	}
}

// set records what a task takes.
func (p *taskPlaces) set(e indexEntry, is taskPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(e, is)
}

func (p *taskPlaces) change(e indexEntry, is taskPlace) {
	more := is.places - p.tasks[e.key].places
	p.all += more
	for _, of := range []string{e.client, e.network} {
		if of == "" {
			continue
		}
		if p.held[of] += more; p.held[of] == 0 {
			delete(p.held, of)
		}
	}
	if p.tasks[e.key] = is; is.places == 0 {
		delete(p.tasks, e.key)
	}
}

// claim takes so many places for a task, if its client may have them. It returns what the task took before, and
// whether it takes more now.
func (p *taskPlaces) claim(e indexEntry, n int, grows bool, now time.Time) (before taskPlace, claimed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	before = p.tasks[e.key]
	more := n - before.places
	if more <= 0 {
		return before, false, nil
	}
	free := p.most - p.all - more
	if free < 0 {
		return before, false, fmt.Errorf("%w: its tasks have %d places, and there is no room for more", server.ErrTaskStoreFull, p.all)
	}
	own, network := p.held[e.client]+more, p.held[e.network]+more
	share := int(int64(free) * int64(free) / int64(p.most)) // as in package share
	allowed := own == 1 || own <= share
	if e.network != "" {
		allowed = own == 1 && network <= 4 || network <= share && own <= share/4
	}
	if !allowed && (!grows || free < p.most/8) {
		return before, false, fmt.Errorf("%w: its tasks have %d places, and this client has its share of them", server.ErrTaskStoreFull, p.all)
	}
	p.change(e, taskPlace{n, max(before.until, now.Add(unseenPlace).UnixNano())})
	return before, true, nil
}

// expire removes tasks that are over, once a second at most.
func (p *taskPlaces) expire(now time.Time) {
	if now.Sub(p.searched) < time.Second {
		return
	}
	p.searched = now
	for key, is := range p.tasks {
		if is.until <= now.UnixNano() {
			e, _ := parseIndex(key)
			p.change(e, taskPlace{})
		}
	}
}
