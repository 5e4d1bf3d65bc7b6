package server

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/places"
	"github.com/bowline-mcp/bowline/internal/share"
)

// rounds are a server's calls that ask.
type rounds struct {
	options AskingOptions
	node    string
}

// init makes what calls that ask need. It panics if the options contradict each other, as New says.
func (rs *rounds) init(s *host, o AskingOptions) {
	keyring := keyringOf(s, o)
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
	s.askingCalls = asking.NewCalls(asking.NewRounds(limits, sealer, o.Spent), of)
}

// keyringOf returns the secrets that seal the state of calls: those of the program, or one that no
// other process has. A server of a fleet must not draw one, because another server of the fleet
// could not open what it seals.
func keyringOf(s *host, o AskingOptions) *asking.Keyring {
	keyring := &asking.Keyring{Secrets: o.Secrets}
	if o.Secrets == nil {
		if o.Fleet {
			panic("server: Asking: a Fleet needs Secrets")
		}
		secrets := [][]byte{make([]byte, 32)}
		_, _ = rand.Read(secrets[0]) // never fails
		keyring.Secrets = func() [][]byte { return secrets }
	}
	// The first call of Secrets. A mistake is one of the program now, and ends it; later it only fails calls.
	if err := keyring.Check(); err != nil {
		panic(fmt.Sprintf("server: Asking: Secrets: %v", err))
	}
	if o.Secrets == nil {
		return keyring
	}
	keyring.Secrets = func() (secrets [][]byte) { // from now on, a broken function fails only the call
		s.guarded("Asking.Secrets", func() { secrets = o.Secrets() })
		return secrets
	}
	keyring.Report = func(err error) {
		s.log().Error("bowline: calls that ask their client fail", "error", fmt.Errorf("server: Asking: Secrets: %w", err))
	}
	return keyring
}

// check panics if a feature asks in a way that the options do not allow.
func (rs *rounds) check(s *settings) {
	if s.asking != nil && s.asking.how == Waits && rs.options.Fleet && rs.node == "" {
		panic("in a Fleet the next round of a call may come to any node: set Options.Node, so that it finds the handler that Waits for it")
	}
}
