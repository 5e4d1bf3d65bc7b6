package header

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

// These mark the Base64 form of a text that a header cannot contain unchanged.
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var errEncoding = errors.New("the header value is not encoded as MCP requires")

// Encode encodes a text as MCP does in Mcp-Name and Mcp-Param headers (2026-07-28
// basic/transports/streamable-http): unchanged if it is plain, and otherwise in Base64.
func Encode(text string) string {
	if IsPlain(text) && !isEncoded(text) {
		return text
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(text)) + encodedSuffix
}

// Decode undoes Encode. It also accepts plain texts in Base64.
func Decode(value string) (string, error) {
	if !isEncoded(value) {
		if !IsPlain(value) {
			return "", errEncoding
		}
		return value, nil
	}
	encoded := value[len(encodedPrefix) : len(value)-len(encodedSuffix)]
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") || !utf8.Valid(text) {
		return "", errEncoding
	}
	return string(text), nil
}

func isEncoded(value string) bool {
	return len(value) >= len(encodedPrefix)+len(encodedSuffix) &&
		strings.HasPrefix(value, encodedPrefix) && strings.HasSuffix(value, encodedSuffix)
}

// IsPlain reports whether a header can contain a text unchanged: visible ASCII, with
// spaces and tabs inside.
func IsPlain(text string) bool {
	return strings.Trim(text, " \t") == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return c != '\t' && c != ' ' && (c < '!' || c > '~') })
}
