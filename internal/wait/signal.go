package wait

import "sync"

// A Signal fires once. It makes its channel only when a caller waits: of the many signals in
// a program, hardly any is waited for. The zero value has not fired. A Signal is safe for
// concurrent use, and must not be copied.
type Signal struct {
	mu      sync.Mutex
	fired   bool
	channel chan struct{} // nil until it is needed
}

// Fire fires the signal. Further calls do nothing.
func (s *Signal) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fired && s.channel != nil {
		close(s.channel)
	}
	s.fired = true
}

// HasFired reports whether the signal has fired.
func (s *Signal) HasFired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// Wait returns a channel that is closed when the signal has fired.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.channel != nil:
	case s.fired:
		s.channel = closed
	default:
		s.channel = make(chan struct{})
	}
	return s.channel
}

// closed is the channel of every signal that fired before a caller waited for it.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// IsClosed reports whether a channel is closed. Nobody may send on it.
func IsClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
