package typed

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Encode encodes a value of the program. Unlike encoding/json, it never writes null for a list or a
// map, since their schemas do not allow it. It fails for what JSON does not have, such as NaN, and
// the caller answers with an internal error.
func Encode(value any) (stdjson.RawMessage, error) { return json.Marshal(value, typed) }

// Decode decodes arguments. Like a schema, it accepts 1.0 and 1e3 as integers.
//
// It tries the text as it is first. Only if a number does not fit does it write the integers
// plainly and try again: the first try may have filled in a part of the value, so the second begins
// with a new one.
func Decode[T any](raw stdjson.RawMessage) (T, error) {
	var value T
	err := json.Unmarshal(raw, &value, typed)
	if err != nil && isNumberFault(err) {
		value = *new(T)
		err = json.Unmarshal(plainIntegers(raw), &value, typed)
	}
	return value, err
}

// isNumberFault reports whether an error concerns a number.
func isNumberFault(err error) bool {
	var semantic *json.SemanticError
	return errors.As(err, &semantic) && semantic.JSONKind == '0'
}

// Decoder returns a function that decodes arguments into a T. Missing arguments get their defaults.
func Decoder[T any](missing Defaults) func(stdjson.RawMessage) (T, error) {
	return func(raw stdjson.RawMessage) (T, error) { return Decode[T](missing.FillIn(raw)) }
}

// TextDecoder returns a function that decodes arguments that are all texts: those of
// prompts, and the variables of templates. A field that is not a JSON string is parsed
// from its text. S was Schema from T.
//
// Arguments are validated before they are decoded, as those of tools are, so that bounds, patterns
// and enums hold for prompts, too.
func TextDecoder[T any](s Schema) func(context.Context, map[string]string) (T, error) {
	validator := MustCompile(s.Accepted())
	decode := Decoder[T](s.Defaults())
	return func(ctx context.Context, texts map[string]string) (value T, err error) {
		members := make(map[string]stdjson.RawMessage, len(texts))
		// Names that the schema does not know go in as well: whether there may be any, the validator decides.
		for name, text := range texts {
			if members[name], err = s.memberOf(name, text); err != nil {
				return value, err
			}
		}
		raw, err := protocol.Marshal(members)
		if err != nil {
			return value, err
		}
		if err := validator.Validate(ctx, raw); err != nil {
			return value, err
		}
		return decode(raw)
	}
}

// memberOf returns the value that a text stands for in JSON. Where a schema allows texts, it is a
// text, even if it looks like a number: else a user named 007 would lose two digits. A name that
// the schema does not know is a text; the validator decides about it.
func (s Schema) memberOf(name, text string) (stdjson.RawMessage, error) {
	property := cmp.Or(s.Properties[name], s.AdditionalProperties)
	switch {
	case property == nil || property.Type == "" && len(property.Types) == 0 || isText(property):
		return protocol.Marshal(text)
	case !jsontext.Value(text).IsValid():
		return nil, fmt.Errorf("%s: %q does not fit", name, refusal.Shorten(text, refusal.LongestName))
	default:
		return stdjson.RawMessage(text), nil
	}
}

// plainIntegers writes integers without fraction and exponent. The text is valid JSON. It reads and
// writes each token, but only for arguments that the decoder has refused: most clients write
// integers as such.
func plainIntegers(raw []byte) []byte {
	var out bytes.Buffer
	from := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
	to := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true))
	for {
		token, err := from.ReadToken()
		if err != nil {
			return out.Bytes() // the end of the text
		}
		if token.Kind() == '0' {
			token = plainInteger(token)
		}
		if to.WriteToken(token) != nil {
			return raw
		}
	}
}

// plainInteger does not change a number that a float64 may not represent exactly: to round it would
// call the tool with another value than the client has sent. The decoder then refuses it.
func plainInteger(number jsontext.Token) jsontext.Token {
	const exact = 1 << 53
	f, _ := strconv.ParseFloat(number.String(), 64) // infinite if it is too large
	if f <= -exact || f >= exact || f != float64(int64(f)) {
		return number
	}
	return jsontext.Int(int64(f))
}
