package sse

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client that announces a body and never sends it gets its refusal, and soon afterwards
// loses its connection.
//
// Guarantees: G-0034.7
func TestRefusalEndsTheConnectionWithoutABody(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBody: 100})
	v := s.visit()
	for name, test := range map[string]struct{ path, header, want string }{
		"a foreign host":   {"/sse", "Host: evil.example\r\nContent-Length: 9", "403"},
		"no session":       {"/sse", "Host: localhost\r\nTransfer-Encoding: chunked", "400"},
		"a body too large": {strings.TrimPrefix(v.endpoint, strings.TrimSuffix(s.url, "/sse")), "Host: localhost\r\nContent-Length: 101", "413"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/sse"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\n%s\r\nContent-Type: application/json\r\n\r\n", test.path, test.header)
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			said, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 "+test.want) {
				t.Errorf("got %.100q, %v, want status %s and the end of the connection", said, err, test.want)
			}
		})
	}
}
