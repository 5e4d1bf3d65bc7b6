package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// A form is a question of a server that has fields, and what the user has entered.
type form struct {
	arguments.Schema
	fields  []*formField
	checker *jsonschema.Validator // of one field at a time: nothing is required; nil: there is no check
}

// A formField is a property of the schema of a form.
type formField struct {
	field
	types    []string
	elements []string        // the types of the elements of a list
	value    json.RawMessage // what was entered; nil: the field is left out
	standard json.RawMessage // the default; nil: there is none
	format   string
}

// readForm reads the schema of a form: strings, numbers, booleans, and lists of choices.
func readForm(ctx context.Context, raw json.RawMessage) *form {
	f := &form{Schema: arguments.ReadSchema(ctx, raw, jsonschema.CompileForm)}
	var whole map[string]json.RawMessage
	var properties map[string]json.RawMessage
	if protocol.Unmarshal(raw, &whole) != nil || protocol.Unmarshal(whole["properties"], &properties) != nil {
		return f
	}
	one := map[string]json.RawMessage{"properties": whole["properties"]}
	for _, keyword := range []string{"$schema", "$defs", "definitions"} {
		if whole[keyword] != nil {
			one[keyword] = whole[keyword]
		}
	}
	if text, err := protocol.Marshal(one); err == nil {
		f.checker, _ = jsonschema.CompileForm(ctx, text) // the library has refused a form that cannot be compiled
	}
	for _, key := range f.Order {
		f.fields = append(f.fields, f.readField(ctx, key, properties[key]))
	}
	return f
}

// readField reads a property of a form. A default that does not fit is not offered. Because the
// library would fill it in, such a field must be answered.
func (f *form) readField(ctx context.Context, key string, raw json.RawMessage) *formField {
	var about struct {
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Default     json.RawMessage `json:"default"`
		Format      string          `json:"format"`
		Items       json.RawMessage `json:"items"`
	}
	_ = protocol.Unmarshal(raw, &about) // what cannot be read is not shown
	p := &formField{field: field{name: key, required: f.Requires(key)}, types: f.Types(key), format: about.Format}
	p.many = slices.Equal(p.types, []string{"array"})
	choices := raw
	if p.many {
		choices = about.Items
		items, _ := f.Properties()[key].(arguments.Object)
		p.elements = f.TypesOf(items["items"], make(map[string]bool))
	}
	p.options = arguments.ReadOptions(choices)
	if about.Default != nil {
		p.standard = about.Default
		if f.check(ctx, p, about.Default) != nil {
			p.standard, p.required = nil, true
		}
		p.fallback, p.hasDefault = p.shown(p.standard), p.standard != nil
	}
	p.about = strings.Join(slices.DeleteFunc([]string{about.Title, about.Description}, func(s string) bool { return s == "" }), ": ")
	if hint := p.hint(); hint != "" {
		p.about = strings.TrimSpace(p.about + " (" + hint + ")")
	}
	return p
}

// hint says what a field takes, unless that is any text or one of the options.
func (p *formField) hint() string {
	switch {
	case p.many && p.hasDefault:
		return "several, separated by commas; [] for none"
	case p.many:
		return "several, separated by commas"
	case len(p.options) > 0:
		return ""
	case slices.Equal(p.types, []string{"boolean"}):
		return "yes or no"
	case slices.Equal(p.types, []string{"string"}):
		return aboutFormat(p.format)
	default:
		return strings.Join(p.types, " or ")
	}
}

// aboutFormat says what a text of a format is. MCP's forms have four formats.
func aboutFormat(format string) string {
	switch format {
	case "email":
		return "email address"
	case "uri":
		return "URI, such as https://example.com/"
	case "date":
		return "date, such as 2026-11-26"
	case "date-time":
		return "date and time, such as 2026-11-26T15:04:05Z"
	default:
		return ""
	}
}

