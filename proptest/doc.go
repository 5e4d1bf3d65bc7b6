// Package proptest holds the property suites behind the guarantees, for use on
// implementations of one's own as well.
//
// [LinkContract] checks what transport.Link promises:
//
//	func TestLinkContract(t *testing.T) {
//		proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
//			return inmem.Pipe(inmem.Options{})
//		})
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
//
// They run in virtual time, each history in a testing/synctest bubble. A
// failure is made smaller by rapid, and prints the history, how to replay it,
// and the faults that were done.
//
// In real time the suites wait for events, never for time to pass; a hang guard
// of a minute turns an event that never comes into a failure that names it.
package proptest
