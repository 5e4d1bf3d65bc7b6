package streamable

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// A hostileServer writes to the socket itself. It answers the method "good" properly
// and any other method with its attack, in which ID stands for the id of the request.
type hostileServer struct {
	address string
	attack  func(w io.Writer, id string) (stays bool) // stays reports whether the connection stays open

	serving sync.WaitGroup
	over    chan struct{}
}

func newHostileServer(t *testing.T, attack func(io.Writer, string) bool) *hostileServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &hostileServer{address: listener.Addr().String(), attack: attack, over: make(chan struct{})}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			s.serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		close(s.over)
		listener.Close()
		s.serving.Wait()
	})
	return s
}

func (s *hostileServer) serve(conn net.Conn) {
	stop := make(chan struct{})
	defer close(stop)
	s.serving.Go(func() { // ends before the test does
		select {
		case <-s.over:
		case <-stop:
		}
		conn.Close()
	})
	for r := bufio.NewReader(conn); ; {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		body, _ := io.ReadAll(request.Body)
		switch err := json.Unmarshal(body, &m); {
		case err != nil: // GET and DELETE have no body
			io.WriteString(conn, "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
		case m.ID == nil:
			io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
		case m.Method == "good":
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"good":true}}`, m.ID)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		case s.attack(conn, string(m.ID)):
			io.Copy(io.Discard, r) // until the client disconnects
			return
		default:
			return
		}
	}
}

const (
	okJSON   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	okEvents = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	answerID = `{"jsonrpc":"2.0","id":ID,"result":{}}`
)

// bomb returns that many zero bytes, compressed.
func bomb(size int) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for chunk := bytes.Repeat([]byte(" "), 1<<20); size > 0; size -= len(chunk) {
		w.Write(chunk)
	}
	w.Close()
	return packed.Bytes()
}

// says returns an attack that writes a text, and then closes the connection or keeps it
// open.
func says(text string, stays ...bool) func(io.Writer, string) bool {
	return func(w io.Writer, id string) bool {
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", id)) // the client may disconnect meanwhile
		return len(stays) > 0
	}
}

// repeats returns an attack without an end.
func repeats(head, text string) func(io.Writer, string) bool {
	return func(w io.Writer, id string) bool {
		_, err := io.WriteString(w, head)
		for text := []byte(strings.ReplaceAll(text, "ID", id)); err == nil; {
			_, err = w.Write(text)
		}
		return false
	}
}

// Each attack of a server that writes to the socket itself affects only the call that
// meets it. The caller gets an error that names the fault and says that the server may
// have executed the call. Nothing is left behind.
//
// Guarantees: G-0022.1, G-0022.14, G-0022.22
func TestHostileServers(t *testing.T) {
	const (
		stays   = true
		late    = "timed out (unknown)"
		lost    = "link lost (unknown)"
		refused = "refused (not sent)"
		large   = "is above the limit of 1048576"
	)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	packed := bomb(64 << 20)
	long := strings.Repeat("a", 1000)
	t.Run("attacks", func(t *testing.T) {
		for name, test := range map[string]struct {
			attack func(io.Writer, string) bool
			want   []string // parts of the error; none if the call succeeds
		}{
			"half a status line":          {says("HTTP/1.1 2"), []string{lost, "malformed HTTP"}},
			"half a header":               {says("HTTP/1.1 200 OK\r\nContent-Ty"), []string{lost, "malformed MIME header"}},
			"half a header, and no more":  {says("HTTP/1.1 200 OK\r\nContent-Ty", stays), []string{late}},
			"headers without an end":      {repeats("HTTP/1.1 200 OK\r\n", "X-A: "+long+"\r\n"), []string{lost, "headers exceeded 1048576 bytes"}},
			"a megabyte of headers":       {says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + strings.Repeat("X-A: "+long+"\r\n", 1100) + "\r\n"), []string{lost, "headers exceeded 1048576 bytes"}},
			"hints without an end":        {repeats("", "HTTP/1.1 103 Early Hints\r\nX-A: "+long+"\r\n\r\n"), []string{lost, "headers exceeded 1048576 bytes"}},
			"headers that are not text":   {says("HTTP/1.1 200 OK\r\nContent-Type: \xff\x00; ;;=\r\n\r\n"), []string{lost, "malformed MIME header"}},
			"another protocol":            {says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", stays), []string{lost, "status 101"}},
			"not HTTP":                    {says("SSH-2.0-OpenSSH_9.6\r\n"), []string{lost, "malformed HTTP"}},
			"an invalid status":           {says("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 999"}},
			"nothing":                     {says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 200", "without a message"}},
			"no content":                  {says("HTTP/1.1 204 No Content\r\n\r\n"), []string{lost, "status 204"}},
			"accepted, and never done":    {says("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 202"}},
			"a page about an error":       {repeats("HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\n\r\n", "<p>"), []string{lost, "status 500"}},
			"a delay of a century":        {says("HTTP/1.1 503 Busy\r\nRetry-After: 3153600000\r\nContent-Length: 0\r\n\r\n"), []string{refused, "status 503"}},
			"a redirect to itself":        {says("HTTP/1.1 307 Temporary Redirect\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 307", "redirects to /"}},
			"a redirect without the body": {says("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 302"}},
			"a redirect to a file":        {says("HTTP/1.1 307 Temporary Redirect\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"), []string{lost, "status 307"}},

			"a body that stalls":         {says(okJSON+"Content-Length: 100\r\n\r\n{", stays), []string{late}},
			"a text":                     {says("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + answerID), []string{lost, "status 200", `"text/plain"`}},
			"a page":                     {says("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>"), []string{lost, "status 200", `"text/html"`}},
			"a page that is called JSON": {says(okJSON + "\r\n<html>"), []string{lost, "status 200", "JSON that is not its response"}},
			"a length that is too long":  {says(okJSON + "Content-Length: 1000\r\n\r\n" + answerID), []string{lost, "unexpected EOF"}},
			"a length that is too short": {says(okJSON + "Content-Length: 10\r\n\r\n" + answerID), []string{lost, "status 200", "JSON that is not its response"}},
			"an invalid length":          {says(okJSON + "Content-Length: -5\r\n\r\n" + answerID), []string{lost, "bad Content-Length"}},
			"two lengths":                {says(okJSON + "Content-Length: 37\r\nContent-Length: 5\r\n\r\n" + answerID), []string{lost, "multiple Content-Length"}},
			"a length beyond all":        {says(okJSON + "Content-Length: 9223372036854775807\r\n\r\n{"), []string{lost, large}},
			"a body without an end":      {repeats(okJSON+"\r\n", long), []string{lost, large}},
			"an invalid chunk":           {says(okJSON + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), []string{lost, "invalid byte in chunk length"}},
			"a chunk beyond all":         {says(okJSON + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), []string{lost, "unexpected EOF"}},
			"not compressed":             {says(okJSON + "Content-Encoding: gzip\r\nContent-Length: 37\r\n\r\n" + answerID), []string{lost, "gzip: invalid header"}},
			"a bomb":                     {says(fmt.Sprintf(okJSON+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(packed), packed)), []string{lost, large}},
			"an answer to nothing":       {says(okJSON + "\r\n" + `{"jsonrpc":"2.0","id":"never asked","result":{}}`), []string{lost, "status 200", "JSON that is not its response"}},
			"an answer and an error":     {says(okJSON + "\r\n" + `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`), []string{"both a result and an error"}},
			"JSON that nests too deep":   {says(okJSON + "\r\n" + `{"jsonrpc":"2.0","id":ID,"result":` + strings.Repeat("[", 100_000)), []string{lost, "status 200"}},

			"a stream that stalls":               {says(okEvents+"data: {", stays), []string{late}},
			"a line without an end":              {repeats(okEvents+"data: ", long), []string{lost, large}},
			"an event without an end":            {repeats(okEvents, "data: "+long+"\n"), []string{lost, large}},
			"a comment without an end":           {repeats(okEvents+": ", long), []string{late}},
			"comments without an end":            {repeats(okEvents, ": "+long+"\n"), []string{late}},
			"an id without an end":               {repeats(okEvents+"id: ", long), []string{late}},
			"a field without an end":             {repeats(okEvents, long), []string{late}},
			"empty events without an end":        {repeats(okEvents, "data:\n\n"), []string{late}},
			"notifications without an end":       {repeats(okEvents, `data: {"jsonrpc":"2.0","method":"m"}`+"\n\n"), []string{late}},
			"requests without an end":            {repeats(okEvents, `data: {"jsonrpc":"2.0","id":7,"method":"m"}`+"\n\n"), []string{late}},
			"events without messages":            {repeats(okEvents, "data: x\n\n"), []string{lost, "10000 malformed frames"}},
			"a bomb of events":                   {says(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(packed)+1, packed), stays), []string{late}},
			"a close in an event":                {says(okEvents + "data: " + answerID), []string{lost, "ended before its response"}},
			"a close in an event after another":  {says(okEvents + "retry: 1\nid: 1\ndata:\n\ndata: {"), []string{lost, "open the event stream", "status 405"}},
			"an event that answers nothing":      {says(okEvents + `data: {"jsonrpc":"2.0","id":"never asked","result":{}}` + "\n\n"), []string{lost, "ended before its response"}},
			"an event of another request":        {says(okEvents + `data: {"jsonrpc":"2.0","id":1000,"result":{}}` + "\n\n"), []string{lost, "ended before its response"}},
			"many answers":                       {says(okEvents + strings.Repeat("data: "+answerID+"\n\n", 1000)), nil},
			"two session ids":                    {says(okJSON + "Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n\r\n" + answerID), []string{lost, "2 session ids"}},
			"a session id on two lines":          {says(okJSON + "Mcp-Session-Id: a\r\n b\r\n\r\n" + answerID), []string{lost, "session id, of 3 bytes"}},
			"a session id that is cut by a line": {says(okJSON + "Mcp-Session-Id: a\nX-Evil: b\r\n\r\n" + answerID), nil}, // net/http parses it so
			"a session id that is long":          {says(okJSON + "Mcp-Session-Id: " + strings.Repeat("a", 512<<10) + "\r\n\r\n" + answerID), []string{lost, "session id, of 524288 bytes"}},
			"a session id that is not text":      {says(okJSON + "Mcp-Session-Id: \xc3\xa9\r\n\r\n" + answerID), []string{lost, "session id, of 2 bytes"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				method := "bad"
				if strings.Contains(name, "session id") {
					method = protocol.MethodInitialize
				}
				callUnderAttack(t, method, test.attack, test.want)
			})
		}
	})
	runtime.ReadMemStats(&after)
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 1<<10 {
		t.Errorf("%d MiB were allocated, want less", allocated)
	}
}

// callUnderAttack makes a call that is attacked, and then one that is not.
func callUnderAttack(t *testing.T, method string, attack func(io.Writer, string) bool, want []string) {
	s := newHostileServer(t, attack)
	c := conn.New(&Client{URL: "http://" + s.address, MaxFrame: 1 << 20}, conn.Options{Tuning: conn.Tuning{
		StopGrace: hangGuard, RequestTimeout: hangGuard, BackoffMin: time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}})
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	if err := c.AwaitReady(t.Context()); err != nil { // within the timeout nothing but the call is to happen
		t.Fatal(err)
	}
	bad := conn.Request{Method: method, WaitForReady: true}
	if slices.Contains(want, "timed out (unknown)") {
		bad.Timeout = 200 * time.Millisecond
	}
	_, err := c.Call(t.Context(), bad)
	if (err != nil) != (len(want) > 0) {
		t.Errorf("the call returned %v", err)
	}
	text, call := fmt.Sprint(err), new(conn.CallError)
	if errors.As(err, &call) {
		text += fmt.Sprintf(": %s (%s)", call.Cause, call.Delivery)
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("the call returned %.500s, want %q in it", text, part)
		}
		if code, ok := strings.CutPrefix(part, "status "); ok {
			var status *transport.StatusError
			if !errors.As(err, &status) || fmt.Sprint(status.Status) != code {
				t.Errorf("got %.500v, want a *StatusError with %s", err, code)
			}
		}
		if strings.HasPrefix(part, "is above") && !errors.As(err, new(*transport.OversizedError)) {
			t.Errorf("got %.500v, want an *OversizedError", err)
		}
	}
	good := conn.Request{Method: "good", WaitForReady: true, Repeatable: true, Retries: 3} // a connection may be closing
	if result, err := c.Call(t.Context(), good); err != nil || string(result) != `{"good":true}` {
		t.Errorf("the next call: got %s, %v, want %q", result, err, `{"good":true}`)
	}
	c.Stop()
	if err := <-ended; err != nil {
		t.Errorf("Close returned %v, want nothing left behind", err)
	}
}
