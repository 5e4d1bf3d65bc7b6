package consent

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/internal/redact"
)

// Credentials of an mcp.json that are recognised are shown as marks: the user and the query of a
// URL, the values of headers, and arguments whose flag or form says that they are secrets. Whoever
// wrote the file knows these rules. So a program that runs comes before a credential: nothing is
// masked that has a meaning for a shell, or may be a program, a file or a flag.

// plain are the characters of a credential that have no meaning for a shell.
const plain = `[\w%.~+/:@,=-]`

var (
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(token|secret|passw|passphrase|credential|authorization|bearer|jwt|api.?key|access.?key|private.?key|^-*(key|auth|pat|pwd|pass|cookie)$)`)
	})
	// programName matches names such as credential.helper, whose value runs or is read.
	programName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(helper|command|cmd|program|exec|script|shell|askpass|file|path|dir|url|uri)s?$`)
	})
	// credential matches a credential, after its scheme.
	credential = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^((?i:basic |bearer |token )?)` + plain + `+$`) })
	cookies    = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[\w.-]+=` + plain + `*(; *[\w.-]+=` + plain + `*)*;?$`)
	})
	knownToken = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(gh[opusr]_|github_pat_|glpat-|sk-|xox[abeprs]-)[\w-]{16,}$`)
	})
	userOfURL  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(://)[\w%.~+:,=!*^-]+@`) })
	queryValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`([?&][\w%.~+-]+=)[\w%.~+/:@,=!*^-]+`)
	})
	bareQuery = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\?[\w%.~+/:@,-]+([^\w%.~+/:@,=-]|$)`)
	})
	fragmentValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([#&])([\w%.~+-]+)=` + plain + `+`) })
	fragment      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`#.*$`) })
	headerLine    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([\w-]+)(: *)(.+)$`) })
	isName        = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w.-]+$`) })
	shellWord     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"']+|\s+`) })
)

// maskedAddress masks the address of a server, which cannot run: also its whole fragment.
func maskedAddress(address string) string {
	return maskedURL(fragment().ReplaceAllString(address, "#"+redact.Mark))
}

// masked returns a text with marks in place of the user, the query and the secrets in the fragment
// of a URL. The rest of a fragment may say which version of a program runs.
func masked(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	address, _, _ := strings.Cut(text, "#")
	return maskedURL(address) + fragmentValue().ReplaceAllStringFunc(text[len(address):], func(pair string) string {
		name, _, _ := strings.Cut(pair, "=")
		if !isSecretName(strings.TrimLeft(name, "#&")) {
			return pair
		}
		return name + "=" + redact.Mark
	})
}

func maskedURL(text string) string {
	text = userOfURL().ReplaceAllString(text, "${1}"+redact.Mark+"@")
	text = queryValue().ReplaceAllString(text, "${1}"+redact.Mark)
	return bareQuery().ReplaceAllString(text, "?"+redact.Mark+"${1}")
}

// maskedCommand returns the words of a command that runs in a directory, with marks in place of
// credentials.
func maskedCommand(words []any, directory string) string {
	m := masking{directory: directory}
	shown := make([]string, len(words))
	for i, word := range words {
		text, ok := word.(string)
		if !ok {
			m.flag = ""
			shown[i] = asWritten(word)
			continue
		}
		shown[i] = asWritten(m.next(text))
	}
	return strings.Join(shown, " ")
}

// A masking masks a command word by word.
type masking struct {
	directory string // where the command runs
	program   string // the first word
	flag      string // the word before, if it is a flag without a value
	operands  int    // words after the program that are no flags
}

// next masks the next word.
func (m *masking) next(word string) string {
	first := m.program == ""
	shown := m.word(word)
	isFlag := strings.HasPrefix(word, "-")
	switch {
	case first:
		m.program = strings.TrimSuffix(filepath.Base(word), ".exe")
	case !isFlag:
		m.operands++
	}
	if m.flag = ""; !first && isFlag && !strings.Contains(word, "=") {
		m.flag = word
	}
	return shown
}

