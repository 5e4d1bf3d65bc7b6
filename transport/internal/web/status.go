package web

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

const (
	// MaxErrorBody is how much of the body of an error is read, in bytes.
	MaxErrorBody = 64 << 10

	// MaxDelay is the longest wait that a server can ask for.
	MaxDelay = time.Hour

	// EndTime is how long a client waits for the end of a body that it does not need.
	EndTime = time.Second

	maxExcerpt   = 512
	maxChallenge = 8 << 10
)

// MediaType returns the media type of a body, without parameters, in lower case.
func MediaType(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// IsRefusal reports whether a response says that the server did not execute the
// message.
func IsRefusal(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusServiceUnavailable:
		return retryAfter(response.Header.Get("Retry-After")) > 0
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests:
		return true
	default:
		return false
	}
}

// IsPassing reports whether the same request may succeed later.
func IsPassing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests
}

// Drain reads the rest of an unwanted body, for a limited time, so that the connection can
// be reused.
func Drain(body io.ReadCloser) {
	defer closeLate(body)()
	io.CopyN(io.Discard, body, MaxErrorBody)
}

// Excerpt reads the beginning of the body of an error, for a limited time. It leaves out
// what cannot be read: the status says enough.
func Excerpt(response *http.Response) []byte {
	defer closeLate(response.Body)()
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxErrorBody))
	if err != nil && len(body) == 0 {
		return nil
	}
	return body
}

// closeLate closes a body after EndTime, which ends the reading of it. The caller calls stop
// when it has read what it needs.
func closeLate(body io.Closer) (stop func()) {
	closed := make(chan struct{})
	timer := time.AfterFunc(EndTime, func() {
		defer close(closed)
		body.Close()
	})
	return func() {
		if !timer.Stop() {
			<-closed
		}
	}
}

// NewStatusError describes a response that answers no message. The body is its
// beginning. Credentials of the request that the response repeats are left out.
func NewStatusError(response *http.Response, body []byte) *transport.StatusError {
	var secrets redact.Secrets
	if request := response.Request; request != nil {
		secrets = redact.Of(request.Header, request.URL)
	}
	body = []byte(secrets.Redact(string(body))) // before the body is cut, because a part of a secret would not be recognized
	e := &transport.StatusError{
		Status:     response.StatusCode,
		Body:       Printable(string(body[:min(len(body), maxExcerpt)]), maxExcerpt),
		RetryAfter: retryAfter(response.Header.Get("Retry-After")),
		Challenge:  Printable(secrets.Redact(strings.Join(response.Header.Values("WWW-Authenticate"), ", ")), maxChallenge),
		Nonce:      Printable(response.Header.Get("DPoP-Nonce"), maxExcerpt),
	}
	if to := response.Header.Get("Location"); to != "" && response.StatusCode/100 == 3 {
		e.Body = Printable("it redirects to "+secrets.Redact(to), maxExcerpt)
	}
	if m, err := jsonrpc.Decode(body, jsonrpc.Limits{}); err == nil && m.Kind == jsonrpc.KindError && m.ID.IsZero() {
		e.Fault = m.Error
	}
	return e
}

// Printable cuts a text to size, and replaces what must not reach a terminal.
func Printable(text string, size int) string {
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
		return max(0, min(time.Until(date), MaxDelay))
	}
	seconds, err := strconv.ParseUint(header, 10, 64)
	switch {
	case header == "" || strings.Trim(header, "0123456789") != "":
		return 0
	case err != nil || seconds > uint64(MaxDelay/time.Second):
		return MaxDelay
	}
	return time.Duration(seconds) * time.Second
}
