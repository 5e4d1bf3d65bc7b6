package mcpjson

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// An Input describes a value to ask the user for, as in VS Code. It is an element of
// inputs, and ${input:ID} refers to it.
type Input struct {
	ID          string
	Description string   // for the user; may be empty
	Default     string   // the value if the user just confirms; may be empty
	Password    bool     // whether to hide what the user types
	Options     []string // the values to choose from; nil: any text
}

// expand replaces variables, as the package comment says. Every one that cannot
// be replaced is a mistake of its own.
func (r *reader) expand(n node, text string) (expanded string, ok bool) {
	var out strings.Builder
	ok = true
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), ok
		}
		reference, after, closed := strings.Cut(rest, "}")
		if !closed {
			r.wrong(n, "${ without its }")
			return "", false
		}
		value, err := r.variable(reference)
		if err != nil {
			r.wrong(n, "%v", err)
			ok = false
		}
		if !r.afford(n, len(value)) {
			return "", false
		}
		out.WriteString(value)
		text = after
	}
}

// variable returns what ${reference} stands for.
func (r *reader) variable(reference string) (string, error) {
	switch reference {
	case "workspaceFolder":
		return filepath.Abs(r.file.folder())
	case "userHome":
		return os.UserHomeDir()
	}
	if id, ok := strings.CutPrefix(reference, "input:"); ok {
		return r.input(id)
	}
	return r.environmentVariable(reference)
}

func (r *reader) environmentVariable(reference string) (string, error) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	name = strings.TrimPrefix(name, "env:")
	switch {
	case !isVariable(name):
		return "", fmt.Errorf("%s is none of ${NAME}, ${env:NAME}, ${NAME:-default}, ${input:ID}, ${workspaceFolder} and ${userHome}", quote("${"+reference+"}"))
	case strings.Contains(fallback, "${"):
		return "", fmt.Errorf("the default of %s holds another ${: a default is plain text", quote("${"+name+"}"))
	}
	env := r.file.Env
	if env == nil {
		env = os.LookupEnv
	}
	if value, set := env(name); set {
		return value, nil
	}
	if hasFallback {
		return fallback, nil
	}
	return "", fmt.Errorf("the environment variable %s is not set, and there is no default: set it, or write ${%s:-default}", name, name)
}

func isVariable(name string) bool {
	other := func(c rune) bool { return unusual(c) || c == '-' }
	return name != "" && !strings.ContainsFunc(name, other) && (name[0] < '0' || name[0] > '9')
}

// afford counts what variables stand for: a short file can name a long variable
// many times. Exceeding the bound is reported once.
func (r *reader) afford(n node, size int) bool {
	within := r.added <= maxSize
	r.added += size
	if within && r.added > maxSize {
		r.wrong(n, "the variables of the server stand for more than %d bytes", maxSize)
	}
	return r.added <= maxSize
}

// input returns the user's answer, and asks for it if nobody has.
func (r *reader) input(id string) (string, error) {
	if answer, ok := r.file.answers[id]; ok {
		return answer, nil
	}
	reference := quote("${input:" + id + "}")
	in, err := r.file.input(id)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", reference, err)
	case r.file.Ask == nil:
		return "", fmt.Errorf("%s is asked of the user, and nobody can be asked here: use an environment variable, ${NAME}", reference)
	}
	answer, err := r.file.Ask(*in)
	if err != nil {
		return "", fmt.Errorf("%s has no answer: %w", reference, err)
	}
	if r.file.answers == nil {
		r.file.answers = map[string]string{}
	}
	r.file.answers[id] = answer
	return answer, nil
}

// input finds an element of inputs.
func (f *File) input(id string) (*Input, error) {
	list, _ := f.inputs.value.(*hujson.Array)
	if list == nil {
		return nil, errors.New("the file has no list of inputs")
	}
	for _, element := range list.Elements {
		r := &reader{file: f}
		set := r.settings(node{value: element.Value}, func(member) {}, "type", "id", "description", "default", "password", "options")
		if text(set["id"]) != id {
			continue
		}
		in := &Input{ID: id, Description: text(set["description"]), Default: text(set["default"]), Password: r.boolean(set["password"], false)}
		switch kind := text(set["type"]); kind {
		case "promptString":
		case "pickString":
			options, _ := set["options"].value.(*hujson.Array)
			if options == nil || len(options.Elements) == 0 {
				return nil, errors.New("the input has no options to choose from")
			}
			for _, option := range options.Elements {
				in.Options = append(in.Options, text(node{value: option.Value}))
			}
			if slices.Contains(in.Options, "") {
				return nil, errors.New("an option of the input is not a string, or empty")
			}
		default:
			return nil, fmt.Errorf("the type of the input is %s: only promptString and pickString can be asked", quote(kind))
		}
		return in, nil
	}
	return nil, errors.New("the file has no input of that id")
}

// text is a string as the file has it, or empty if the value is no string.
func text(n node) string {
	if literal, ok := n.value.(hujson.Literal); ok && literal.Kind() == '"' {
		return literal.String()
	}
	return ""
}
