package cluster

import (
	"github.com/bowline-mcp/bowline/cluster/internal/hop"
)

const sealSession = "session"

// A sessionRecord is the value of a session, whose key is the hash of its id.
type sessionRecord struct {
	Version    int    `json:"v"`
	Owner      owner  `json:"owner"`
	Address    string `json:"addr,omitempty"`     // of the door of the owner's process; "" if it has none
	Door       []byte `json:"spki,omitempty"`     // the hash of the key that it shows there
	Takes      uint64 `json:"takes,omitempty"`    // how often the session was taken; of two records, the one with more is newer
	Free       bool   `json:"free"`               // the owner has given it up; always written, so that a record which is given up does not grow
	Ended      bool   `json:"ended,omitempty"`    // there is no such session any more, and what follows is empty
	Identity   []byte `json:"identity,omitempty"` // which need not be UTF-8
	Initialize []byte `json:"initialize,omitempty"`
	Revision   string `json:"revision,omitempty"` // of MCP
	State      []byte `json:"state,omitempty"`
	Streams    uint64 `json:"streams,omitempty"`
}

// door returns where the process of the owner can be reached, if it lives.
func (r *sessionRecord) door() hop.Peer {
	return hop.Peer{Node: r.Owner.Node, Address: r.Address, SPKI: string(r.Door)}
}

// sealSession returns the sealed value of a session that is one of this node now.
func (n *Node) sealSession(session string, r sessionRecord) []byte {
	n.mu.Lock()
	r.Version, r.Owner, r.Address, r.Door = recordVersion, owner{n.options.Node, n.epoch, n.term()}, n.address, n.spki
	n.mu.Unlock()
	return n.seal(sealSession, sessionBucket+"/"+n.hashed(session), encode(r))
}

// openSession opens the value of a session. What cannot be read is counted.
func (n *Node) openSession(session string, sealed []byte) (sessionRecord, error) {
	var r sessionRecord
	plain, err := n.open(sealSession, sessionBucket+"/"+n.hashed(session), sealed)
	if err == nil {
		if err = decodeRecord(plain, &r); err != nil {
			n.sealer.refused.Add(1)
		}
	}
	return r, err
}
