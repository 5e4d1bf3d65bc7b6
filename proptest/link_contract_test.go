package proptest_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// LinkContract keeps only the links that it is testing, and the frames sent over them, for
// any number of pairs.
func TestLinkContractKeepsNoLinks(t *testing.T) {
	const most = 16 // links of the latest tests, which may still be on a stack
	var opened []weak.Pointer[brokenLink]
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		if len(opened)%most == 0 && alive(opened) > most {
			t.Fatalf("%d of %d links are still in memory", alive(opened), len(opened))
		}
		near, far := inmem.Pipe(inmem.Options{})
		a = &brokenLink{Link: near}
		opened = append(opened, weak.Make(a.(*brokenLink)))
		return a, far
	}, proptest.ContractOptions{})

}

// alive counts the links that garbage collection has not freed.
func alive(links []weak.Pointer[brokenLink]) (n int) {
	runtime.GC()
	for _, link := range links {
		if link.Value() != nil {
			n++
		}
	}
	return n
}
