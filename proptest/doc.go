// Package proptest contains the property tests behind Bowline's guarantees. Use it to test
// a transport or a store of your own.
//
// If you write a transport, test it with [All], which runs everything below but
// StoreContract. It needs a function that listens, and returns a transport to itself:
//
//	func TestTransport(t *testing.T) {
//		proptest.All(t, proptest.Harness{Listen: func(t *testing.T, accept func(transport.Link)) transport.Transport {
//			return inmem.New(accept, inmem.Options{})
//		}})
//	}
//
// [LinkContract] alone checks what transport.Link promises:
//
//	func TestLinkContract(t *testing.T) {
//		proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
//			return inmem.Pipe(inmem.Options{})
//		}, proptest.ContractOptions{})
//	}
//
// If you write a registry.Store, test it with [StoreContract], which needs two stores that
// share their names:
//
//	func TestStoreContract(t *testing.T) {
//		proptest.StoreContract(t, func(t *testing.T) proptest.Stores {
//			names := new(registry.Local)
//			return proptest.Stores{A: names, B: names}
//		}, proptest.ContractOptions{})
//	}
//
// The other suites check a Conn over your transport, while package fault injects faults. The
// peer must echo. They do not replace LinkContract, because a Conn hides many mistakes of a
// link.
//
//	func TestCorrelation(t *testing.T) {
//		peer := inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
//		proptest.Correlation(t, peer, proptest.Options{})
//	}
//
// These are the suites for a Conn:
//
//   - [Correlation]: one outcome per call, and no result for another call
//   - [NoLeaks]: no memory is kept for calls that have ended
//   - [CancelIdempotent]: cancelling ten times has the same effect as cancelling once
//   - [StopAnywhere]: Stop and Close work after every step of a history
//   - [Restart]: the Conn survives the loss of its link at every frame of a history
//   - [Soak]: any number of calls under random faults end with the outcome that the
//     peer has counted
//
// A history is one generated sequence of calls, cancellations and faults.
//
// # The peer
//
// The peer must answer each request with its params, whatever its method, and ignore
// notifications. [Echo] does so, and [EchoHandler] does for a Conn of yours. One of the
// notifications is "$/cancelRequest", by which the suites see that an abandoned request is
// announced; the peer need not act on it. If requests must have a certain form, set
// Options.Params. If a link begins with a handshake, set Options.Conn.
//
// # Time
//
// The suites run in virtual time: each history runs in a testing/synctest bubble, where a
// timeout takes no time. In real time, which descriptors, processes and sockets need, the
// suites wait for events and never for time to pass. If an event never comes, the test fails
// after a minute with the name of the event. Set Guard in the options, or the flag
// -bowline.guard, to wait longer.
//
// # Replaying a failure
//
// Package rapid shrinks a failure, and prints the history, the injected faults, and two ways
// to replay it:
//
//	go test -run '^TestCorrelation$' . -args -rapid.seed=15098074356946159358
//	go test -run '^TestCorrelation$' . -args -rapid.failfile=testdata/rapid/TestCorrelation/….fail
//
// The seed generates the same histories in the same order, and so finds and shrinks the same
// failure. The file contains only the shrunken history. Rapid writes it to testdata/rapid, and
// runs it first from then on. Both replay the generated values exactly, but the scheduler
// decides what goroutines do at the same instant. If a failure depends on that, rapid calls it
// flaky, and you may have to repeat the test (-count). -rapid.shrinktime limits the time for
// shrinking.
//
// # Many histories
//
// Set the number of histories with -bowline.iterations, or with -rapid.checks for a test that
// does not set it. Soak uses -bowline.calls and -bowline.seed.
//
// Under the race detector, a process grows by about 40 kB with each bubble, of which
// StopAnywhere and Restart need a dozen for each history. (As of Go 1.26, the detector keeps a
// context for each bubble in which a timer has fired.) So run ten thousand histories in several
// processes of a few hundred each.
package proptest