// shown returns a value as people type it.
func (p *formField) shown(value json.RawMessage) string {
	var list []json.RawMessage
	switch {
	case value == nil:
		return ""
	case p.many && protocol.Unmarshal(value, &list) == nil:
		var words []string
		for _, one := range list {
			words = append(words, arguments.TitleOf(p.options, one))
		}
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, ",") }) || len(words) == 0 {
			return render.Compact(value)
		}
		return strings.Join(words, ", ")
	case string(value) == "true":
		return "yes"
	case string(value) == "false":
		return "no"
	default:
		return arguments.TitleOf(p.options, value)
	}
}

// fill asks for each field, in the order of the schema, until it fits. If the whole then does not
// fit, it asks for each field again, and offers what was entered.
func (f *form) fill(ctx context.Context, u *User) (*protocol.ElicitResult, error) {
	for {
		content, err := f.askAll(ctx, u)
		if err != nil {
			return nil, err
		}
		err = f.Validate(ctx, content)
		if err == nil {
			return client.Accept(content)
		}
		fmt.Fprintln(u.out, render.Message("that does not fit the question: "+err.Error()))
	}
}

// askAll asks for each field once. What is entered is offered as the default of the next time.
func (f *form) askAll(ctx context.Context, u *User) (json.RawMessage, error) {
	members := make(map[string]json.RawMessage)
	for _, p := range f.fields {
		if err := u.ask(ctx, p.field, func(text string) error { return f.enter(ctx, p, text) }); err != nil {
			return nil, err
		}
		if p.value != nil {
			members[p.name] = p.value
			p.standard, p.fallback, p.hasDefault = p.value, p.shown(p.value), true
		}
	}
	return protocol.Marshal(members)
}

// enter takes what the user has typed for a field. If that is nothing, it takes the default, or
// leaves out the field.
func (f *form) enter(ctx context.Context, p *formField, text string) (err error) {
	value := p.standard
	if text != "" {
		value, err = p.parse(text)
	}
	if err == nil && value != nil {
		err = f.check(ctx, p, value)
	}
	if err == nil {
		p.value = value
	}
	return err
}

// check reports why a value does not fit its field.
func (f *form) check(ctx context.Context, p *formField, value json.RawMessage) error {
	member, err := protocol.Marshal(map[string]json.RawMessage{p.name: value})
	if err != nil || f.checker == nil {
		return err
	}
	err = f.checker.Validate(ctx, member)
	var invalid *jsonschema.InvalidError
	if errors.As(err, &invalid) {
		return fmt.Errorf("%s %s", cmp.Or(strings.TrimPrefix(invalid.Path, "/"), p.name), invalid.Reason)
	}
	return err
}

// parse returns what the user typed as JSON.
func (p *formField) parse(text string) (json.RawMessage, error) {
	if !p.many {
		return p.parseOne(text, p.types)
	}
	if strings.HasPrefix(text, "[") {
		return arguments.Pair{Value: text}.Parse([]string{"array"})
	}
	if chosen, err := arguments.Choose(p.options, text); err == nil && len(p.options) > 0 {
		return protocol.Marshal([]json.RawMessage{chosen}) // its name may contain a comma
	}
	return p.parseMany(text)
}

// parseMany reads values that are separated by commas. A choice that is named twice counts once.
func (p *formField) parseMany(text string) (json.RawMessage, error) {
	all := []json.RawMessage{}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		value, err := p.parseOne(one, p.elements)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(earlier json.RawMessage) bool { return len(p.options) > 0 && string(earlier) == string(value) }) {
			all = append(all, value)
		}
	}
	return protocol.Marshal(all)
}

func (p *formField) parseOne(text string, types []string) (json.RawMessage, error) {
	if len(p.options) > 0 {
		return arguments.Choose(p.options, text)
	}
	if slices.Equal(types, []string{"boolean"}) {
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			return json.RawMessage("true"), nil
		case "n", "no", "false":
			return json.RawMessage("false"), nil
		}
		return nil, errors.New("enter yes or no")
	}
	value, err := arguments.Pair{Value: text}.Parse(types)
	if err != nil {
		return nil, fmt.Errorf("%q is not %s", text, article(strings.Join(types, " or ")))
	}
	return value, nil
}

// article puts an article before the name of a type.
func article(name string) string {
	if name != "" && strings.ContainsRune("aio", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}
