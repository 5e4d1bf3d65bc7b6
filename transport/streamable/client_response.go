package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxKind is how much of a content type an error repeats, in bytes.
const maxKind = 100

// readBody reads a body of at most limit bytes, counted after decompression. It
// allocates as bytes arrive.
func readBody(response *http.Response, limit int) ([]byte, error) {
	length := response.ContentLength
	if length > int64(limit) {
		return nil, &transport.OversizedError{Limit: limit, Size: int(length)}
	}
	var body bytes.Buffer
	body.Grow(int(max(0, min(length, web.MaxErrorBody))) + bytes.MinRead)
	if _, err := body.ReadFrom(io.LimitReader(response.Body, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("streamable: read the response: %w", err)
	}
	if body.Len() > limit {
		return nil, &transport.OversizedError{Limit: limit, Size: body.Len()}
	}
	return body.Bytes(), nil
}
