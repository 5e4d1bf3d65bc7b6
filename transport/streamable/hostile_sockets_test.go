package streamable

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Attackers that write to the socket itself have several connections each. During the
// attack a good client of each era is served, and at the end no memory is charged.
//
// Guarantees: G-0022.8, G-0022.13, G-0038.4
func TestHostileSockets(t *testing.T) {
	const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-User: hostile\r\nAccept: */*\r\nContent-Type: application/json\r\n"
	modern := "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: echo\r\n"
	chunked := func(chunks ...string) string {
		var text strings.Builder
		for _, chunk := range chunks {
			fmt.Fprintf(&text, "%x\r\n%s\r\n", len(chunk), chunk)
		}
		return head + modern + "Transfer-Encoding: chunked\r\n\r\n" + text.String()
	}
	for name, test := range map[string]struct {
		says string
		want string // beginning of the response; empty: the connection stays open, and nothing is read
	}{
		"a body that never comes":        {head + "Content-Length: 4000000\r\n\r\n", ""},
		"a body that stops":              {head + "Content-Length: 4000000\r\n\r\n{" + strings.Repeat(" ", 300<<10), ""},
		"headers that stop":              {head + "X-A: ", ""},
		"chunks that stop":               {chunked(`{"jsonrpc":"2.0",`, strings.Repeat(" ", 100<<10)), ""},
		"answers that nobody reads":      {strings.Repeat(head+modern+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(modernBody("echo", "")))+modernBody("echo", ""), 50), ""},
		"a body too long":                {head + "Content-Length: 4194305\r\n\r\n", "HTTP/1.1 413 "},
		"a body longer than it can be":   {chunked(strings.Repeat(" ", 5<<20)) + "0\r\n\r\n", "HTTP/1.1 413 "},
		"an invalid length":              {head + "Content-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
		"two lengths":                    {head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 400 "},
		"an invalid chunk":               {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 "},
		"headers without an end":         {head + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 1100), "HTTP/1.1 431 "},
		"a compressed body":              {head + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 415 "},
		"another host":                   {"POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 403 "},
		"another origin":                 {"POST /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 403 "},
		"not HTTP":                       {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n", "HTTP/1.1 400 "},
		"an unknown session":             {head + "Mcp-Session-Id: " + strings.Repeat("x", 5000) + "\r\nContent-Length: " + fmt.Sprint(len(echoBody)) + "\r\n\r\n" + echoBody, "HTTP/1.1 404 "},
		"JSON that nests without an end": {head + "Content-Length: 100000\r\n\r\n" + strings.Repeat("[", 100_000), "HTTP/1.1 400 "},
		"not text":                       {head + "Content-Length: 4\r\n\r\n\xff\xfe\x00\x01", "HTTP/1.1 400 "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, HandlerOptions{Identify: byUser})
			session := s.initialize("2025-11-25", userHeader("good"))
			var attack sync.WaitGroup
			conns := make([]net.Conn, 8)
			for n := range conns {
				conns[n] = s.dial()
				attack.Go(func() {
					_, _ = io.WriteString(conns[n], test.says) // the server may disconnect meanwhile
					if test.want == "" {
						return
					}
					answer, _ := io.ReadAll(io.LimitReader(conns[n], int64(len(test.want))))
					if string(answer) != test.want && len(answer) > 0 { // a reset may discard the response
						t.Errorf("got %q, want %q", answer, test.want)
					}
				})
			}
			for range 20 {
				if r := s.post(echoBody, session, userHeader("good")); r.status != 200 {
					t.Fatalf("with a session: got %+v, want 200", r)
				}
				if r := s.modern("echo", "", userHeader("good")); r.status != 200 {
					t.Fatalf("without a session: got %+v, want 200", r)
				}
			}
			attack.Wait()
			for _, conn := range conns {
				conn.Close()
			}
			for s.handler.bodies.held() > 0 {
				if s.do(http.MethodPut, "", nil); s.ctx.Err() != nil {
					t.Fatal("memory is held for bodies of closed connections, want none")
				}
			}
		})
	}
}
