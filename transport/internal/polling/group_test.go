//go:build unix

package polling

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns both ends of a TCP connection on this machine. The second one is of the group.
func pair(t *testing.T, g *Group) (theirs *net.TCPConn, ours net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err = g.Listener(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); ours.Close() })
	return dialled.(*net.TCPConn), ours
}

// A connection of a group polls only after it has received five messages in a row, and not
// for 100 ms after another connection has received one.
//
// Guarantees: G-0065.4
func TestOnlyTheConnectionThatAloneReceivesPolls(t *testing.T) {
	synctest.Test(t, testOnlyTheConnectionThatAloneReceivesPolls)
}

func testOnlyTheConnectionThatAloneReceivesPolls(t *testing.T) {
	pass := func(d time.Duration) { <-time.NewTimer(d).C }
	g := new(Group)
	reader := func() *Reader { return &Reader{group: g, into: make([]byte, 10), tried: true} }
	first, second := reader(), reader()
	for n := range 5 {
		if first.mayPoll() {
			t.Fatalf("the connection polls after %d messages, want 5", n)
		}
		first.found()
	}
	pass(aloneFor - 1)
	if first.mayPoll() {
		t.Fatal("the connection polls before it was alone for 100 ms")
	}
	if pass(1); !first.mayPoll() {
		t.Fatal("the connection does not poll although it alone has received 5 messages in 100 ms")
	}
	second.found()
	if first.mayPoll() || second.mayPoll() {
		t.Error("a connection polls while two receive messages")
	}
	for range 5 {
		first.found()
		second.tried = false
		second.found() // more of the message before
		pass(aloneFor / 5)
	}
	if !first.mayPoll() {
		t.Error("the connection does not poll: the rest of another's long message was taken for messages")
	}
	alone := &Reader{into: make([]byte, 10)}
	if !alone.mayPoll() {
		t.Error("a reader without a group does not poll")
	}
}

// A read of one byte, with which net/http watches a connection while it serves a request,
// does not poll.
//
// Guarantees: G-0065.4
func TestAReadOfOneByteDoesNotPoll(t *testing.T) {
	if r := (&Reader{into: make([]byte, 1)}); r.mayPoll() {
		t.Error("a read of one byte polls")
	}
}

// A deadline ends a read, whether it polls or waits, also if it is set during the read.
//
// Guarantees: G-0065.5
func TestADeadlineEndsARead(t *testing.T) {
	for name, set := range map[string]func(net.Conn, time.Time) error{"SetDeadline": net.Conn.SetDeadline, "SetReadDeadline": net.Conn.SetReadDeadline} {
		t.Run(name, func(t *testing.T) {
			_, ours := pair(t, new(Group))
			polled := ours.(*conn)
			polled.reader.group, polled.reader.poller = nil, poller{most: 1 << 30, longest: time.Hour, every: 1}
			ended := make(chan error, 1)
			go func() {
				_, err := ours.Read(make([]byte, 10))
				ended <- err
			}()
			polled.awaitRead()
			if err := set(ours, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			err := <-ended
			var failed *net.OpError
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &failed) || failed.Op != "read" {
				t.Errorf("the read ended with %v, want a read error that is os.ErrDeadlineExceeded", err)
			}
		})
	}
}

// A connection of a group reads, writes and fails as a *net.TCPConn does.
//
// Guarantees: G-0065.5
func TestAConnectionOfAGroupIsATCPConnection(t *testing.T) {
	t.Run("text", func(t *testing.T) {
		theirs, ours := pair(t, new(Group))
		long := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB, more than a socket takes at once
		written := make(chan error, 1)
		go func() {
			_, err := ours.Write(long)
			written <- err
		}()
		got := make([]byte, len(long))
		if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, long) {
			t.Fatalf("the peer got other bytes than were written (error: %v)", err)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		go theirs.Write(long)
		if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, long) {
			t.Fatalf("got other bytes than the peer has written (error: %v)", err)
		}
	})
	t.Run("a part", func(t *testing.T) {
		theirs, ours := pair(t, new(Group))
		if err := errors.Join(theirs.SetReadBuffer(64<<10), ours.(*conn).SetWriteBuffer(64<<10)); err != nil {
			t.Fatal(err)
		}
		written := make(chan int, 1)
		go func() {
			n, err := ours.Write(make([]byte, 64<<20)) // more than sockets take
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write returned %v, want %v", err, os.ErrDeadlineExceeded)
			}
			ours.Close()
			written <- n
		}()
		if _, err := io.ReadFull(theirs, make([]byte, 8<<20)); err != nil { // more than fits at once
			t.Fatal(err)
		}
		ours.SetWriteDeadline(time.Unix(1, 0))
		rest, err := io.Copy(io.Discard, theirs)
		if n := <-written; int64(n) != 8<<20+rest || err != nil {
			t.Errorf("Write counted %d bytes, want the %d that the peer got (error: %v)", n, 8<<20+rest, err)
		}
	})
	for _, test := range []struct {
		name string
		do   func(theirs *net.TCPConn, ours net.Conn) error
	}{
		{"end", func(theirs *net.TCPConn, ours net.Conn) error {
			theirs.Close()
			_, err := ours.Read(make([]byte, 10))
			return err
		}},
		{"reset", func(theirs *net.TCPConn, ours net.Conn) error {
			theirs.SetLinger(0)
			theirs.Close()
			_, err := ours.Read(make([]byte, 10))
			return err
		}},
		{"closed, read", func(_ *net.TCPConn, ours net.Conn) error {
			ours.Close()
			_, err := ours.Read(make([]byte, 10))
			return err
		}},
		{"closed, write", func(_ *net.TCPConn, ours net.Conn) error {
			ours.Close()
			_, err := ours.Write([]byte("x"))
			return err
		}},
		{"read deadline", func(_ *net.TCPConn, ours net.Conn) error {
			ours.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := ours.Read(make([]byte, 10))
			return err
		}},
		{"write deadline", func(_ *net.TCPConn, ours net.Conn) error {
			ours.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, err := ours.Write(make([]byte, 64<<20))
			return err
		}},
		{"past write deadline", func(_ *net.TCPConn, ours net.Conn) error {
			ours.SetWriteDeadline(time.Unix(1, 0))
			_, err := ours.Write([]byte("x"))
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			theirs, ours := pair(t, new(Group))
			local, remote := ours.LocalAddr(), ours.RemoteAddr()
			got := test.do(theirs, ours)
			theirs, ours = pair(t, new(Group))
			want := test.do(theirs, ours.(*conn).TCPConn)
			if g, w := describe(got), describe(want); g != w {
				t.Errorf("got %s, want %s", g, w)
			}
			var failed *net.OpError
			if errors.As(got, &failed) && failed.Addr != nil && (failed.Addr.String() != remote.String() || failed.Source.String() != local.String()) {
				t.Errorf("the error is of %v to %v, want %v to %v", failed.Source, failed.Addr, local, remote)
			}
		})
	}
}

