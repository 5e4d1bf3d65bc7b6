//bowline:pure

package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// A field asks a person for one argument of a tool.
type field struct {
	Name, Title, Hint string
	Kind              string // text, number, choice or json
	Whole             bool   // it is an integer
	Choices           []choice
	Required          bool
	Value             string // what the person has entered, or the default
	text              bool   // its values are strings
}

// A choice is one of a few values: JSON, and what is shown for it.
type choice struct{ Value, Text string }

// maxFields is how many a person fills in one by one. A tool with more is called by a program, or by the whole of its arguments as JSON.
const maxFields = 64

// toolSchema is what a form needs of the schema of a tool.
type toolSchema struct {
	Properties json.RawMessage `json:"properties"`
	Required   []string        `json:"required"`
}

// argumentSchema is what a form needs of the schema of an argument. What it cannot ask for piece by piece is asked for as JSON.
type argumentSchema struct {
	Type        any               `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	Default     json.RawMessage   `json:"default"`
}

// fieldsOf makes a form of the schema of a tool. A schema that is not of named properties, or of too many, is one field for all arguments; whole
// is then true.
func fieldsOf(raw json.RawMessage) (fields []field, whole bool) {
	var schema toolSchema
	err := json.Unmarshal(raw, &schema)
	names, schemas := propertiesOf(schema.Properties)
	if err != nil || names == nil && schema.Properties != nil {
		return []field{{Title: "arguments", Hint: "as a JSON object", Kind: "json", Value: "{}", Required: true}}, true
	}
	for i, name := range names {
		f := fieldOf(schemas[i])
		f.Name, f.Required = name, slices.Contains(schema.Required, name)
		fields = append(fields, f)
	}
	return fields, false
}

// propertiesOf returns the properties in the order in which the author has written them, which is the order in which people read them. Nil: it is
// no object, or has too many.
func propertiesOf(raw json.RawMessage) (names []string, schemas []json.RawMessage) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if begin, _ := in.Token(); begin != json.Delim('{') { // nil after an error
		return nil, nil
	}
	for names = []string{}; in.More(); {
		name, err := in.Token()
		var schema json.RawMessage
		if err != nil || in.Decode(&schema) != nil || len(names) == maxFields {
			return nil, nil
		}
		names, schemas = append(names, fmt.Sprint(name)), append(schemas, schema)
	}
	return names, schemas
}

// fieldOf asks for one argument. True and false are schemas, too: of those anything is asked for as JSON.
func fieldOf(raw json.RawMessage) field {
	var s argumentSchema
	if json.Unmarshal(raw, &s) != nil {
		return field{Kind: "json"}
	}
	f := s.kind()
	f.Title, f.Hint, f.Value = s.Title, s.Description, string(s.Default)
	if text := ""; f.text && json.Unmarshal(s.Default, &text) == nil {
		f.Value = text
	}
	return f
}

// kind says how a person enters a value: by what browsers have a control for. A choice has an empty value, too, for an argument that is left out.
func (s argumentSchema) kind() field {
	if s.Type == "boolean" {
		s.Enum = []json.RawMessage{json.RawMessage("true"), json.RawMessage("false")}
	}
	switch {
	case len(s.Enum) > 0:
		return field{Kind: "choice", Choices: choicesOf(s.Enum)}
	case s.Type == "string":
		return field{Kind: "text", text: true}
	case s.Type == "integer", s.Type == "number":
		return field{Kind: "number", Whole: s.Type == "integer"}
	default:
		return field{Kind: "json"}
	}
}

// choicesOf shows texts without their quotes.
func choicesOf(values []json.RawMessage) (all []choice) {
	for _, v := range values {
		c := choice{string(v), string(v)}
		if text := ""; json.Unmarshal(v, &text) == nil {
			c.Text = text
		}
		all = append(all, c)
	}
	return all
}

// argumentsOf returns the arguments that a person has entered. A field that is left empty is no argument, unless it is a text that is required.
func argumentsOf(fields []field, whole bool) (json.RawMessage, error) {
	var problems []error
	members := make([][]byte, 0, len(fields))
	for _, f := range fields {
		value, err := f.entered()
		if whole {
			return value, err
		}
		if problems = append(problems, err); value != nil {
			name, _ := json.Marshal(f.Name) // a string always can be encoded
			members = append(members, slices.Concat(name, []byte(":"), value))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), errors.Join(problems...)
}

// entered returns what is in a field as JSON; nil: it is empty.
func (f field) entered() (value json.RawMessage, err error) {
	switch {
	case f.text && (f.Value != "" || f.Required):
		return json.Marshal(f.Value)
	case f.Value == "" && f.Required:
		return nil, fmt.Errorf("%s is required", f.label())
	case f.Value == "":
		return nil, nil
	case !json.Valid([]byte(f.Value)):
		return nil, fmt.Errorf("%s is no JSON", f.label())
	default:
		return json.RawMessage(f.Value), nil
	}
}

// label is what a person reads: the title of an argument, or its name.
func (f field) label() string { return cmp.Or(f.Title, f.Name) }
