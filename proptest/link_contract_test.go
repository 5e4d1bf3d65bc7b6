package proptest_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// However many pairs of links are tried, only those under trial are kept, with
// what was sent over them.
func TestLinkContractKeepsNoLinks(t *testing.T) {
	const most = 16 // of the latest trials, which are still on somebody's stack
	var opened []weak.Pointer[bent]
	proptest.LinkContract(t, func(t *testing.T) (a, b transport.Link) {
		if len(opened)%most == 0 && alive(opened) > most {
			t.Fatalf("%d of %d links are kept", alive(opened), len(opened))
		}
		near, far := inmem.Pipe(inmem.Options{})
		a = &bent{Link: near}
		opened = append(opened, weak.Make(a.(*bent)))
		return a, far
	}, proptest.ContractOptions{})

}

// alive counts those that garbage collection has left.
func alive(links []weak.Pointer[bent]) (n int) {
	runtime.GC()
	for _, link := range links {
		if link.Value() != nil {
			n++
		}
	}
	return n
}
