package main

import (
	"regexp"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/internal/redact"
)

// What an mcp.json says is shown without credentials, by the rules of package redact: the user
// and the query of a URL, and the values of headers. An argument may also be a token that a flag
// is given, or a variable for a container. Whoever wrote the file knows these rules, so only
// text without a meaning for a shell is masked.

// plain are the characters of a credential that have no meaning for a shell.
const plain = `[\w%.~+/:@,=-]`

var (
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(token|secret|passw|passphrase|credential|bearer|api.?key|access.?key|private.?key|^-*(key|auth|pat|pwd)$)`)
	})
	credential = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + plain + `+$`) })
	userOfURL  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(://)[\w%.~+:,=-]+@`) })
	queryValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`([?&][\w%.~+-]+=)[\w%.~+/:@,=-]+`)
	})
	bareQuery = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\?[\w%.~+/:@,-]+([^\w%.~+/:@,=-]|$)`)
	})
	headerValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([\w-]+)(: *)((?:\w+ )?)` + plain + `+$`) })
)

// masked returns a text with marks in place of the user and the query of each URL.
func masked(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	text = userOfURL().ReplaceAllString(text, "${1}"+redact.Mark+"@")
	text = queryValue().ReplaceAllString(text, "${1}"+redact.Mark)
	return bareQuery().ReplaceAllString(text, "?"+redact.Mark+"${1}")
}

// maskedCommand returns the words of a command, with marks in place of credentials.
func maskedCommand(words []any) string {
	shown := make([]string, len(words))
	flag := ""
	for i, word := range words {
		text, ok := word.(string)
		if !ok {
			shown[i], flag = asWritten(word), ""
			continue
		}
		shown[i] = asWritten(maskedWord(text, flag))
		if flag = ""; i > 0 && strings.HasPrefix(text, "-") && !strings.Contains(text, "=") {
			flag = text
		}
	}
	return strings.Join(shown, " ")
}

// maskedWord masks one word of a command. The flag is the word before it, if that is one.
func maskedWord(word, flag string) string {
	name, value, assigns := strings.Cut(word, "=")
	switch {
	case isHeaderFlag(flag):
		return maskedHeader(word)
	case isHeaderFlag(name) && assigns:
		return name + "=" + maskedHeader(value)
	case assigns && credential().MatchString(value) && (isEnvFlag(flag) || secretName().MatchString(name)):
		return name + "=" + redact.Mark
	case secretName().MatchString(flag) && !strings.HasPrefix(word, "-") && credential().MatchString(word):
		return redact.Mark
	default:
		return masked(word)
	}
}

func isHeaderFlag(flag string) bool { return flag == "-H" || flag == "--header" || flag == "--headers" }

func isEnvFlag(flag string) bool { return flag == "-e" || flag == "--env" }

// maskedHeader masks the value of a header that is written as "Name: value", after its scheme.
func maskedHeader(text string) string {
	if name, _, _ := strings.Cut(text, ":"); redact.IsOrdinary(name) {
		return text
	}
	return headerValue().ReplaceAllString(text, "${1}${2}${3}"+redact.Mark)
}
