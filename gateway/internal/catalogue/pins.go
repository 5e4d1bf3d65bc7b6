//bowline:pure

package catalogue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Modes says what becomes of a tool that is not as it was approved: Warn tells people, Block keeps it from clients as well, and Off does neither.
const (
	Warn  = "warn"
	Block = "block"
	Off   = "off"
)

// A pin is what a tool was when somebody approved it, or else when it was seen first. It outlives the tool: one that goes and comes back as another one
// is another one.
type pin struct {
	Sum string          `json:"sum"`          // of its definition
	Was json.RawMessage `json:"was,omitzero"` // that definition, while there is another one
}

// definition returns the members of a tool by which a model is told what it does, in a form that depends on nothing else.
func definition(raw []byte) json.RawMessage {
	found, _ := members(raw) // it was accepted
	out := []byte("{")
	for _, name := range []string{"annotations", "description", "inputSchema", "name", "outputSchema", "title"} {
		if at, has := found[name]; has {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, '"'), name...), `":`...)
			out = append(out, raw[at.start:at.end]...)
		}
	}
	value := jsontext.Value(append(out, '}'))
	_ = value.Canonicalize(jsontext.AllowDuplicateNames(true)) // it is valid; a server that repeats names has its own order
	return json.RawMessage(value)
}

func sumOf(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:])
}

// pinName is what a tool is known by: names may be as long as entries.
func pinName(own string) string {
	if len(own) <= 128 {
		return own
	}
	return own[:64] + "#" + sumOf([]byte(own))
}

// A Changed tool is not as it was approved.
type Changed struct {
	Server  string
	Own     string
	Members []Member
	Held    bool // clients do not see it
	Version string
	Unknown bool // the cluster has not said yet what it was
}

// versionOf tells apart what a tool has said of itself.
func versionOf(definition []byte) string { return sumOf(definition)[:16] }

// IsCalled reports whether a text means the tool: its name, or its name, @ and its version, which is what somebody has read of it. A name with an @ needs its version, or
// it could be taken for that of another tool.
func (c *Changed) IsCalled(text string) bool {
	return text == c.Own+"@"+c.Version || text == c.Own && !strings.Contains(text, "@")
}

// A Member is a part of a tool that has changed, as JSON; "": it was not there, or is not any more, or nobody knows what it was.
type Member struct{ Member, Was, Is string }

// differences names what differs. Of what nobody knows any more, everything does.
func differences(was, is json.RawMessage) (all []Member) {
	before, _ := members(was)
	after, _ := members(is)
	names := maps.Clone(after)
	maps.Copy(names, before)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		one := Member{name, textAt(was, before[name]), textAt(is, after[name])}
		if one.Was != one.Is {
			all = append(all, one)
		}
	}
	return all
}

func textAt(of json.RawMessage, at span) string { return string(of[at.start:at.end]) }

// String says what has changed, for people.
func (c *Changed) String() string {
	names := make([]string, len(c.Members))
	for i, m := range c.Members {
		names[i] = m.Member
	}
	held := ""
	if c.Held {
		held = ", and is not offered"
	}
	if c.Unknown {
		return fmt.Sprintf("%s waits for the cluster, which cannot be asked what it was%s", shown(c.Own), held)
	}
	return fmt.Sprintf("%s has changed since it was approved (%s)%s: see bowline pins", shown(c.Own), strings.Join(names, ", "), held)
}