func (m *masking) word(word string) string {
	name, value, assigns := strings.Cut(word, "=")
	switch {
	case isHeaderFlag(m.flag):
		return m.header(word)
	case isHeaderFlag(name) && assigns:
		return name + "=" + m.header(value)
	case strings.HasPrefix(word, "-H") && len(word) > len("-H"):
		return "-H" + m.header(strings.TrimPrefix(word, "-H"))
	case name == "--env" && assigns && strings.Contains(value, "="):
		variable, value, _ := strings.Cut(value, "=")
		return name + "=" + variable + "=" + m.value(variable, value, m.isContainer())
	case m.isContainer() && assigns && (m.flag == "-e" || m.flag == "--env" || strings.HasPrefix(name, "-e")):
		return name + "=" + m.value(name, value, true)
	case isSecretName(m.flag) && !strings.HasPrefix(word, "-"):
		return m.value(m.flag, word, true)
	case assigns && isName().MatchString(name) && m.value(name, value, false) != masked(value):
		return name + "=" + m.value(name, value, false)
	case strings.ContainsAny(word, " \t\r\n"):
		return m.line(word)
	case m.operands > 0 && m.flag == "": // the first operand, and the value of a flag, may be what runs
		return m.value("", word, false)
	default:
		return masked(word)
	}
}

// line masks a text that is itself a command.
func (m *masking) line(text string) string {
	inner := masking{directory: m.directory}
	return shellWord().ReplaceAllStringFunc(text, func(word string) string {
		switch {
		case strings.TrimSpace(word) == "":
			if strings.ContainsAny(word, "\r\n") {
				inner = masking{directory: m.directory} // another command
			}
			return word
		case len(word) > 1 && (word[0] == '"' || word[0] == '\''):
			return word[:1] + inner.next(word[1:len(word)-1]) + word[:1]
		default:
			return inner.next(word)
		}
	})
}

// value masks the value of a name, if that is a secret in any case, by its name or by its form.
func (m *masking) value(name, value string, secret bool) string {
	scheme := credential().FindStringSubmatch(value)
	switch {
	case m.mayRun(value):
		return masked(value)
	case knownToken().MatchString(value):
		return redact.Mark
	case !secret && !isSecretName(name):
		return masked(value)
	case scheme != nil:
		return scheme[1] + redact.Mark
	case strings.Contains(strings.ToLower(name), "cookie") && cookies().MatchString(value):
		return redact.Mark
	default:
		return masked(value)
	}
}

// mayRun reports whether a value may be a flag, a path, a file or a program.
func (m *masking) mayRun(value string) bool {
	return value == "" || strings.ContainsAny(value[:1], "-.~") || strings.ContainsAny(value, `/\`) || m.isThere(value)
}

// isThere reports whether a text names a file, or a program of PATH.
func (m *masking) isThere(name string) bool {
	for _, path := range []string{name, filepath.Join(m.directory, name)} {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	_, err := exec.LookPath(name)
	return err == nil
}

// header masks the value of a header that is written as "Name: value", after its scheme.
func (m *masking) header(text string) string {
	parts := headerLine().FindStringSubmatch(text)
	if parts == nil || redact.IsOrdinary(parts[1]) || m.isThere(text) {
		return masked(text)
	}
	return parts[1] + parts[2] + m.value(parts[1], parts[3], true)
}

// isContainer reports whether the command starts a container, with variables after -e.
func (m *masking) isContainer() bool {
	return m.program == "docker" || m.program == "podman" || m.program == "nerdctl"
}

func isSecretName(name string) bool {
	return secretName().MatchString(name) && !programName().MatchString(name)
}

func isHeaderFlag(flag string) bool { return flag == "-H" || flag == "--header" || flag == "--headers" }
