package mcpjson

import (
	"errors"
	"fmt"
	"io/fs"
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

// variableForms are those of the package comment.
const variableForms = "${NAME}, ${env:NAME}, ${NAME:-default}, ${input:ID}, ${workspaceFolder}, ${workspaceFolderBasename}, ${userHome}, ${pathSeparator} and ${/}"

// An expansion replaces the variables in the values of one server. The total size of their
// values is bounded, because a short file can name a long variable many times.
type expansion struct {
	file  *File
	added int // bytes so far
}

// expand replaces the variables of a text, as the package comment says. It returns a problem
// for each one that it cannot replace. If the bound was exceeded earlier, ok is false and
// there is no further problem.
func (e *expansion) expand(text string) (expanded string, ok bool, problems []error) {
	var out strings.Builder
	ok = true
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), ok, problems
		}
		reference, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", false, append(problems, errors.New("${ without its }"))
		}
		value, err := e.file.variable(reference)
		if err != nil {
			problems, ok = append(problems, err), false
		}
		if within, err := e.spend(len(value)); !within {
			if err != nil {
				problems = append(problems, err)
			}
			return "", false, problems
		}
		out.WriteString(value)
		text = after
	}
}

// spend counts the bytes of a variable or an envFile. It returns an error when the bound is
// exceeded for the first time.
func (e *expansion) spend(size int) (within bool, err error) {
	if e.added > maxSize {
		return false, nil
	}
	if e.added += size; e.added > maxSize {
		return false, fmt.Errorf("the variables of the server stand for more than %d bytes", maxSize)
	}
	return true, nil
}

// variable returns the value of ${reference}.
func (f *File) variable(reference string) (string, error) {
	switch reference {
	case "workspaceFolder":
		return filepath.Abs(f.folder())
	case "workspaceFolderBasename":
		folder, err := filepath.Abs(f.folder())
		return filepath.Base(folder), err
	case "userHome":
		return os.UserHomeDir()
	case "pathSeparator", "/":
		return string(filepath.Separator), nil
	}
	if id, ok := strings.CutPrefix(reference, "input:"); ok {
		return f.answer(id)
	}
	return f.environmentVariable(reference)
}

func (f *File) environmentVariable(reference string) (string, error) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	name = strings.TrimPrefix(name, "env:")
	switch {
	case !isVariable(name):
		return "", fmt.Errorf("%s is none of %s", quote("${"+reference+"}"), variableForms)
	case strings.Contains(fallback, "${"):
		return "", fmt.Errorf("the default of %s holds another ${: a default is plain text", quote("${"+name+"}"))
	}
	env := f.Env
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

// answer returns the user's answer for an input, and asks for it if there is none yet.
func (f *File) answer(id string) (string, error) {
	if answer, ok := f.answers[id]; ok {
		return answer, nil
	}
	reference := quote("${input:" + id + "}")
	in, err := f.input(id)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", reference, err)
	case f.Ask == nil:
		return "", fmt.Errorf("%s is asked of the user, and nobody can be asked here: use an environment variable, ${NAME}", reference)
	}
	answer, err := f.Ask(*in)
	if err != nil {
		return "", fmt.Errorf("%s has no answer: %w", reference, err)
	}
	if f.answers == nil {
		f.answers = map[string]string{}
	}
	f.answers[id] = answer
	return answer, nil
}

