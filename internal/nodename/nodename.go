// Package nodename contains the form in which clients carry the names of nodename. Any node that
// receives such a text can tell where it belongs:
//
//	node-1.<random>    the id of a session or a task
//	1.node-1.<sealed>  the requestState of a call that waits
//
// A text says nothing reliable about where it comes from: clients may send anything.
package nodename

import (
	"fmt"
	"strings"
)

const (
	// Longest is the maximum length of a name, in bytes.
	Longest = 64

	// Mark separates the name from the rest of a text. Neither contains it.
	Mark = "."

	// StateVersion begins every requestState.
	StateVersion = "1" + Mark
)

// Check returns an error unless a node may have the name: up to 64 ASCII letters, digits,
// hyphens and underscores. "" is permitted. It means that the node has no name.
func Check(name string) error {
	if len(name) > Longest || strings.IndexFunc(name, func(c rune) bool { return !permitted(c) }) >= 0 {
		return fmt.Errorf("%.80q cannot name a node: use at most %d letters, digits, hyphens and underscores", name, Longest)
	}
	return nil
}

func permitted(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// Join returns a text that begins with the name of a node, if that is not "". The rest
// must not contain Mark.
func Join(name, rest string) string {
	if name == "" {
		return rest
	}
	return name + Mark + rest
}

// Of returns the node that an id names. It returns "" if the id names none, or something
// that cannot be a name.
func Of(id string) string {
	at := strings.Index(id[:min(len(id), Longest+len(Mark))], Mark)
	if at < 0 || Check(id[:at]) != nil {
		return ""
	}
	return id[:at]
}

// OfState returns the node that a requestState names, as Of does.
func OfState(state string) string {
	rest, known := strings.CutPrefix(state, StateVersion)
	if !known {
		return ""
	}
	return Of(rest)
}
