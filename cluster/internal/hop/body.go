package hop

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// maxKept is the size of the longest body that is read before it is sent. If a connection ends
// before the other node has looked at the request, such a body is sent again. A longer one is
// sent when the other node asks for it, and only once.
const maxKept = 64 << 10

// A sentBody is the body of a request that is forwarded.
type sentBody struct {
	kept   []byte        // all of a short one
	stream io.ReadCloser // a longer one; nil: it is short, or there is none
	begun  atomic.Bool   // a part of stream was read
}

// takeBody takes the body of a request, and reads it if it is short.
func takeBody(request *http.Request) (*sentBody, error) {
	switch length := request.ContentLength; {
	case request.Body == nil || request.Body == http.NoBody:
		return new(sentBody), nil
	case length < 0 || length > maxKept:
		request.Header.Set("Expect", "100-continue")
		return &sentBody{stream: request.Body}, nil
	}
	request.Header.Del("Expect")
	defer request.Body.Close()
	kept, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, &bodyError{err}
	}
	return &sentBody{kept: kept}, nil
}

// attach gives the body to a request that is about to be sent.
func (b *sentBody) attach(request *http.Request) {
	switch {
	case b.stream != nil:
		request.Body = streamed{b}
		request.GetBody = func() (io.ReadCloser, error) {
			if b.begun.Load() {
				return nil, errBegun
			}
			return streamed{b}, nil
		}
	case b.kept != nil:
		request.Body = io.NopCloser(bytes.NewReader(b.kept))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.kept)), nil }
	}
}

// end closes the body, when the request is over.
func (b *sentBody) end() {
	if b.stream != nil {
		b.stream.Close()
	}
}

// streamed is a body that may be sent again as long as nothing was read.
type streamed struct{ *sentBody }

// Read implements io.Reader.
func (b streamed) Read(p []byte) (int, error) {
	b.begun.Store(true)
	return b.stream.Read(p)
}

// Close implements io.Closer. It ends a Read.
func (b streamed) Close() error {
	if !b.begun.Load() {
		return nil
	}
	return b.stream.Close()
}

var errBegun = errors.New("cluster: a part of the body was sent")

// A bodyError says that the body of a request has not arrived.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }
