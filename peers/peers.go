package peers

import "slices"

// A Role is what the other implementation plays. Bowline plays the other part.
type Role string

const (
	ServerRole Role = "server"
	ClientRole Role = "client"
)

// A Peer is one implementation in one role over one transport.
type Peer struct {
	Name      string
	Version   string
	Role      Role
	Transport Transport
	Setting   string // what runs against what, for the page

	Connect Connect
	Server  func(revision string) []string // the command; over HTTP, $PORT in it stands for the port
	Suite   func(revision string) []string // the command of a server of this suite; nil: Server is one

	Echo, Fail, Slow, Endless Call   // the tools to call; Endless reports progress at once and takes minutes
	Answer                    string // the answer of Echo

	Legacy     bool // the peer does not support 2026-07-28
	ChosenPort bool // for port 0, the server does not report which port it got
	Lacks      []Lack
}

// A Feature is a row of the page.
type Feature string

const (
	Speaks   Feature = "the session uses the requested revision"
	Ping     Feature = "ping"
	List     Feature = "tools/list"
	Pages    Feature = "tools/list over several pages"
	Success  Feature = "tools/call"
	Failure  Feature = "a tool's failure is a result with isError"
	Unknown  Feature = "a tool that does not exist"
	Progress Feature = "progress during a slow call"
	Cancel   Feature = "cancellation reaches the server"
	Announce Feature = "a tool added at run time is announced"
	Close    Feature = "close: the session ends, and the server exits with status 0"
	Survive  Feature = "the client recovers after SIGKILL of the server"
)

// A Lack is why a feature cannot be checked.
type Lack struct {
	Feature   Feature  // empty: all features but Speaks and Close
	Revisions []string // nil: all revisions
	Why       string
}

// lack returns the first Lack that covers a cell of the table, or nil.
func (p Peer) lack(feature Feature, revision string) *Lack {
	for i, l := range p.Lacks {
		covers := l.Feature == feature || l.Feature == "" && feature != Speaks && feature != Close
		if covers && (l.Revisions == nil || slices.Contains(l.Revisions, revision)) {
			return &p.Lacks[i]
		}
	}
	return nil
}