// describe tells all that a program can tell of an error, except addresses.
func describe(err error) string {
	text := "other"
	for _, known := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, known) {
			text = known.Error()
		}
	}
	if err == io.EOF {
		text += ", bare"
	}
	var failed *net.OpError
	if errors.As(err, &failed) {
		text += ", " + failed.Op + " " + failed.Net
		if failed.Addr == nil || failed.Source == nil {
			text += " without addresses"
		}
		if failed.Timeout() {
			text += ", a timeout"
		}
	}
	return text
}

// The connections of a listener, and those of a pool that has joined, are of the group.
//
// Guarantees: G-0065.4
func TestConnectionsAreOfTheirGroup(t *testing.T) {
	g := new(Group)
	theirs, ours := pair(t, g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := []net.Conn{ours}
	for _, pool := range []*http.Transport{
		{}, {TLSClientConfig: new(tls.Config)}, {DialContext: new(net.Dialer).DialContext}, {DialTLSContext: new(tls.Dialer).DialContext},
	} {
		g.Join(pool)
		dialled, err := pool.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		conns = append(conns, dialled)
	}
	for _, c := range conns {
		polled, ok := c.(*conn)
		if !ok {
			t.Fatalf("got a %T, want a connection that polls", c)
		}
		if polled.reader.group != g || polled.reader.poller != newPoller(processors(), connPolls) || polled.NetConn() != polled.TCPConn {
			t.Errorf("got %+v, want a connection of the group that polls up to %d times", polled.reader, connPolls)
		}
	}
	if g.Conn(theirs) == net.Conn(theirs) || g.Conn(ours) != ours {
		t.Error("only a *net.TCPConn is to become another connection")
	}
}

// A pool that joins keeps its own way to dial, and speaks HTTP/2 if it did before.
func TestAPoolThatJoinsStaysAsItIs(t *testing.T) {
	refused := errors.New("refused")
	old := &http.Transport{Dial: func(string, string) (net.Conn, error) { return nil, refused }} //nolint:staticcheck // a program may still use it
	new(Group).Join(old)
	if old.DialContext != nil {
		t.Error("the pool's Dial is not used any more")
	}
	own := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, refused }}
	new(Group).Join(own)
	if _, err := own.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err != refused {
		t.Errorf("got %v, want the error of the pool's own DialContext", err)
	}
	for _, c := range []struct {
		name string
		pool *http.Transport
		want bool
	}{
		{"plain", new(http.Transport), true},
		{"TLSClientConfig", &http.Transport{TLSClientConfig: new(tls.Config)}, false},
		{"DialTLSContext", &http.Transport{DialTLSContext: own.DialContext}, false},
		{"DialContext", own, false},
	} {
		if c.name != "DialContext" {
			new(Group).Join(c.pool)
		}
		if c.pool.ForceAttemptHTTP2 != c.want {
			t.Errorf("%s: HTTP/2 is attempted: %t, want %t", c.name, c.pool.ForceAttemptHTTP2, c.want)
		}
	}
}

// net/http serves requests over connections of a group, also if the client disconnects
// while its request is served.
//
// Guarantees: G-0065.5
func TestHTTPOverConnectionsOfAGroup(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			io.Copy(io.Discard, r.Body)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			left <- r.Context().Err()
			return
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Write(text)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(new(Group).Listener(l)) }()
	url := "http://" + l.Addr().String()
	client := &http.Client{Transport: new(http.Transport)}
	for n := range 50 {
		text := bytes.Repeat([]byte{'a' + byte(n%26)}, n*1000)
		response, err := client.Post(url, "text/plain", bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("got %d bytes, want the %d that were sent (error: %v)", len(got), len(text), err)
		}
	}
	response, err := client.Post(url+"/wait", "text/plain", bytes.NewReader([]byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close() // this disconnects
	if err := <-left; err == nil {
		t.Error("the context of the request has no error after the client has disconnected")
	}
	client.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-served
}
