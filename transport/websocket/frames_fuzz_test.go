package websocket

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/transport"
)

// A hostile is a server that answers a handshake, sends some bytes, and ends the connection.
type hostile []byte

func (h hostile) RoundTrip(r *http.Request) (*http.Response, error) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {subprotocol},
			"Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])},
		},
		Body: &script{bytes.NewReader(h)},
	}, nil
}

// A script is the connection of a hostile server.
type script struct{ *bytes.Reader }

func (*script) Write(p []byte) (int, error) { return len(p), nil }
func (*script) Close() error                { return nil }

var _ io.ReadWriteCloser = (*script)(nil)

// Whatever a server sends, a link delivers messages within its limit, is lost, and is closed in time.
//
// Guarantees: G-0108.4
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x81\x02{}\x88\x02\x03\xe8"))                             // a message, and a normal end
	f.Add([]byte("\x01\x01{\x89\x00\x80\x01}"))                             // one in two pieces, with a ping between
	f.Add([]byte("\x82\x01x"))                                              // binary
	f.Add([]byte("\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xffx"))              // eight exabytes are announced
	f.Add([]byte("\x81\x7e\x00\x41" + string(make([]byte, 65))))            // above the limit
	f.Add([]byte("\x88\x04\x0f\xa1\x1b["))                                  // a close frame with control characters
	f.Add([]byte("\xc1\x01x\x81\x81\x00\x00\x00\x00x\x80\x00\x88\x01\x00")) // compressed; masked; a piece of nothing; a short close frame
	f.Fuzz(func(t *testing.T, sent []byte) {
		const limit = 64
		c := &Client{URL: "ws://localhost/mcp", HTTP: &http.Client{Transport: hostile(sent)}, MaxFrame: limit}
		link, err := c.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lost := make(chan transport.Loss, 1)
		link.Bind(losing{peertest.Receive(func(in transport.Inbound) {
			if in.Frame == nil || len(in.Frame) > limit || in.Err != nil {
				t.Errorf("got %+v", in)
			}
		}), lost})
		link.Grant(transport.Main, len(sent)+1)
		if loss := <-lost; loss.Reason == nil {
			t.Error("the link was lost without a reason")
		}
		if err := link.Close(time.Minute); err != nil {
			t.Error(err)
		}
	})
}

// losing is a receiver that tells of the loss.
type losing struct {
	transport.Receiver
	lost chan transport.Loss
}

func (l losing) Lost(loss transport.Loss) { l.lost <- loss }
