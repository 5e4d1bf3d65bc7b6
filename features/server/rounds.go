package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
)

// AskingOptions limit calls that ask their client. The zero value of each field means
// its default.
type AskingOptions struct {
	// Secrets returns the secrets that encrypt the states which are stored at clients
	// between rounds. Each needs at least 32 random bytes. The first one seals new
	// states; any of them opens a state. To replace a secret while calls go on: add the
	// new one at the end on every node, then move it to the front on every node, and
	// remove the old one when Expiry has passed. New calls Secrets, and panics if there
	// is none or one is too short. Later, Secrets is called concurrently, for each state,
	// and has to return at once. If there is no valid secret then, the call fails, and
	// the log says why. Default: a random one for each process.
	Secrets func() [][]byte

	// Fleet says that the next round of a call may arrive at another node. It
	// requires Secrets. Features that use Waits also require Options.Node, and that the
	// nodes forward requests to each other (streamable.HandlerOptions.Router).
	Fleet bool

	// Spent remembers, for all nodes, which states were used. Default: the memory of
	// this node, for the latest 65,536 states.
	Spent Spent

	Expiry          time.Duration // how long a question can be answered; default 10 minutes
	CallExpiry      time.Duration // the time for a call, all rounds included; default 1 hour
	MaxRounds       int           // the maximum number of rounds of a call; default 32
	MaxWaiting      int           // how many calls may have a handler that waits, in 2026-07-28; default 1,024, which clients share: one alone has 38 %, and fewer than 64 go to whom comes first
	MaxWaitingBytes int           // the size of the requests of these calls, in bytes; default 24 MiB, a sixteenth of Options.MaxMemory, which clients share; a larger request is refused
}

// Spent remembers which states were used, so that no state is used twice.
type Spent interface {
	// Spend reports whether the state is used for the first time. The implementation
	// may forget the state after the given time. If Spend returns an error, the state
	// is rejected.
	Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error)
}

// rounds are a server's calls that ask.
type rounds struct {
	*asking.Calls
	options AskingOptions
	node    string
}

func (rs *rounds) init(s *Server, o AskingOptions) {
	keyring := &asking.Keyring{Secrets: o.Secrets}
	if o.Secrets == nil {
		if o.Fleet {
			panic("server: Asking: a Fleet needs Secrets")
		}
		secrets := [][]byte{make([]byte, 32)}
		_, _ = rand.Read(secrets[0]) // never fails
		keyring.Secrets = func() [][]byte { return secrets }
	}
	if err := keyring.Check(); err != nil {
		panic(fmt.Sprintf("server: Asking: Secrets: %v", err))
	}
	if o.Secrets != nil { // from now on, a broken function fails only the call
		keyring.Secrets = func() (secrets [][]byte) {
			s.guarded("Asking.Secrets", func() { secrets = o.Secrets() })
			return secrets
		}
		keyring.Report = func(err error) {
			s.log().Error("bowline: calls that ask their client fail", "error", fmt.Errorf("server: Asking: Secrets: %w", err))
		}
	}
	o.Expiry = cmp.Or(max(o.Expiry, 0), 10*time.Minute)
	o.CallExpiry = cmp.Or(max(o.CallExpiry, 0), time.Hour)
	o.MaxRounds = cmp.Or(max(o.MaxRounds, 0), 32)
	o.MaxWaiting = cmp.Or(max(o.MaxWaiting, 0), 1024)
	o.MaxWaitingBytes = cmp.Or(max(o.MaxWaitingBytes, 0), s.options.MaxMemory/16)
	rs.options, rs.node = o, s.options.Node
	limits := asking.Limits{Expiry: o.Expiry, CallExpiry: o.CallExpiry, MaxRounds: o.MaxRounds}
	sealer := &asking.Sealer{Audience: s.info.Name, Node: s.options.Node, Keyring: keyring}
	// shared: calls that wait for their client | AskingOptions.MaxWaiting places | one | the call is refused with -32050 | `Options.Audit`
	// shared: their requests | AskingOptions.MaxWaitingBytes bytes | 64 KiB | the call is refused with -32050 | `Options.Audit`
	of := places.Places{Handlers: share.NewPlaces(o.MaxWaiting), Bytes: share.NewLasting(o.MaxWaitingBytes, places.Piece(o.MaxWaitingBytes, s.options.MaxMemory/16))}
	rs.Calls = asking.NewCalls(asking.NewRounds(limits, sealer, o.Spent), of)
}

// check panics if a feature asks in a way that the options do not allow.
func (rs *rounds) check(s *settings) {
	if s.asking != nil && s.asking.how == Waits && rs.options.Fleet && rs.node == "" {
		panic("in a Fleet the next round of a call may come to any node: set Options.Node, so that it finds the handler that Waits for it")
	}
}
