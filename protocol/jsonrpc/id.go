package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of an id, in bytes: the literal of an integer, the text of a string.
const (
	maxIDDigits = 64
	maxIDText   = 1024
)

// An ID is a request id: a string or an integer. The zero ID means that there is no id.
// Two IDs are equal (==) if they have the same JSON type and value: 1.0 and 1e0 are the
// id 1. So an ID can be a map key.
type ID struct {
	kind    idKind
	integer int64
	text    string // a string id, or the digits of an integer beyond int64
}

type idKind uint8

const (
	idAbsent idKind = iota
	idInteger
	idBigInteger
	idString
)

// IntegerID returns the id n.
func IntegerID(n int64) ID { return ID{kind: idInteger, integer: n} }

// StringID returns the id s. Bytes that are not UTF-8 become U+FFFD, as they would when
// sent. A peer that uses this package refuses ids of more than 1024 bytes.
func StringID(s string) ID { return ID{kind: idString, text: strings.ToValidUTF8(s, "\uFFFD")} }

// ParseID parses the JSON text of an id. It accepts a string of at most 1024 bytes after
// unescaping, and a number whose value is an integer, such as 1, 1.0 or 1e0. The number
// may have at most 64 bytes, both as it is written and without fraction and exponent.
// ParseID refuses everything else, including null and strings with an escaped lone
// surrogate.
func ParseID(raw []byte) (ID, error) {
	raw = bytes.Trim(raw, " \t\r\n")
	if !jsontext.Value(raw).IsValid() {
		return ID{}, errors.New("id is not valid JSON")
	}
	return parseID(raw)
}

// parseID is ParseID for what is known to be one JSON value.
func parseID(raw []byte) (ID, error) {
	switch kindOf(raw) {
	case '"':
		return parseStringID(raw)
	case '0':
		return parseIntegerID(raw)
	default:
		return ID{}, errors.New("id is neither a string nor an integer")
	}
}

func parseStringID(raw []byte) (ID, error) {
	text, err := unquote(raw)
	if err != nil {
		return ID{}, fmt.Errorf("id: %w", err)
	}
	if len(text) > maxIDText {
		return ID{}, fmt.Errorf("id is longer than %d bytes", maxIDText)
	}
	return ID{kind: idString, text: text}, nil
}

func parseIntegerID(raw []byte) (ID, error) {
	if len(raw) > maxIDDigits {
		return ID{}, fmt.Errorf("id has more than %d digits", maxIDDigits)
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return IntegerID(n), nil
	}
	digits, err := integerDigits(raw)
	if err != nil {
		return ID{}, fmt.Errorf("id %w", err)
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return IntegerID(n), nil
	}
	return ID{kind: idBigInteger, text: digits}, nil
}

// integerDigits writes a number of at most 64 bytes without fraction and exponent.
// Some languages have no other numbers than floating point, and write 1.0 for 1.
func integerDigits(raw []byte) (string, error) {
	number, sign := string(raw), ""
	if number[0] == '-' {
		number, sign = number[1:], "-"
	}
	exponent := 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(number[i+1:]) // the largest or smallest int if it is beyond
		exponent = min(max(exponent, -2*maxIDDigits), 2*maxIDDigits)
		number = number[:i]
	}
	whole, fraction, _ := strings.Cut(number, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	if all == "" {
		return "0", nil
	}
	digits := strings.TrimRight(all, "0")
	zeros := exponent - len(fraction) + len(all) - len(digits)
	if zeros < 0 {
		return "", errors.New("is not an integer")
	}
	if len(sign)+len(digits)+zeros > maxIDDigits {
		return "", fmt.Errorf("has more than %d digits", maxIDDigits)
	}
	return sign + digits + strings.Repeat("0", zeros), nil
}

// IsZero reports whether there is no id. Fields with the tag omitzero use it.
func (id ID) IsZero() bool { return id.kind == idAbsent }

// Int64 returns the value of an id that is an integer and fits into an int64.
func (id ID) Int64() (int64, bool) { return id.integer, id.kind == idInteger }

// String returns the id as JSON, so 1 and "1" differ, or "none" if there is no id.
func (id ID) String() string {
	if id.IsZero() {
		return "none"
	}
	return string(id.Append(nil))
}

// MaxSize returns how long the id is as JSON, at most.
func (id ID) MaxSize() int { return maxIDDigits + len(`"\u0000"`)*len(id.text) }

// Append appends the id as JSON, with its type and value, or null if there is no id.
func (id ID) Append(dst []byte) []byte {
	switch id.kind {
	case idInteger:
		return strconv.AppendInt(dst, id.integer, 10)
	case idBigInteger:
		return append(dst, id.text...)
	case idString:
		return appendString(dst, id.text)
	default:
		return append(dst, "null"...)
	}
}

// MarshalJSON returns the id as JSON; see [ID.Append].
func (id ID) MarshalJSON() ([]byte, error) { return id.Append(nil), nil }

// UnmarshalJSON parses an id like [ParseID]. It also accepts null, which means no id,
// because some peers send null for optional fields such as a progress token.
func (id *ID) UnmarshalJSON(raw []byte) error {
	if isNull(raw) {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(raw)
	if err != nil {
		return fmt.Errorf("jsonrpc: %w", err)
	}
	*id = parsed
	return nil
}
