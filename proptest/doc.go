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
// The suites wait for events, never for time to pass; a hang guard of a minute
// turns an event that never comes into a failure that names it.
package proptest
