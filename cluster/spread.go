//bowline:pure
package cluster

import (
	"bytes"
	"crypto/sha256"
	"time"
)

// spreadStep is how much longer each further node waits before it claims a server that nobody
// runs: so the first one gets it, if it wants it, and nodes that join or leave move few servers.
const spreadStep = 500 * time.Millisecond

// fits reports whether a node may run a server that wants these labels.
func (m *Member) fits(wanted map[string]string) bool {
	for label, value := range wanted {
		if got, found := m.Labels[label]; !found || got != value {
			return false
		}
	}
	return !m.Draining
}

// rankOf returns how many of the members are preferred to a node for a server: by the hash of
// both, so that servers spread over the nodes, and all nodes that see the same members agree.
func rankOf(server, node string, members []Member, wanted map[string]string) (rank int) {
	own := weight(server, node)
	for i := range members {
		if m := &members[i]; m.fits(wanted) && bytes.Compare(weight(server, m.Name), own) > 0 {
			rank++
		}
	}
	return rank
}

func weight(server, node string) []byte {
	hash := sha256.Sum256([]byte(server + "\x00" + node))
	return hash[:]
}
