package restore

import (
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A numbered is a server of which only the epoch is known.
type numbered uint64

func (n numbered) Epoch() uint64        { return uint64(n) }
func (numbered) Modern() bool           { return false }
func (numbered) Version() string        { return protocol.LatestLegacy }
func (numbered) Offers(string) bool     { return false }
func (numbered) Has(string) bool        { return false }
func (numbered) Members() protocol.Meta { return nil }

// Close waits for a Restored as long as a server is ready that the program does not know, also if the loss of the server before was
// too short for anybody to notice, and for a Lost as long as the server is gone that it knows.
//
// Guarantees: G-0030.9
func TestWhatTheProgramHasYetToLearn(t *testing.T) {
	for name, test := range map[string]struct {
		watching   bool
		known, now Server
		status     conn.Status
		behind     bool
		gone       uint64
	}{
		"it knows the server":                    {true, numbered(1), numbered(1), conn.Status{State: conn.Ready, Epoch: 1}, false, 0},
		"the server was replaced":                {true, numbered(1), numbered(2), conn.Status{State: conn.Ready, Epoch: 2}, true, 1},
		"the first server":                       {true, nil, numbered(1), conn.Status{State: conn.Ready, Epoch: 1}, true, 0},
		"no server yet":                          {true, nil, nil, conn.Status{State: conn.Initializing, Epoch: 1}, false, 0},
		"the server is gone":                     {true, numbered(1), numbered(1), conn.Status{State: conn.Backoff, Epoch: 1}, false, 1},
		"the next one is not ready":              {true, numbered(1), numbered(1), conn.Status{State: conn.Initializing, Epoch: 2}, false, 1},
		"nothing is restored, so nobody reports": {false, nil, numbered(1), conn.Status{State: conn.Ready, Epoch: 1}, false, 0},
	} {
		r := &Restorer{watching: test.watching, known: test.known}
		if behind, gone := r.IsBehind(test.status, test.now); behind != test.behind || gone != test.gone {
			t.Errorf("%s: behind %t, gone %d; want %t and %d", name, behind, gone, test.behind, test.gone)
		}
	}
}
