package header

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTextsAreEncodedOnlyWhenTheyMust(t *testing.T) {
	for value, want := range map[string]string{
		"echo":                  "echo",
		"":                      "",
		"a b\tc~!":              "a b\tc~!",
		" a":                    "=?base64?IGE=?=",
		"a\t":                   "=?base64?YQk=?=",
		"ä":                     "=?base64?w6Q=?=",
		"a\r\nX: y":             "=?base64?YQ0KWDogeQ==?=",
		"=?base64?w6Q=?=":       "=?base64?PT9iYXNlNjQ/dzZRPT89?=",
		"=?BASE64?w6Q=?=":       "=?BASE64?w6Q=?=",
		"=?base64?=":            "=?base64?=",
		"=?base64?w6Q=":         "=?base64?w6Q=",
		"=?base64??=":           "=?base64?PT9iYXNlNjQ/Pz0=?=",
		"file:///a?b=%20c#frag": "file:///a?b=%20c#frag",
	} {
		if got := Encode(value); got != want {
			t.Errorf("%q is encoded as %q, want %q", value, got, want)
		}
	}
}

func TestTextsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		header := Encode(value)
		if !IsPlain(header) {
			t.Fatalf("%q was encoded as %q", value, header)
		}
		if got, err := Decode(header); got != value || err != nil {
			t.Fatalf("%q was decoded as %q, %v", value, got, err)
		}
	})
}

func TestDecodeRefusesWhatIsNotEncoded(t *testing.T) {
	for _, header := range []string{"=?base64?w6Q?=", "=?base64?*?=", "=?base64?w6R=?=", "=?base64?/w==?=", "=?base64?w6\nQ=?=", "ä", " a", "\x00"} {
		if got, err := Decode(header); err == nil {
			t.Errorf("%q is decoded as %q", header, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"echo", "=?base64?w6Q=?=", "=?base64?=", " a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		value, err := Decode(header)
		if err != nil {
			return
		}
		if again, err := Decode(Encode(value)); again != value || err != nil {
			t.Fatalf("%q was decoded as %q, which is encoded and decoded as %q, %v", header, value, again, err)
		}
	})
}
