package web

import (
	"net"
	"net/url"
	"runtime"
	"testing"
)

// Addresses are of one origin whether they name its default port or not, and however they
// spell its host.
//
// Guarantees: G-0022.7, G-0034.1
func TestSameHostComparesOrigins(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"http://host/a", "http://host/b?c", true},
		{"http://host/", "http://host:80/", true},
		{"https://host:443/", "https://host/", true},
		{"https://Host.Example/", "https://host.example/", true},
		{"http://[::1]/", "http://[::1]:80/", true},
		{"http://user:secret@host/", "http://host/", true},
		{"http://host/", "https://host/", false},
		{"http://host/", "http://host:443/", false},
		{"https://host/", "https://host:80/", false},
		{"http://host/", "http://host:8080/", false},
		{"http://host/", "http://host.evil.example/", false},
		{"http://[::1]/", "http://[::2]/", false},
		{"http://host:80/", "https://host:443/", false},
		{"http://host:8443/", "https://host:8443/", false},
	} {
		a, errA := url.Parse(c.a)
		b, errB := url.Parse(c.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if SameHost(a, b) != c.same || SameHost(b, a) != c.same {
			t.Errorf("%s and %s: got %t, want %t", a, b, !c.same, c.same)
		}
	}
}

// The connections of a client without an http.Client of its own poll before they wait.
//
// Guarantees: G-0065.4
func TestConnectionsOfThePoolPoll(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := newTransport().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(interface{ NetConn() net.Conn }); ok != (runtime.GOOS != "windows") {
		t.Errorf("the connection is a %T: it polls is %t", c, ok)
	}
}
