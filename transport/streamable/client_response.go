package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	maxErrorBody = 64 << 10
	maxExcerpt   = 512
	maxChallenge = 1 << 10
	maxKind      = 100 // of a content type
)

// isRefusal reports whether a status says that the server did not execute the
// message.
func isRefusal(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests:
		return true
	default:
		return false
	}
}

// isPassing reports whether the same request may succeed later.
func isPassing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

// readBody reads a body of at most limit bytes, counted after decompression. It
// allocates as bytes arrive.
func readBody(response *http.Response, limit int) ([]byte, error) {
	length := response.ContentLength
	if length > int64(limit) {
		return nil, &transport.OversizedError{Limit: limit, Size: int(length)}
	}
	var body bytes.Buffer
	body.Grow(int(max(0, min(length, maxErrorBody))) + bytes.MinRead)
	if _, err := body.ReadFrom(io.LimitReader(response.Body, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("streamable: read the response: %w", err)
	}
	if body.Len() > limit {
		return nil, &transport.OversizedError{Limit: limit, Size: body.Len()}
	}
	return body.Bytes(), nil
}

// excerptOf reads the beginning of the body of an error. It leaves out what cannot
// be read: the status says enough.
func excerptOf(response *http.Response) []byte {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		return nil
	}
	return body
}

func newStatusError(response *http.Response, body []byte) *transport.StatusError {
	e := &transport.StatusError{
		Status:     response.StatusCode,
		Body:       printable(string(body[:min(len(body), maxExcerpt)]), maxExcerpt),
		RetryAfter: retryAfter(response.Header.Get("Retry-After")),
		Challenge:  printable(strings.Join(response.Header.Values("WWW-Authenticate"), ", "), maxChallenge),
	}
	if to := response.Header.Get("Location"); to != "" && response.StatusCode/100 == 3 {
		e.Body = printable("it redirects to "+to, maxExcerpt)
	}
	if m, err := jsonrpc.Decode(body, jsonrpc.Limits{}); err == nil && m.Kind == jsonrpc.KindError && m.ID.IsZero() {
		e.Fault = m.Error
	}
	return e
}

// printable cuts a text to size, and replaces what must not reach a terminal.
func printable(text string, size int) string {
	text = strings.ToValidUTF8(text[:min(len(text), size)], "")
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text))
}

// retryAfter reads a Retry-After header: seconds, or a date.
func retryAfter(header string) time.Duration {
	if date, err := http.ParseTime(header); err == nil {
		return max(0, min(time.Until(date), maxDelay))
	}
	seconds, err := strconv.ParseUint(header, 10, 64)
	switch {
	case header == "" || strings.Trim(header, "0123456789") != "":
		return 0
	case err != nil || seconds > uint64(maxDelay/time.Second):
		return maxDelay
	}
	return time.Duration(seconds) * time.Second
}
