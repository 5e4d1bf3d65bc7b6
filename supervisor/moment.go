package supervisor

// A moment comes about once. It has a channel only when somebody waits for it:
// children are many, and few of them are waited for. The supervisor's mutex
// guards it.
type moment struct {
	come    bool
	channel chan struct{}
}

// arrive makes it come about, if it has not.
func (m *moment) arrive() {
	if !m.come && m.channel != nil {
		close(m.channel)
	}
	m.come = true
}

// wait returns what is closed when it comes about.
func (m *moment) wait() <-chan struct{} {
	if m.channel == nil {
		m.channel = make(chan struct{})
		if m.come {
			close(m.channel)
		}
	}
	return m.channel
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
