package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	jsonschema "github.com/bowline-mcp/bowline/protocol/schema"
)

// A form is a question of a server that has fields, and what the user has entered.
type form struct {
	schema
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
	f := &form{schema: readSchema(ctx, raw, jsonschema.CompileForm)}
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
	for _, key := range f.order {
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
	p := &formField{field: field{name: key, required: f.requires(key)}, types: f.types(key), format: about.Format}
	p.many = slices.Equal(p.types, []string{"array"})
	choices := raw
	if p.many {
		choices = about.Items
		items, _ := f.properties()[key].(object)
		p.elements = f.typesOf(items["items"], make(map[string]bool))
	}
	p.options = readOptions(choices)
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

// readOptions reads what a property allows: an enum, with the titles that 2025-06-18 has for it,
// or constants with titles.
func readOptions(raw json.RawMessage) (options []option) {
	type titled struct {
		Const json.RawMessage `json:"const"`
		Title string          `json:"title"`
	}
	var choices struct {
		Enum      []json.RawMessage `json:"enum"`
		EnumNames []string          `json:"enumNames"`
		OneOf     []titled          `json:"oneOf"`
		AnyOf     []titled          `json:"anyOf"`
	}
	if protocol.Unmarshal(raw, &choices) != nil {
		return nil
	}
	for i, value := range choices.Enum {
		title := ""
		if i < len(choices.EnumNames) {
			title = choices.EnumNames[i]
		}
		options = append(options, option{value, title})
	}
	for _, choice := range slices.Concat(choices.OneOf, choices.AnyOf) {
		if choice.Const != nil {
			options = append(options, option{choice.Const, choice.Title})
		}
	}
	return options
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
			words = append(words, titleOf(p.options, one))
		}
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, ",") }) || len(words) == 0 {
			return compact(value)
		}
		return strings.Join(words, ", ")
	case string(value) == "true":
		return "yes"
	case string(value) == "false":
		return "no"
	default:
		return titleOf(p.options, value)
	}
}

// fill asks for each field, in the order of the schema, until it fits. If the whole then does not
// fit, it asks for each field again, and offers what was entered.
func (f *form) fill(ctx context.Context, u *user) (*protocol.ElicitResult, error) {
	for {
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
		content, err := protocol.Marshal(members)
		if err != nil {
			return nil, err
		}
		err = f.validate(ctx, content)
		if err == nil {
			return client.Accept(content)
		}
		fmt.Fprintln(u.out, message("that does not fit the question: "+err.Error()))
	}
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
		return pair{value: text}.parse([]string{"array"})
	}
	if chosen, err := choose(p.options, text); err == nil && len(p.options) > 0 {
		return protocol.Marshal([]json.RawMessage{chosen}) // its name may contain a comma
	}
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
		return choose(p.options, text)
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
	value, err := pair{value: text}.parse(types)
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

// An option is one of the values that a field allows.
type option struct {
	value json.RawMessage
	title string // "" if it has none
}

// text returns the value as people type it.
func (o option) text() string {
	var text string
	if protocol.Unmarshal(o.value, &text) == nil {
		return text
	}
	return string(o.value)
}

// titleOf returns the title of a value, or the value itself.
func titleOf(options []option, value json.RawMessage) string {
	one := option{value: value}
	for _, o := range options {
		if o.text() == one.text() {
			return cmp.Or(o.title, o.text())
		}
	}
	return one.text()
}

// areNumbered reports whether the options are chosen by number, too: no value or title is a number.
func areNumbered(options []option) bool {
	return !slices.ContainsFunc(options, func(o option) bool {
		_, value := strconv.Atoi(o.text())
		_, title := strconv.Atoi(o.title)
		return value == nil || title == nil
	})
}

// choose returns the option that a text means: by its value, its title or its number.
func choose(options []option, text string) (json.RawMessage, error) {
	for _, means := range []func(o option) bool{
		func(o option) bool { return o.text() == text },
		func(o option) bool { return o.title == text },
		func(o option) bool { return strings.EqualFold(o.text(), text) || strings.EqualFold(o.title, text) },
	} {
		if at := slices.IndexFunc(options, means); at >= 0 {
			if slices.ContainsFunc(options[at+1:], means) {
				return nil, fmt.Errorf("%q is several of the choices: enter a number", text)
			}
			return options[at].value, nil
		}
	}
	if number, err := strconv.Atoi(text); err == nil && 0 < number && number <= len(options) && areNumbered(options) {
		return options[number-1].value, nil
	}
	return nil, fmt.Errorf("%q is not one of the choices", text)
}

// showOptions lists the options of a field.
func showOptions(out io.Writer, options []option) {
	numbered := areNumbered(options)
	for i, o := range options {
		mark, shown := "-", flat(o.text())
		if numbered {
			mark = strconv.Itoa(i+1) + "."
		}
		if o.title != "" && o.title != o.text() {
			shown = fmt.Sprintf("%s (%s)", flat(o.title), shown)
		}
		fmt.Fprintf(out, "    %s %s\n", mark, shown)
	}
}
