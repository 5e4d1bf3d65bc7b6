package server_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/go-json-experiment/json/jsontext"
)

// These types speak for themselves, each in one way.
type (
	writesJSON   struct{ A int }
	readsJSON    struct{ A int }
	writesJSONTo struct{ A int }
	readsJSONOf  struct{ A int }
	writesText   struct{ A int }
	appendsText  struct{ A int }
	readsText    struct{ A int }
	readsBytes   []byte
	letter       byte
)

func (writesJSON) MarshalJSON() ([]byte, error)                  { return []byte(`1`), nil }
func (*readsJSON) UnmarshalJSON([]byte) error                    { return nil }
func (writesJSONTo) MarshalJSONTo(e *jsontext.Encoder) error     { return e.WriteToken(jsontext.Int(1)) }
func (*readsJSONOf) UnmarshalJSONFrom(d *jsontext.Decoder) error { return d.SkipValue() }
func (writesText) MarshalText() ([]byte, error)                  { return []byte("a"), nil }
func (appendsText) AppendText(b []byte) ([]byte, error)          { return append(b, 'a'), nil }
func (*readsText) UnmarshalText([]byte) error                    { return nil }
func (letter) MarshalText() ([]byte, error)                      { return []byte("a"), nil }
func (*readsBytes) UnmarshalJSON([]byte) error                   { return nil }

// schemaOf returns the derived schema of the field of an In, and whether it is required.
func schemaOf[In any](t *testing.T) (field string, required bool) {
	t.Helper()
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, In) (string, error) { return "", nil })
	var object struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if err := json.Unmarshal(inputSchema(t, s, "t"), &object); err != nil {
		t.Fatal(err)
	}
	return string(object.Properties["f"]), len(object.Required) > 0
}

