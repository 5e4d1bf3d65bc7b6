package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serveHTTP2 serves a handler over HTTP/2. It also returns the connections of a Pool, which
// trust the server.
func serveHTTP2(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *http.Transport) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := newTransport()
	pool.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
	pool.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	t.Cleanup(pool.CloseIdleConnections)
	return server, pool
}

// heap returns the bytes that are in use.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A stream over HTTP/2 that is not read holds little, whatever the server sends.
//
// Guarantees: G-0022.14
func TestUnreadStreamOverHTTP2HoldsLittle(t *testing.T) {
	const streams, most = 50, 128 << 10
	var serving sync.WaitGroup
	serving.Add(streams)
	server, pool := serveHTTP2(t, func(w http.ResponseWriter, _ *http.Request) {
		defer serving.Done()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		for range 16 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return // the client takes no more
			}
		}
	})
	before := heap()
	var bodies []io.Closer
	for range streams {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := Do(&http.Client{Transport: pool}, request)
		if err != nil {
			t.Fatal(err)
		}
		if response.ProtoMajor != 2 {
			t.Fatalf("got %s, want HTTP/2", response.Proto)
		}
		bodies = append(bodies, response.Body)
	}
	serving.Wait()
	if each := (heap() - before) / streams; each > most {
		t.Errorf("an unread stream holds %d bytes, want at most %d", each, most)
	}
	for _, body := range bodies {
		body.Close()
	}
}

// A silentConn loses what is written to it once it is silent, as the network does with a
// peer that has disappeared.
type silentConn struct {
	net.Conn
	silent atomic.Bool
}

func (c *silentConn) Write(p []byte) (int, error) {
	if c.silent.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// If the other end of a connection over HTTP/2 disappears without a word, only the requests
// that use the connection then are lost: later ones use another.
func TestDeadConnectionOverHTTP2IsReplaced(t *testing.T) {
	const patience = 5 * time.Second
	server, pool := serveHTTP2(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })
	if c := pool.HTTP2; c == nil || c.SendPingTimeout == 0 || c.PingTimeout == 0 || c.SendPingTimeout+c.PingTimeout > 10*time.Second {
		t.Fatalf("got the configuration %+v, want to notice a dead connection within 10 s", c)
	}
	pool.HTTP2.SendPingTimeout, pool.HTTP2.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	var dialed []*silentConn
	pool.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		dialed = append(dialed, &silentConn{Conn: conn})
		return dialed[len(dialed)-1], err
	}
	if err := get(t, pool, server.URL, patience); err != nil {
		t.Fatal(err)
	}
	dialed[0].silent.Store(true)
	if err := get(t, pool, server.URL, patience); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request over the dead connection: got %v, want the loss of the connection", err)
	}
	if err := get(t, pool, server.URL, patience); err != nil || len(dialed) != 2 {
		t.Errorf("the next request: got %v and %d connections, want another connection", err, len(dialed))
	}
}

// get sends a request and waits for the status.
func get(t *testing.T, pool *http.Transport, address string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Do(&http.Client{Transport: pool}, request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
