package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
)

// TestTransport checks the links, and the guarantees of a Conn over them.
func TestTransport(t *testing.T) { proptest.All(t, proptest.Harness{Listen: listen}) }

// listen accepts links until the test is over, and returns a transport to them.
func listen(t *testing.T, accept func(transport.Link)) transport.Transport {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		Accept(listener, accept)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-over
	})
	return &Dialer{Address: listener.Addr().String()}
}

// bare returns a link and the plain TCP connection of its peer, for tests of what the
// suites do not test: the form of the frames.
func bare(t *testing.T) (peer net.Conn, told *recorder) {
	t.Helper()
	links := make(chan transport.Link, 1)
	dialer := listen(t, func(l transport.Link) { links <- l })
	peer, err := net.Dial("tcp", dialer.(*Dialer).Address)
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.SetDeadline(time.Now().Add(time.Minute)); err != nil { // so that the test does not hang
		t.Fatal(err)
	}
	told = &recorder{Link: <-links, frames: make(chan string, 16), lost: make(chan transport.Loss, 1)}
	t.Cleanup(func() {
		peer.Close()
		told.Close(0)
	})
	told.Bind(told)
	return peer, told
}

func TestFrameIsALine(t *testing.T) {
	peer, link := bare(t)
	link.Grant(transport.Main, 2)
	if _, err := peer.Write([]byte("\n1\r\n\n\r\n2\nhalf a li")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1", "2"} {
		if got := <-link.frames; got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
	if err := link.Send(transport.Outbound{Frame: []byte("{\n}")}); err != nil {
		t.Fatal(err)
	}
	sent := make([]byte, 4)
	if _, err := peer.Read(sent); err != nil || string(sent) != "{ }\n" {
		t.Errorf("sent %q: %v", sent, err)
	}
	peer.Close()
	if loss := <-link.lost; errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Errorf("the loss of a connection that ended within a frame was reported as ErrPeerClosed")
	}
}

func TestEndOfConnectionIsNoticedWithoutCredit(t *testing.T) {
	peer, link := bare(t)
	peer.Close()
	if loss := <-link.lost; !errors.Is(loss.Reason, transport.ErrPeerClosed) {
		t.Errorf("lost for %v", loss.Reason)
	}
}

func TestOversizedFrame(t *testing.T) {
	peer, link := bare(t)
	var oversized *transport.OversizedError
	if err := link.Send(transport.Outbound{Frame: make([]byte, maxFrame+1)}); !errors.As(err, &oversized) {
		t.Errorf("Send: %v", err)
	}
	link.Grant(transport.Main, 1)
	go peer.Write(bytes.Repeat([]byte("1"), maxFrame+readAhead)) // until the other side closes the connection
	if loss := <-link.lost; !errors.As(loss.Reason, &oversized) {
		t.Errorf("lost for %v", loss.Reason)
	}
	if is := transport.LinkTraitsOf(link.Link); !is.RecordsReads || is.LastRead.IsZero() {
		t.Errorf("got the traits %+v", is)
	}
}

// A countingSocket counts the bytes that are read from it.
type countingSocket struct {
	*net.TCPConn
	read atomic.Int64
}

func (s *countingSocket) Read(p []byte) (int, error) {
	n, err := s.TCPConn.Read(p)
	s.read.Add(int64(n))
	return n, err
}

func TestReadsAtMostOneFrame(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	peer, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	socket := &countingSocket{TCPConn: accepted.(*net.TCPConn)}
	link := &recorder{Link: NewLink(socket), frames: make(chan string, 1), lost: make(chan transport.Loss, 1)}
	defer link.Close(0)
	link.Bind(link)
	link.Grant(transport.Main, 1)
	go peer.Write(bytes.Repeat([]byte("1"), maxFrame+readAhead))
	<-link.lost
	if read := socket.read.Load(); read <= maxFrame || read > maxFrame+2*readAhead {
		t.Errorf("%d bytes were read", read)
	}
}

// A peer receives the last frames even if this side has not read everything that the
// peer has sent.
func TestCloseDoesNotResetTheConnection(t *testing.T) {
	peer, link := bare(t)
	if _, err := peer.Write([]byte("1\n2\n3\n")); err != nil {
		t.Fatal(err)
	}
	if err := link.Send(transport.Outbound{Frame: []byte("bye")}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- link.Close(time.Minute) }()
	if said, err := io.ReadAll(peer); err != nil || string(said) != "bye\n" {
		t.Errorf("read %q: %v", said, err)
	}
	peer.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A recorder is a link and its own receiver.
type recorder struct {
	transport.Link
	frames chan string
	lost   chan transport.Loss
}

func (r *recorder) Receive(in transport.Inbound)               { r.frames <- string(in.Frame) }
func (r *recorder) Lost(loss transport.Loss)                   { r.lost <- loss }
func (*recorder) Writable()                                    {}
func (*recorder) Ended()                                       {}
func (*recorder) Failed(transport.Failure)                     {}
func (*recorder) StreamOpened(transport.Stream, transport.Tag) {}
func (*recorder) StreamLost(transport.StreamLoss)              {}

// returns is a peer that sends carriage returns and never a newline.
type returns struct{}

func (returns) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\r'
	}
	return len(p), nil
}

// readFrame holds no more than its comment says, and accepts the longest frame allowed.
func TestCarriageReturnsAreBoundedToo(t *testing.T) {
	sent := io.LimitReader(returns{}, maxFrame+4*readAhead)
	_, err := readFrame(bufio.NewReaderSize(sent, readAhead))
	if !errors.As(err, new(*transport.OversizedError)) {
		t.Errorf("%d bytes without a newline were held, and gave %v", maxFrame+4*readAhead, err)
	}
	longest := strings.Repeat("x", maxFrame)
	if frame, err := readFrame(bufio.NewReaderSize(strings.NewReader(longest+"\r\n"), readAhead)); err != nil || string(frame) != longest {
		t.Errorf("a frame of %d bytes gave %v", maxFrame, err)
	}
}
