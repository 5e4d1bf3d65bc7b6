package streamable

import (
	"cmp"
	"slices"

	"github.com/bowline-mcp/bowline/transport"
)

// exchanges contains streams in the order of their numbers, in which they begin.
// There are mostly few. An idle session has none, and then uses less memory than with a
// map that was used once. The zero value is empty.
type exchanges []*exchange

// keptStreams is for how many streams an empty table keeps memory: one, for a client
// that makes one request after the other.
const keptStreams = 1

func (all exchanges) find(number transport.Stream) *exchange {
	if at, ok := all.search(number); ok {
		return all[at]
	}
	return nil
}

func (all exchanges) search(number transport.Stream) (at int, found bool) {
	return slices.BinarySearchFunc(all, number, func(s *exchange, number transport.Stream) int {
		return cmp.Compare(s.number, number)
	})
}

// add adds a stream with the highest number so far.
// Numbers only grow, so the table stays sorted.
func (all *exchanges) add(s *exchange) { *all = append(*all, s) }

// remove removes a stream, if it is there.
func (all *exchanges) remove(s *exchange) {
	at, ok := all.search(s.number)
	if !ok {
		return
	}
	if *all = slices.Delete(*all, at, at+1); len(*all) == 0 && cap(*all) > keptStreams {
		*all = nil
	}
}
