package streamable

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// The marks around a header's value that could not be sent as it is.
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var errHeader = errors.New("streamable: a header's value is not encoded as MCP asks for")

// encodeHeader returns a value as the Mcp-Name header carries it: as it is when
// that is plain, else in Base64 between two marks.
func encodeHeader(value string) string {
	if isPlain(value) && !isEncoded(value) {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}

// decodeHeader undoes encodeHeader. It refuses a value that encodeHeader would
// not have sent, but for one that was encoded without need.
func decodeHeader(header string) (string, error) {
	if !isEncoded(header) {
		if !isPlain(header) {
			return "", errHeader
		}
		return header, nil
	}
	encoded := header[len(encodedPrefix) : len(header)-len(encodedSuffix)]
	value, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") || !utf8.Valid(value) {
		return "", errHeader
	}
	return string(value), nil
}

func isEncoded(header string) bool {
	return len(header) >= len(encodedPrefix)+len(encodedSuffix) &&
		strings.HasPrefix(header, encodedPrefix) && strings.HasSuffix(header, encodedSuffix)
}

// isPlain reports whether a value survives being a header: visible ASCII, with
// spaces and tabs inside.
func isPlain(value string) bool {
	return strings.Trim(value, " \t") == value &&
		strings.IndexFunc(value, func(c rune) bool { return c != '\t' && c != ' ' && !isVisible(c) }) < 0
}

// isVisible reports whether c is a visible ASCII character.
func isVisible(c rune) bool { return '!' <= c && c <= '~' }

// isToken reports whether a value is visible ASCII of a length from 1 to limit.
func isToken(value string, limit int) bool {
	return value != "" && len(value) <= limit &&
		strings.IndexFunc(value, func(c rune) bool { return !isVisible(c) }) < 0
}
