package supervisor

import "sync"

// A pulse tells who waits for it that something has changed in a tree, or in a
// part of it. Its lock is taken last.
type pulse struct {
	mu      sync.Mutex
	changed chan struct{} // nil while nobody waits
	up      *pulse        // of the tree this is a part of
}

// feed makes this pulse part of another.
func (p *pulse) feed(up *pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = up
}

// next is closed at the next beat.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *pulse) beat() {
	for ; p != nil; p = p.beatOnce() {
	}
}

func (p *pulse) beatOnce() (up *pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	return p.up
}
