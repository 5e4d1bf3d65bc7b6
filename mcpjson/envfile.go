package mcpjson

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

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
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
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
