package transport_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A header of an Origin is found however its name is spelled, and one without a value counts as none. An Origin that is missing has no headers.
func TestHeadersOfAnOrigin(t *testing.T) {
	o := &transport.Origin{RemoteAddr: "192.0.2.1:1", Headers: map[string][]string{"X-User": {"ada", "eve"}, "x-lower": {"1"}, "X-Empty": {}, "x-empty": {"2"}}}
	for name, want := range map[string]string{"X-User": "ada", "x-user": "ada", "X-Lower": "1", "X-Empty": "2", "X-None": ""} {
		if got := o.Header(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := (*transport.Origin)(nil).Header("X-User"); got != "" {
		t.Errorf("no origin has the header %q", got)
	}
	if got := o.Address(); got != "192.0.2.1:1" {
		t.Errorf("without a proxy the client is at %q", got)
	}
	if o.Client = "198.51.100.7:9"; o.Address() != "198.51.100.7:9" {
		t.Errorf("behind a proxy the client is at %q", o.Address())
	}
}
