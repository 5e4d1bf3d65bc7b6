// Package proptest holds the property suites behind the guarantees, for use on
// implementations of one's own as well.
//
// [LinkContract] checks what transport.Link promises. It is the suite that a
// transport must pass: the suites of a Conn below see what a Conn makes of a
// link, and a Conn hides much of what a link does wrong.
//
//	func TestLinkContract(t *testing.T) {
//		proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
//			return inmem.Pipe(inmem.Options{})
//		}, proptest.ContractOptions{})
//	}
//
// [StoreContract] checks what registry.Store promises, on two of them that share
// their names:
//
//	func TestStoreContract(t *testing.T) {
//		proptest.StoreContract(t, func(t *testing.T) proptest.Stores {
//			names := new(registry.Local)
//			return proptest.Stores{A: names, B: names}
//		}, proptest.ContractOptions{})
//	}
//
// The others check a Conn on a transport whose peer echoes, with the faults of
// package fault put in between:
//
//	func TestCorrelation(t *testing.T) {
//		peer := inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
//		proptest.Correlation(t, peer, proptest.Options{})
//	}
//
// There are these:
//
//   - [Correlation]: one outcome per call, and no result for another call
//   - [NoLeaks]: nothing is kept of calls that have ended
//   - [CancelIdempotent]: cancelling ten times is cancelling once
//   - [StopAnywhere]: Stop and Close after every step of a history
//   - [Restart]: the loss of a link at every frame of a history
//   - [Soak]: any number of calls, and every fault at random, against the books
//     of the peer
//
// # The peer
//
// The peer answers each request by its params, whatever its method, and
// ignores notifications: [Echo] does, and [EchoHandler] for a Conn of one's own.
// "$/cancelRequest" is such a notification; by it the suites see that an
// abandoned request is announced, and no peer has to act on it. Where requests
// must be of some form, Options.Params gives them one; where a link begins with
// a handshake, Options.Conn has it.
//
// # Time
//
// The suites run in virtual time, each history in a testing/synctest bubble,
// where a time-out costs nothing. In real time, for descriptors, processes and
// sockets, they wait for events, never for time to pass; a hang guard
// turns an event that never comes into a failure that names it. It waits for a
// minute, or as long as Guard of the options or the flag -bowline.guard says.
//
// # Replaying a failure
//
// A failure is made smaller by rapid, and prints the history, the faults that
// were done, and two ways to replay it:
//
//	go test -run '^TestCorrelation$' . -args -rapid.seed=15098074356946159358
//	go test -run '^TestCorrelation$' . -args -rapid.failfile=testdata/rapid/TestCorrelation/….fail
//
// The seed makes the same histories in the same order, and so finds and
// shrinks the same failure. The file, which rapid leaves under testdata/rapid
// and runs first from then on, is the small history itself. Both are exact for
// what is drawn. What goroutines do at the same instant is up to the scheduler:
// a failure that hangs on that may take some repetition (-count), and rapid
// calls it flaky. -rapid.shrinktime is for how long a failure is made smaller.
//
// # Many histories
//
// -bowline.iterations, or -rapid.checks where a test does not say how many, is
// the number of histories; -bowline.calls and -bowline.seed are for Soak.
//
// Under the race detector a process grows by some 40 kB with each bubble, of
// which StopAnywhere and Restart need a dozen per history: as of Go 1.26 the
// detector keeps a context of each bubble in which a timer has fired. Ten
// thousand histories are better run in several processes of some hundred.
package proptest