// input returns the element of inputs with this id.
func (f *File) input(id string) (*Input, error) {
	list, _ := f.inputs.value.(*hujson.Array)
	if list == nil {
		return nil, errors.New("the file has no list of inputs")
	}
	for _, element := range list.Elements {
		set := newValues(f).settings(node{value: element.Value}, func(member) {}, "type", "id", "description", "default", "password", "options")
		if text(set["id"]) != id {
			continue
		}
		in := &Input{ID: id, Description: text(set["description"]), Default: text(set["default"]), Password: newValues(f).boolean(set["password"], false)}
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

// text returns a string as it is in the file, or "" if the value is no string.
func text(n node) string {
	if n.absent() || n.value.Kind() != '"' {
		return ""
	}
	return n.value.(hujson.Literal).String()
}

// readEnvFile returns the variables of the file that envFile names, as "NAME=value".
func readEnvFile(v *values, n node) []string {
	path := v.path(n)
	if path == "" {
		return nil
	}
	written := quote(text(n)) // the path may hold what a variable stands for
	read := v.file.ReadFile
	if read == nil {
		read = readFile
	}
	content, err := read(path)
	if err != nil {
		var failed *fs.PathError
		if errors.As(err, &failed) {
			err = failed.Err
		}
		v.wrong(n, "%s cannot be read: %s", written, plain(err.Error()))
		return nil
	}
	if within, err := v.expansion.spend(len(content)); !within {
		if err != nil {
			v.wrong(n, "%v", err)
		}
		return nil
	}
	v.record(n, string(content))
	env, line, err := parseEnv(string(content))
	if err != nil {
		v.wrong(n, "%s, line %d: %v", written, line, err)
	}
	return env
}

// readFile reads a regular file of bounded size. Other kinds of file can block.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := readBounded(path)
	if len(text) > maxSize {
		err = fmt.Errorf("it is above the limit of %d bytes", maxSize)
	}
	return text, err
}

// parseEnv reads lines of NAME=value. Its error concerns the line with that number. It shows
// nothing of the text, which may be secret.
func parseEnv(text string) (env []string, line int, err error) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\uFEFF"), "\r\n", "\n")
	for line = 1; text != ""; line++ {
		var written string
		written, text, _ = strings.Cut(text, "\n")
		written = strings.TrimSpace(written)
		if written == "" || written[0] == '#' {
			continue
		}
		written = strings.TrimSpace(strings.TrimPrefix(written, "export "))
		name, value, found := strings.Cut(written, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || !isEnvName(name) {
			return nil, line, errors.New("expected NAME=value")
		}
		lines := 0
		if value != "" && strings.IndexByte("'\"`", value[0]) >= 0 {
			value, text, lines, err = quoted(value, text)
		} else {
			value = withoutComment(value)
		}
		switch {
		case err != nil:
			return nil, line, err
		case strings.ContainsRune(value, 0):
			return nil, line, errors.New("a NUL character, which no program can receive")
		}
		env, line = append(env, name+"="+value), line+lines
	}
	return env, 0, nil
}

// quoted reads a value that begins with a quote, and may continue on the next lines. A
// backslash escapes a character between double quotes only.
func quoted(first, rest string) (value, after string, lines int, err error) {
	quote, text := first[0], first[1:]+"\n"+rest
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			tail, after, _ := strings.Cut(text[i+1:], "\n")
			if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
				return "", "", 0, errors.New("something follows the closing quote")
			}
			return out.String(), after, strings.Count(text[:i], "\n"), nil
		case c == '\\' && quote == '"' && i+1 < len(text):
			i++
			switch text[i] {
			case 'n':
				out.WriteByte('\n')
			case 'r':
				out.WriteByte('\r')
			case 't':
				out.WriteByte('\t')
			case '"', '\\':
				out.WriteByte(text[i])
			default:
				out.WriteString(text[i-1 : i+1])
			}
		default:
			out.WriteByte(c)
		}
	}
	return "", "", 0, errors.New("a quote without its partner")
}

// withoutComment cuts off a comment. It starts with a # at the beginning of the value, or
// after white space.
func withoutComment(value string) string {
	for i := range len(value) {
		if value[i] == '#' && (i == 0 || value[i-1] == ' ' || value[i-1] == '\t') {
			return strings.TrimSpace(value[:i])
		}
	}
	return value
}

func isEnvName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool { return unusual(c) && c != '.' })
}

// plain returns a message as one printable line.
func plain(message string) string {
	quoted := fmt.Sprintf("%q", message)
	if strings.Contains(quoted, `\`) {
		return quoted
	}
	return message
}
