package streamable

import (
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxKind is how many bytes of a content type an error contains.
const maxKind = 100

// leastRead is the initial size of the buffer for a body of unknown length.
const leastRead = 512

// readBody reads a body of at most limit bytes, counted after decompression. It
// allocates as bytes arrive. It reads up to the end of the body, so that the connection
// can be reused.
func readBody(response *http.Response, limit int) ([]byte, error) {
	length := response.ContentLength
	if length > int64(limit) {
		return nil, &transport.OversizedError{Limit: limit, Size: int(length)}
	}
	if length < 0 {
		length = leastRead
	}
	body := make([]byte, 0, min(length, web.MaxErrorBody)+1)
	for {
		n, err := response.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > limit:
			return nil, &transport.OversizedError{Limit: limit, Size: len(body)}
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, fmt.Errorf("streamable: read the response: %w", err)
		case len(body) == cap(body):
			body = slices.Grow(body, leastRead)
		}
	}
}
