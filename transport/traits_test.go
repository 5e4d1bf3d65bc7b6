package transport_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

type wrappedReceiver struct{ transport.Receiver }

func (w wrappedReceiver) Unwrap() transport.Receiver { return w.Receiver }

type wrappedExchange struct{ transport.Exchange }

func (w wrappedExchange) Unwrap() transport.Exchange { return w.Exchange }

type doubter struct{ transport.Receiver }

func (doubter) Doubt(transport.Tag, error) {}

type reserver struct{ transport.Exchange }

func (reserver) Reserve(int) bool { return true }

type wrappedLink struct{ transport.Link }

func (w wrappedLink) Unwrap() transport.Link { return w.Link }

type describedLink struct{ transport.Link }

func (describedLink) LinkTraits() transport.LinkTraits {
	return transport.LinkTraits{RequestPerMessage: true}
}

type wrappedTransport struct{ transport.Transport }

func (w wrappedTransport) Unwrap() transport.Transport { return w.Transport }

// As looks through wrappers of each kind, outermost first, and finds nothing in nil.
//
// Guarantees: G-0014.26
func TestAsLooksThroughWrappers(t *testing.T) {
	if d, ok := transport.As[transport.Doubter](wrappedReceiver{wrappedReceiver{doubter{}}}); !ok || d != (doubter{}) {
		t.Errorf("of a wrapped receiver: got %v, %t", d, ok)
	}
	if r, ok := transport.As[transport.Reserver](wrappedExchange{reserver{}}); !ok || r != (reserver{}) {
		t.Errorf("of a wrapped exchange: got %v, %t", r, ok)
	}
	for name, v := range map[string]any{"nil": nil, "a wrapper of nil": wrappedReceiver{}, "a receiver": wrappedReceiver{doubter{}}} {
		if r, ok := transport.As[transport.Reserver](v); ok {
			t.Errorf("of %s: got %v", name, r)
		}
	}
	own := &counted{Transport: inmem.New(func(transport.Link) {}, inmem.Options{})}
	if got, want := transport.TraitsOf(own), (transport.Traits{Name: "counted", OpensAtOnce: true}); got != want {
		t.Errorf("got the traits %+v, want %+v", got, want)
	}
	link := wrappedLink{wrappedLink{describedLink{}}}
	if got := transport.LinkTraitsOf(link); !got.RequestPerMessage {
		t.Errorf("a wrapped link has the traits %+v", got)
	}
	if got := transport.TraitsOf(wrappedTransport{own}); got.Name != "counted" {
		t.Errorf("a wrapped transport has the traits %+v", got)
	}
	if got := transport.LinkTraitsOf(nil); got != (transport.LinkTraits{}) {
		t.Errorf("no link has the traits %+v", got)
	}
}
