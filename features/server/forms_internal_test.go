package server

import (
	"encoding/json"
	"reflect"
	"testing"
)

// A pointer in a form is a field that may be left out, of the type that it points to: a form has no null.
func TestPointersInAForm(t *testing.T) {
	type answer struct {
		Name *string `json:"name"`
		Age  *int    `json:"age,omitempty"`
		Sure *bool   `json:"sure"`
	}
	form, _ := formOf[answer](reflect.TypeFor[answer](), nil)
	for name, want := range map[string]string{"name": "string", "age": "integer", "sure": "boolean"} {
		if got := form.Properties[name]; got.Type != want || got.Types != nil {
			t.Errorf("the type of %s is %q %q, want %q", name, got.Type, got.Types, want)
		}
	}
}

// A form that cannot be read is not sent to a client of 2025-06-18 in part.
func TestFormsThatCannotBeReadAreNotConverted(t *testing.T) {
	for _, form := range []string{
		`{"required":7}`, `{"properties":7}`, `{"properties":{"a":7}}`, `{"properties":{"a":{"type":7}}}`, `{"properties":{"a":{"type":"string","oneOf":7}}}`, `{`,
	} {
		if older, err := olderForm(json.RawMessage(form)); err == nil {
			t.Errorf("%s became %s, want an error", form, older)
		}
	}
}
