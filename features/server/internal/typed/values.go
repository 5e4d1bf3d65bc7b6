package typed

import (
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// typed is the result of typedJSON.
var typed = typedJSON()

// typedJSON returns the options with which typed tools decode and encode values: as
// encoding/json does, which inferred schemas follow, but as strictly as the rest of the
// protocol. Nil slices and maps are encoded as empty ones.
func typedJSON() json.Options {
	return json.JoinOptions(
		jsonv1.DefaultOptionsV1(),
		jsonv1.CallMethodsWithLegacySemantics(false),
		jsonv1.MergeWithLegacySemantics(false),
		jsonv1.ReportErrorsWithLegacySemantics(false),
		jsonv1.UnmarshalArrayFromAnyLength(false),
		json.FormatNilMapAsNull(false),
		json.FormatNilSliceAsNull(false),
		json.MatchCaseInsensitiveNames(false),
		jsontext.AllowDuplicateNames(false),
		jsontext.EscapeForHTML(false),
		jsontext.EscapeForJS(false),
	)
}

// Encode encodes a value of the program. Unlike encoding/json, it never writes null for a list or a map, since their
// schemas do not allow it.
func Encode(value any) (stdjson.RawMessage, error) { return json.Marshal(value, typed) }

// Decode decodes arguments. Like a schema, it accepts 1.0 and 1e3 as integers.
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

// Decoder returns a function that decodes arguments into a T. Missing arguments get
// their defaults.
func Decoder[T any](missing Defaults) func(stdjson.RawMessage) (T, error) {
	return func(raw stdjson.RawMessage) (T, error) { return Decode[T](missing.FillIn(raw)) }
}

// TextDecoder returns a function that decodes arguments that are all texts: those of
// prompts, and the variables of templates. A field that is not a JSON string is parsed
// from its text. S was Schema from T.
func TextDecoder[T any](s Schema) func(context.Context, map[string]string) (T, error) {
	validator := MustCompile(s.Accepted())
	decode := Decoder[T](s.Defaults())
	return func(ctx context.Context, texts map[string]string) (value T, err error) {
		members := make(map[string]stdjson.RawMessage, len(texts))
		for name, text := range texts {
			property := cmp.Or(s.Properties[name], s.AdditionalProperties)
			if property == nil || property.Type == "string" || property.Type == "" && (len(property.Types) == 0 || slices.Contains(property.Types, "string")) {
				quoted, err := protocol.Marshal(text)
				if err != nil {
					return value, err
				}
				members[name] = quoted
				continue
			}
			if !jsontext.Value(text).IsValid() {
				return value, fmt.Errorf("%s: %q does not fit", name, refusal.Shorten(text, refusal.LongestName))
			}
			members[name] = stdjson.RawMessage(text)
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

// plainIntegers writes integers without fraction and exponent. The text is valid JSON.
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

// What plainIntegers costs, only arguments pay that the decoder has refused before: most clients write integers as such.

// plainInteger does not change a number that a float64 may not represent exactly.
func plainInteger(number jsontext.Token) jsontext.Token {
	const exact = 1 << 53
	f, _ := strconv.ParseFloat(number.String(), 64) // infinite if it is too large
	if f <= -exact || f >= exact || f != float64(int64(f)) {
		return number
	}
	return jsontext.Int(int64(f))
}
