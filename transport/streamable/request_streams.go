package streamable

import (
	"cmp"
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// requestStreams are streams by number, in order: they are begun in that order, and
// mostly few. An idle session, which has none, holds less of them than of a map that
// was used once. The zero value is empty.
type requestStreams []*requestStream

// keptStreams is for how many streams an empty table keeps room: for a client that asks
// one thing after the other.
const keptStreams = 1

func (all requestStreams) find(number transport.Stream) *requestStream {
	if at, ok := all.search(number); ok {
		return all[at]
	}
	return nil
}

func (all requestStreams) search(number transport.Stream) (at int, found bool) {
	return slices.BinarySearchFunc(all, number, func(s *requestStream, number transport.Stream) int {
		return cmp.Compare(s.number, number)
	})
}

// add adds a stream whose number is higher than those before.
func (all *requestStreams) add(s *requestStream) { *all = append(*all, s) }

// remove forgets a stream, if it is there.
func (all *requestStreams) remove(s *requestStream) {
	at, ok := all.search(s.number)
	if !ok {
		return
	}
	if *all = slices.Delete(*all, at, at+1); len(*all) == 0 && cap(*all) > keptStreams {
		*all = nil
	}
}
