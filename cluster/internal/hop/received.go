package hop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/bowline-mcp/bowline/internal/network"
)

// headerReceived tells how the first node has received a request. It replaces what the client may
// have sent under this name, and only the door of another node believes it. The X-Forwarded
// headers of a balancer before the first node are passed on as they are, so that a program finds
// in them what it finds at the first node.
const headerReceived = "Bowline-Received"

// received contains what a node knows of a request and its headers do not say.
type received struct {
	remote string // the address of the client, or of the proxy before the node
	client string // the address of the client, if that node trusts the proxy; otherwise ""
	local  string // the address on which the node has received the request; "" if unknown
	tls    bool
}

func receivedOf(r *http.Request) received {
	f := received{remote: r.RemoteAddr, client: network.Client(r.Context()), tls: r.TLS != nil}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		f.local = local.String()
	}
	return f
}

func (f received) String() string {
	scheme := "http"
	if f.tls {
		scheme = "https"
	}
	values := url.Values{"for": {f.remote}, "by": {f.local}, "proto": {scheme}}
	if f.client != "" {
		values.Set("client", f.client)
	}
	return values.Encode()
}

// parseReceived parses the value of a header. It is an error if there is none.
func parseReceived(value string) (received, error) {
	values, err := url.ParseQuery(value)
	if err != nil || values.Get("proto") != "http" && values.Get("proto") != "https" {
		return received{}, fmt.Errorf("cluster: %s: cannot read %.200q", headerReceived, value)
	}
	return received{remote: values.Get("for"), client: values.Get("client"), local: values.Get("by"), tls: values.Get("proto") == "https"}, nil
}

// restore returns the request as the first node has received it, at the path below prefix. A
// program that looks at the TLS connection must not take the certificate of a node for that of a
// client, so there is none.
func (f received) restore(r *http.Request, prefix string) *http.Request {
	ctx := r.Context()
	if local, err := netip.ParseAddrPort(f.local); err == nil {
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(net.TCPAddrFromAddrPort(local)))
	}
	if f.client != "" {
		ctx = network.WithClient(ctx, f.client)
	}
	r = r.WithContext(ctx)
	r.Header.Del(headerReceived)
	r.RemoteAddr = f.remote
	r.TLS = nil
	if f.tls {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	at := *r.URL
	at.Path = strings.TrimPrefix(at.Path, prefix)
	at.RawPath = strings.TrimPrefix(at.RawPath, prefix)
	r.URL, r.RequestURI = &at, at.RequestURI()
	return r
}