// A field has the schema of what its type is in JSON, with its tags, and may be absent if it is a pointer, has a default or an option.
func TestSchemasOfFields(t *testing.T) {
	const anything, text = `{"type":["null","boolean","object","array","number","string"]}`, `{"type":"string"}`
	for name, test := range map[string]struct {
		of       func(*testing.T) (string, bool)
		want     string
		optional bool
	}{
		"MarshalJSON": {schemaOf[struct {
			F writesJSON `json:"f"`
		}], anything, false},
		"UnmarshalJSON": {schemaOf[struct {
			F readsJSON `json:"f"`
		}], anything, false},
		"MarshalJSONTo": {schemaOf[struct {
			F writesJSONTo `json:"f"`
		}], anything, false},
		"UnmarshalJSONFrom": {schemaOf[struct {
			F readsJSONOf `json:"f"`
		}], anything, false},
		"MarshalText": {schemaOf[struct {
			F writesText `json:"f"`
		}], text, false},
		"AppendText": {schemaOf[struct {
			F appendsText `json:"f"`
		}], text, false},
		"UnmarshalText": {schemaOf[struct {
			F readsText `json:"f"`
		}], text, false},
		"bytes of its own": {schemaOf[struct {
			F readsBytes `json:"f"`
		}], anything, false},
		"bytes": {schemaOf[struct {
			F []byte `json:"f"`
		}], `{"type":"string","contentEncoding":"base64"}`, false},
		"letters": {schemaOf[struct {
			F []letter `json:"f"`
		}], `{"type":"array","items":{"type":"string"}}`, false},
		"omitempty": {schemaOf[struct {
			F string `json:"f,omitempty"`
		}], text, true},
		"omitzero": {schemaOf[struct {
			F string `json:"f,omitzero"`
		}], text, true},
		"a pointer": {schemaOf[struct {
			F *string `json:"f"`
		}], `{"type":["null","string"]}`, true},
		"a default": {schemaOf[struct {
			F string `json:"f" default:"a"`
		}], `{"type":"string","default":"a"}`, true},
		"a hidden namesake": {schemaOf[struct {
			f *int
			F string `json:"f"`
		}], text, false},
		"limits of a number": {schemaOf[struct {
			F int `json:"f" minimum:"1" maximum:"5"`
		}], `{"type":"integer","minimum":1,"maximum":5}`, false},
		"limits of a text": {schemaOf[struct {
			F string `json:"f" minLength:"1" maxLength:"5" pattern:"a*" format:"email" title:"F"`
		}],
			`{"type":"string","title":"F","minLength":1,"maxLength":5,"pattern":"a*","format":"email"}`, false},
		"an enum of a list": {schemaOf[struct {
			F []string `json:"f" enum:"a,b"`
		}], `{"type":"array","items":{"type":"string","enum":["a","b"]}}`, false},
		"an enum of numbers": {schemaOf[struct {
			F int `json:"f" enum:"1,2"`
		}], `{"type":"integer","enum":[1,2]}`, false},
		"a pointer with a default": {schemaOf[struct {
			F *string `json:"f" default:"a"`
		}], `{"type":["null","string"],"default":"a"}`, true},
	} {
		if field, required := test.of(t); !sameJSON(t, field, test.want) || required == test.optional {
			t.Errorf("%s: got %s, required: %t, want %s and %t", name, field, required, test.want, !test.optional)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	one, other := jsontext.Value(a), jsontext.Value(b)
	return one.Canonicalize() == nil && other.Canonicalize() == nil && string(one) == string(other)
}

// A tag that does not fit its field is a mistake of the program, which the panic names with the field.
func TestTagsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		add  func()
		want string
	}{
		"minimum": {add[struct {
			F int `json:"f" minimum:"few"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag minimum`},
		"maxLength": {add[struct {
			F string `json:"f" maxLength:"x"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag maxLength`},
		"maxLength of a number": {add[struct {
			F int `json:"f" maxLength:"1"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag maxLength: it has no effect on a field of type integer`},
		"minimum of a text": {add[struct {
			F string `json:"f" minimum:"1"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag minimum: it has no effect on a field of type string`},
		"pattern of a list": {add[struct {
			F []string `json:"f" pattern:"a*"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag pattern: it has no effect on a field of type null or array`},
		"another keyword": {add[struct {
			F []string `json:"f" maxItems:"1"`
		}, string](protocol.Tool{Name: "t"}), `field F: the tag maxItems is not read`},
		"a setting for a description": {add[struct {
			F int `json:"f" jsonschema:"minimum=1"`
		}, string](protocol.Tool{Name: "t"}), "limits are tags of their own, such as `minimum:\"1\"`"},
		"enum of a number": {add[struct {
			F int `json:"f" enum:"1,x"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag enum`},
		"default of a number": {add[struct {
			F int `json:"f" default:"x"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag default`},
		"default of another type": {add[struct {
			F int `json:"f" default:"1.5"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag default`},
		"default below": {add[struct {
			F int `json:"f" default:"0" minimum:"1"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag default`},
		"default that is no choice": {add[struct {
			F string `json:"f" default:"c" enum:"a,b"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag default`},
		"default of another format": {add[struct {
			F string `json:"f" default:"c" format:"email"`
		}, string](protocol.Tool{Name: "t"}), `field "f": tag default`},
		"of an inner field": {add[struct {
			F struct {
				G int `json:"g" default:"x"`
			} `json:"f"`
		}, string](protocol.Tool{Name: "t"}), `field "g": tag default`},
		"an option": {add[struct {
			F int `json:"f,string"`
		}, string](protocol.Tool{Name: "t"}), `option "string"`},
		"an embedded name": {add[struct {
			inner `json:"f"`
		}, string](protocol.Tool{Name: "t"}), "is not a plain struct"},
		"an interface":         {add[any, string](protocol.Tool{Name: "t"}), "an interface may be anything"},
		"a number":             {add[int, string](protocol.Tool{Name: "t"}), "it is not an object in JSON"},
		"bytes as output":      {add[struct{}, []byte](protocol.Tool{Name: "t"}), "a []byte is no output of a tool"},
		"a result value":       {add[struct{}, protocol.CallToolResult](protocol.Tool{Name: "t"}), "return a *protocol.CallToolResult"},
		"a text with a schema": {add[struct{}, string](protocol.Tool{Name: "t", OutputSchema: anyObject}), "blocks are no structured content"},
		"recursion":            {add[recursive, string](protocol.Tool{Name: "t"}), "it contains itself: set the schema"},
	} {
		wantPanic(t, name, test.want, test.add)
		wantPanic(t, name, `tool "t": `, test.add)
	}
}
