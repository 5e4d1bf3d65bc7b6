package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/schema"
)

// A form checks the four formats that MCP has, and only a form does: for other schemas a
// format is an annotation.
//
// Guarantees: G-0031.13
func TestFormatsOfForms(t *testing.T) {
	for format, texts := range map[string]map[string]bool{
		"email": {
			"ada@example.com": true, "ada.b+c@mail.example.com": true, `"ada b"@example.com`: true, "ada@[127.0.0.1]": true,
			"": false, "ada": false, "ada@": false, "@example.com": false, "a b@example.com": false, ".a@example.com": false, "a..b@example.com": false,
			"Ada <ada@example.com>": false, "<ada@example.com>": false, "ada@example.com (home)": false, "a@example.com, b@example.com": false, " ada@example.com": false,
		},
		"uri": {
			"https://example.com/": true, "https://[::1]:80/a?b=c%20d#e": true, "urn:isbn:0451450523": true, "mailto:a@example.com": true, "file:///notes.txt": true,
			"": false, "example.com": false, "/a": false, "//example.com": false, "https://example.com/a b": false, "https://example.com/ä": false, "https:": false,
			"https://example.com/%zz": false, "https://example.com/?%zz": false, "https://example.com/[a]": false, "https://example.com/<a>": false, "1a:b": false, "a:#b#c": false,
			"https://example.com:port/": false, "urn:%zz": false,
		},
		"date": {
			"2026-07-28": true, "2024-02-29": true,
			"": false, "2026-02-29": false, "2026-7-28": false, "28.7.2026": false, "2026-07-28T00:00:00Z": false, "2026-07-28 ": false,
		},
		"date-time": {
			"2026-07-28T12:00:00Z": true, "2026-07-28T12:00:00.123+02:00": true, "2026-07-28t12:00:00z": true,
			"": false, "2026-07-28": false, "2026-07-28T12:00:00": false, "2026-07-28 12:00:00Z": false, "2026-07-28T25:00:00Z": false, "2026-07-28T1:00:00Z": false, "2026-07-28T12:00:00,5Z": false,
		},
		"phone": {"any text": true},
	} {
		raw := json.RawMessage(`{"properties":{"a":{"type":"string","format":"` + format + `"}}}`)
		form, err := schema.CompileForm(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := schema.Compile(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		for text, fits := range texts {
			value, err := json.Marshal(map[string]string{"a": text})
			if err != nil {
				t.Fatal(err)
			}
			if err := form.Validate(t.Context(), value); (err == nil) != fits {
				t.Errorf("%s %q: got %v, want fits %t", format, text, err, fits)
			}
			if err := plain.Validate(t.Context(), value); err != nil {
				t.Errorf("%s %q, not in a form: %v", format, text, err)
			}
		}
	}
}

// The error tells the user what is wanted, also if the text has another rule that it does not break.
func TestFaultsOfFormatsAreTold(t *testing.T) {
	for format, want := range map[string]string{
		"email": "is not an e-mail address, such as ada@example.com", "uri": "is not a URI, such as https://example.com/",
		"date": "is not a date, such as 2026-07-28", "date-time": "is not a date with a time, such as 2026-07-28T12:00:00Z",
	} {
		for _, rules := range []string{``, `,"minLength":1,"maxLength":100,"pattern":"x"`} {
			form, err := schema.CompileForm(t.Context(), json.RawMessage(`{"type":"string","format":"`+format+`"`+rules+`}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := form.Validate(t.Context(), json.RawMessage(`"x"`)); err == nil || err.Error() != "the value "+want {
				t.Errorf("%s%s: got %v, want %s", format, rules, err, want)
			}
		}
	}
}
