//bowline:pure

// Package names translates between what a server calls its tools and prompts, and what the gateway's clients call
// them:
//
//	plan, problems := names.Make(0, []names.Server{{Name: "files"}, {Name: "git hub"}})
//	name, notice := plan.Name("git hub", "create_issue") // "git_hub__create_issue", ""
//
//	table := plan.Table([]names.Own{{Server: "git hub", Name: "create_issue"}})
//	own, ok := table.Own("git_hub__create_issue") // what a call of a client means
//
// A Plan follows from the file alone, so a name depends on its server and on the tool, and never on who else is there:
// policies and prompts that use it stay right while servers come and go. A Table is a Plan applied to what the servers
// offer now, in which each name has one owner.
//
// Everything here is a pure function of its arguments. Values are immutable, and may be shared by goroutines.
//
// See docs/adr/0090-catalogue-and-names.md.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
)

const (
	// DefaultMax is the length of the longest name. Some clients accept 64 characters and put a prefix of their own
	// before a name, others accept 60.
	DefaultMax = 48
	// LeastMax and MostMax are the bounds of "maxName". A name needs room for a part of the server's, a part of the
	// tool's, and a digest; MCP allows 128 characters.
	LeastMax, MostMax = 32, 128

	between   = "__"                // stands between server and tool
	digits    = 8                   // of SHA-256, in a name that was changed
	tail      = digits + len("_")   // what they take
	leastOwn  = 1 + len(between)    // what a cut name keeps after the server's part
	longestIn = 256                 // bytes of a server's own name in a notice
	noPrefix  = "\x00no prefix\x00" // the key of a server that offers bare names: no name begins with it
)

// A Server is an entry of the file.
type Server struct {
	Name   string
	Prefix *string // replaces the name of the server in names; "" offers bare names; nil: the name of the server
}

// A Problem is a mistake in the name or the prefix of a server.
type Problem struct {
	Server  string
	Message string // says what to do
}

// A Plan says what the things of each server are called.
type Plan struct {
	max   int                 // of a name
	clean func(string) string // what a tool or prompt is called, as clients accept it
	keys  map[string]string   // by server
	rank  map[string]int      // the place in the file
}

// Make plans the names of the servers of a file, in file order. No name is longer than longest bytes, which is
// DefaultMax if it is 0, and otherwise between LeastMax and MostMax; if longest is negative, what servers call their things is kept as it
// is, whatever clients accept. Servers with a problem are in the Plan, too, unless another
// has their key: then the first one has it, and the others have no names.
func Make(longest int, servers []Server) (*Plan, []Problem) {
	most, accepted := formOf(longest)
	p := &Plan{max: most, clean: accepted, keys: map[string]string{}, rank: map[string]int{}}
	var problems []Problem
	owners := map[string]string{}
	for i, server := range servers {
		p.rank[server.Name] = i
		if server.Prefix != nil && *server.Prefix == "" {
			p.keys[server.Name] = noPrefix
			continue
		}
		key, problem := p.key(server)
		if owner, taken := owners[key]; taken && problem == "" {
			problem = fmt.Sprintf("its tools would have the same names as those of %s, which begin with %s%s: rename one of the two, or give it a prefix",
				Quote(owner, longestIn), key, between)
		} else if !taken {
			owners[key], p.keys[server.Name] = server.Name, key
		}
		if problem != "" {
			problems = append(problems, Problem{server.Name, problem})
		}
	}
	return p, problems
}

// formOf returns the length of the longest name, and what makes one of what a server calls a thing. Names that are kept
// have no bound of their own: an entry of a list has one. The part of a server, which the file chooses, is always one
// that clients accept.
func formOf(longest int) (most int, accepted func(own string) string) {
	switch {
	case longest < 0:
		return math.MaxInt, func(own string) string { return own }
	case longest == 0:
		return DefaultMax, clean
	default:
		return min(max(longest, LeastMax), MostMax), clean
	}
}

// key returns the part of a server in its names. It never contains two underscores together, nor ends with one, so
// that the first two in a name end the key: no server can take a name of another.
func (p *Plan) key(server Server) (key, problem string) {
	from, what := server.Name, "the name"
	if server.Prefix != nil {
		from, what = *server.Prefix, "the prefix"
	}
	if strings.Contains(from, between) {
		problem = what + " contains __, which stands between a server and its tool: write one underscore"
	}
	for key = clean(from); strings.Contains(key, between); {
		key = strings.ReplaceAll(key, between, "_")
	}
	key = strings.TrimRight(key, "_")
	if room := min(p.max, MostMax) - tail - leastOwn; len(key) > room {
		key = strings.TrimRight(key[:room-tail], "_") + "_" + digest(from)
	}
	if key == "" { // no letter of it is allowed in a name
		key = digest(from)
	}
	return key, problem
}

// Key returns what the names of a server begin with, "" if they are bare; ok is false if the server has no names.
func (p *Plan) Key(server string) (key string, ok bool) {
	key, ok = p.keys[server]
	return strings.TrimPrefix(key, noPrefix), ok
}

// Name returns what a thing of a server is called, and a notice if its own name could not be kept. The server must be
// in the Plan; name is "" otherwise, and if own is empty.
func (p *Plan) Name(server, own string) (name, notice string) {
	key, known := p.keys[server]
	if !known || own == "" {
		return "", ""
	}
	prefix := key + between
	if key == noPrefix {
		prefix = ""
	}
	plain := p.clean(own)
	switch name = prefix + plain; {
	case plain == own && len(name) <= p.max:
		return name, ""
	case plain == own:
		notice = "the name is too long"
	default:
		notice = "the name has characters that some clients refuse"
	}
	name = name[:min(len(name), p.max-tail)] + "_" + digest(own)
	return name, fmt.Sprintf("%s: %s is offered as %s", notice, Quote(own, longestIn), name)
}

// clean replaces each character that a client may refuse.
func clean(text string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}

// Quote returns a text that others have written as it may appear in a message: quoted, and at most so many bytes of it.
func Quote(text string, most int) string {
	if len(text) > most {
		return fmt.Sprintf("%q...", strings.ToValidUTF8(text[:most], ""))
	}
	return fmt.Sprintf("%q", text)
}
