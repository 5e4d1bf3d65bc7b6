package server

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// typedJSON is how typed tools read and write values: as encoding/json does,
// which inferred schemas follow, with the strictness of the rest of the
// protocol. Nil slices and maps are empty ones.
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

func encodeTyped(value any) (stdjson.RawMessage, error) { return json.Marshal(value, typedJSON()) }

// decodeTyped reads arguments. A schema calls 1.0 and 1e3 integers; so does this.
func decodeTyped[T any](raw stdjson.RawMessage) (T, error) {
	var value T
	err := json.Unmarshal(raw, &value, typedJSON())
	var semantic *json.SemanticError
	if errors.As(err, &semantic) && semantic.JSONKind == '0' {
		value = *new(T)
		err = json.Unmarshal(plainIntegers(raw), &value, typedJSON())
	}
	return value, err
}

// plainIntegers writes integers without fraction and exponent. The text is
// valid JSON.
func plainIntegers(raw []byte) []byte {
	var out bytes.Buffer
	from := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowInvalidUTF8(true))
	to := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true))
	for {
		token, err := from.ReadToken()
		if err != nil {
			return out.Bytes() // the end
		}
		if token.Kind() == '0' {
			token = plainInteger(token)
		}
		if to.WriteToken(token) != nil {
			return raw
		}
	}
}

// plainInteger leaves alone what a float64 may not hold exactly.
func plainInteger(number jsontext.Token) jsontext.Token {
	const exact = 1 << 53
	if _, err := strconv.ParseInt(number.String(), 10, 64); err == nil {
		return number
	}
	f, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || f <= -exact || f >= exact || f != float64(int64(f)) {
		return number
	}
	return jsontext.Int(int64(f))
}
