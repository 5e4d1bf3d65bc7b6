package schema

import (
	"net/mail"
	"net/url"
	"strings"
	"time"
)

// A format is one that a form of an elicitation may name.
type format struct {
	is   string // for messages
	fits func(text string) bool
}

// formatOf returns the format with a name, or nil if it is none of those that MCP's forms
// have.
func formatOf(name string) *format {
	switch name {
	case "email":
		return &format{"an e-mail address, such as ada@example.com", isEmail}
	case "uri":
		return &format{"a URI, such as https://example.com/", isURI}
	case "date":
		return &format{"a date, such as 2026-07-28", isDate}
	case "date-time":
		return &format{"a date with a time, such as 2026-07-28T12:00:00Z", isDateTime}
	default:
		return nil
	}
}

// isEmail accepts an address as RFC 5321 defines it, without a name or a comment.
func isEmail(text string) bool {
	const longest = 64 + len("@") + 255
	if len(text) > longest {
		return false
	}
	address, err := mail.ParseAddress(text)
	return err == nil && address.String() == "<"+text+">"
}

// isURI accepts an absolute URI of RFC 3986. Package url also accepts characters that have
// to be escaped.
func isURI(text string) bool {
	const reserved, unreserved = ":/?#[]@!$&'()*+,;=", "-._~"
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', strings.IndexByte(reserved+unreserved+"%", c) >= 0:
		default:
			return false
		}
	}
	parsed, err := url.Parse(text) // it checks what follows a %, but not in the query
	if err != nil || !parsed.IsAbs() || parsed.Opaque == "" && parsed.Host == "" && parsed.Path == "" {
		return false
	}
	_, err = url.PathUnescape(parsed.RawQuery + parsed.Opaque)
	return err == nil && strings.Count(text, "#") <= 1 && strings.Count(text, "[") == strings.Count(parsed.Host, "[")
}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// isDateTime accepts a date-time of RFC 3339. It refuses a leap second, because Go has none.
func isDateTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05Z") || text[13] != ':' || strings.Contains(text, ",") {
		return false // package time accepts an hour of one digit, and a comma
	}
	return new(time.Time).UnmarshalText([]byte(strings.ToUpper(text))) == nil
}
