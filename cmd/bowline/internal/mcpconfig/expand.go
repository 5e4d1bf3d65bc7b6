package mcpconfig

import (
	"fmt"
	"strings"
)

// expand puts in the variables, as the package comment says. Every one that
// cannot be is a mistake of its own.
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

// variable is what stands for ${reference}.
func (r *reader) variable(reference string) (string, error) {
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	name = strings.TrimPrefix(name, "env:")
	switch {
	case strings.HasPrefix(reference, "input:"):
		return "", fmt.Errorf("%s is for VS Code to ask its user: use an environment variable, ${NAME}", quote("${"+reference+"}"))
	case !isVariable(name):
		return "", fmt.Errorf("%s is neither ${NAME} nor ${env:NAME} nor ${NAME:-default}", quote("${"+reference+"}"))
	case strings.Contains(fallback, "${"):
		return "", fmt.Errorf("the default of %s holds another ${", quote("${"+name+"}"))
	}
	if value, set := r.env(name); set {
		return value, nil
	}
	if hasFallback {
		return fallback, nil
	}
	return "", fmt.Errorf("the environment variable %s is not set, and there is no default", name)
}

func isVariable(name string) bool {
	other := func(c rune) bool { return unusual(c) || c == '-' }
	return name != "" && !strings.ContainsFunc(name, other) && (name[0] < '0' || name[0] > '9')
}

// afford counts what variables stand for: a short file can name a long one
// many times. That it was too much is reported once.
func (r *reader) afford(n node, size int) bool {
	within := r.added <= maxSize
	r.added += size
	if within && r.added > maxSize {
		r.wrong(n, "the variables of the file stand for more than %d bytes", maxSize)
	}
	return r.added <= maxSize
}
