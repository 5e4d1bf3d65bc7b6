// Package stores contains the contracts of the stores that a server may share with other
// processes, as test suites. Use it to test a store of your own.
//
// Each suite gets a function that opens empty stores, for instance one that returns two
// stores of the same new database:
//
//	func TestLogins(t *testing.T) {
//		stores.LoginStoreContract(t, func(t *testing.T) stores.Logins {
//			dir := t.TempDir()
//			return stores.Logins{A: auth.NewFiles(dir, nil), B: auth.NewFiles(dir, nil)}
//		}, proptest.ContractOptions{})
//	}
//
// A suite calls the function for each of its clauses and for each case of its properties,
// hundreds of times, so release resources in clean-ups of the test. The stores must be able
// to reach what they share: an unexpected error fails the test. The suites run in real time,
// and wait for events; if one does not come, the test fails after ContractOptions.Guard.
//
// The suites call a store from several goroutines, and wait for all of them.
//
// See package proptest for how to replay a failure.
package stores

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/proptest"
)

// A cleanupTB is one test, or one case of a property. Its clean-ups run at its end.
type cleanupTB interface {
	rapid.TB
	Cleanup(func())
}

// guarded returns a context that ends if the test hangs.
func guarded(t cleanupTB, o proptest.ContractOptions) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.Wait(), errors.New("the store does not answer"))
	t.Cleanup(cancel)
	return ctx
}

// A clause is one thing that a contract says of S.
type clause[S any] struct {
	name  string
	check func(S)
}

// contract checks each clause with stores of its own. At last random uses of stores must agree with a model.
func contract[S any](t *testing.T, with func(*testing.T, cleanupTB) S, clauses []clause[S], agreement string, agrees func(S, *rapid.T)) {
	for _, one := range clauses {
		t.Run(one.name, func(t *testing.T) { one.check(with(t, t)) })
	}
	t.Run(agreement, func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { agrees(with(t, rt), rt) })
	})
}
