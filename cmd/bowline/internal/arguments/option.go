package arguments

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/protocol"
)

// An Option is one of the values that a field allows.
type Option struct {
	Value json.RawMessage
	Title string // "" if it has none
}

// Text returns the value as people type it.
func (o Option) Text() string {
	var text string
	if protocol.Unmarshal(o.Value, &text) == nil {
		return text
	}
	return string(o.Value)
}

// choices are what a schema says of single values.
type choices struct {
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames"`
	OneOf     []titled          `json:"oneOf"`
	AnyOf     []titled          `json:"anyOf"`
}

type titled struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

// ReadOptions reads what a property allows: an enum, with the titles that 2025-06-18 has for it,
// or constants with titles.
func ReadOptions(raw json.RawMessage) (options []Option) {
	var choices choices
	if protocol.Unmarshal(raw, &choices) != nil {
		return nil
	}
	for i, value := range choices.Enum {
		title := ""
		if i < len(choices.EnumNames) {
			title = choices.EnumNames[i]
		}
		options = append(options, Option{value, title})
	}
	for _, choice := range slices.Concat(choices.OneOf, choices.AnyOf) {
		if choice.Const != nil {
			options = append(options, Option{choice.Const, choice.Title})
		}
	}
	return options
}

// TitleOf returns the title of a value, or the value itself.
func TitleOf(options []Option, value json.RawMessage) string {
	one := Option{Value: value}
	for _, o := range options {
		if o.Text() == one.Text() {
			return cmp.Or(o.Title, o.Text())
		}
	}
	return one.Text()
}

// areNumbered reports whether the options are chosen by number, too: no value or title is a number.
func areNumbered(options []Option) bool {
	return !slices.ContainsFunc(options, func(o Option) bool {
		_, value := strconv.Atoi(o.Text())
		_, title := strconv.Atoi(o.Title)
		return value == nil || title == nil
	})
}

// Choose returns the option that a text means: by its value, its title or its number.
func Choose(options []Option, text string) (json.RawMessage, error) {
	for _, means := range []func(o Option) bool{
		func(o Option) bool { return o.Text() == text },
		func(o Option) bool { return o.Title == text },
		func(o Option) bool { return strings.EqualFold(o.Text(), text) || strings.EqualFold(o.Title, text) },
	} {
		if at := slices.IndexFunc(options, means); at >= 0 {
			if slices.ContainsFunc(options[at+1:], means) {
				return nil, fmt.Errorf("%q is several of the choices: enter a number", text)
			}
			return options[at].Value, nil
		}
	}
	if number, err := strconv.Atoi(text); err == nil && 0 < number && number <= len(options) && areNumbered(options) {
		return options[number-1].Value, nil
	}
	return nil, fmt.Errorf("%q is not one of the choices", text)
}

// ShowOptions lists the options of a field.
func ShowOptions(out io.Writer, options []Option) {
	numbered := areNumbered(options)
	for i, o := range options {
		mark, shown := "-", render.Flat(o.Text())
		if numbered {
			mark = strconv.Itoa(i+1) + "."
		}
		if o.Title != "" && o.Title != o.Text() {
			shown = fmt.Sprintf("%s (%s)", render.Flat(o.Title), shown)
		}
		fmt.Fprintf(out, "    %s %s\n", mark, shown)
	}
}
