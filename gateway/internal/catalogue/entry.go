//bowline:pure

package catalogue

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/gateway/internal/names"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/go-json-experiment/json/jsontext"
)

// A Kind is one of the lists of a server.
type Kind string

// The kinds, with the names that their lists have in MCP.
const (
	Tools     Kind = "tools"
	Prompts   Kind = "prompts"
	Resources Kind = "resources"
	Templates Kind = "resourceTemplates"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Tools, Prompts, Resources, Templates} }

const (
	// MaxEntries is how many entries a list of a server may have. What follows is left out.
	MaxEntries = 10_000
	// MaxBytes is the size of a list of a server. What follows is left out.
	MaxBytes = 16 << 20
	// MaxEntry is the size of an entry, after its description was cut. A larger one is left out.
	MaxEntry = 1 << 20
	// MaxDescription is where a description is cut.
	MaxDescription = 64 << 10
	// MaxNotices is how many notices are kept of a list, and as many of its schemas; one more says how many there were.
	MaxNotices = 32
)

// A Notice says what is not as the server has it.
type Notice struct {
	Server string `json:"server"`
	Kind   Kind   `json:"kind"`
	Text   string `json:"text"`
}

// An entry is one element of a list.
type entry struct {
	own  string          // its name or URI
	raw  json.RawMessage // as the server has it, without white space
	name span            // where raw has the name of a tool or prompt
	says Says            // what it says of itself

	changed bool   // it is a tool that is not as it was approved
	item    Item   // as it is offered
	notice  string // if its name could not be kept
}

// named returns the entry as a server of this plan offers it.
func (e entry) named(plan *names.Plan, of Server, kind Kind) entry {
	raw, name := e.raw, e.name
	if text, described := of.Describe[e.own]; described && kind == Tools {
		raw, name = describe(raw, text)
	}
	e.item, e.notice = Item{Server: of.Name, Own: e.own, Name: e.own, Raw: raw, Says: e.says}, ""
	if kind == Tools || kind == Prompts {
		e.item.Name, e.notice = plan.Name(of.Name, of.called(kind, e.own))
		if e.item.Name != e.own { // one without a name is not offered
			e.item.Raw = splice(raw, name, e.item.Name)
		}
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d\n%s%s", len(e.item.Name), e.item.Name, e.item.Raw)
	hash.Sum(e.item.sum[:0])
	return e
}

// called returns the name that the file gives to a tool, or the one that its server gives it.
func (s Server) called(kind Kind, own string) string {
	if name, renamed := s.Rename[own]; renamed && kind == Tools {
		return name
	}
	return own
}

// describe replaces the description of a valid entry, and returns where its name is then.
func describe(raw []byte, text string) (described []byte, name span) {
	found, _ := members(raw) // it was read before
	if at, has := found["description"]; has {
		described = splice(raw, at, text)
	} else {
		described = splice([]byte(`{"description":,`), span{len(`{"description":`), len(`{"description":`)}, text)
		described = append(described, raw[1:]...)
	}
	found, _ = members(described)
	return described, found["name"]
}

// identity is the member by which entries of a kind are told apart.
func (k Kind) identity() string {
	switch k {
	case Resources:
		return "uri"
	case Templates:
		return "uriTemplate"
	default:
		return "name"
	}
}

// forms is which form the members of entries must have, by the first byte of their JSON. Others may have any form.
var forms = map[string]byte{
	"name": '"', "title": '"', "description": '"', "uri": '"', "uriTemplate": '"', "mimeType": '"', "size": '0',
	"inputSchema": '{', "outputSchema": '{', "annotations": '{', "execution": '{', "_meta": '{', "icons": '[', "arguments": '[',
}

// accept takes over what a server lists, and returns a text for each thing that it leaves out or changes, or that clients may refuse; inputs are those of
// input schemas.
func accept(kind Kind, all []json.RawMessage) (entries []entry, notices, inputs []string) {
	var notes, refused, refusedInputs texts
	size, seen := 0, make(map[string]bool, min(len(all), MaxEntries))
	for i, raw := range all {
		if len(entries) == MaxEntries || size > MaxBytes-min(len(raw), MaxEntry) {
			notes.add("the last %d of %d are left out: at most %d, and %d bytes together, are offered", len(all)-i, len(all), MaxEntries, MaxBytes)
			break
		}
		e, found, said, err := acceptOne(kind, raw)
		switch {
		case err != nil:
			notes.add("number %d is left out: %v", i+1, err)
			continue
		case seen[e.own]:
			notes.add("%s is listed twice: the first one counts", shown(e.own))
			continue
		}
		if said != "" {
			notes.add("%s", said)
		}
		if kind == Tools {
			e.refusedSchemas(found, &refused, &refusedInputs)
		}
		seen[e.own], size = true, size+len(e.raw)
		entries = append(entries, e)
	}
	return entries, append(notes.all(), refused.all()...), refusedInputs.all()
}

// texts are the first MaxNotices of what is said.
type texts struct {
	first []string
	more  int
}

func (t *texts) add(format string, args ...any) {
	if len(t.first) == MaxNotices {
		t.more++
		return
	}
	t.first = append(t.first, fmt.Sprintf(format, args...))
}

func (t *texts) all() []string {
	if t.more > 0 {
		return append(t.first, fmt.Sprintf("and %d more", t.more))
	}
	return t.first
}

// acceptOne reads an entry. It returns its members, and what is to be said of one that is offered.
func acceptOne(kind Kind, raw json.RawMessage) (e entry, found map[string]span, said string, err error) {
	if len(raw) > 4*MaxEntry {
		return e, nil, "", fmt.Errorf("it has %d bytes", len(raw))
	}
	compact := jsontext.Value(bytes.Clone(raw)) // as it is read back from a file
	if err := compact.Compact(jsontext.AllowDuplicateNames(true)); err != nil {
		return e, nil, "", errors.New("it is no JSON")
	}
	if found, err = members(compact); err != nil {
		return e, nil, "", err
	}
	e = entry{own: text(compact, found[kind.identity()]), raw: json.RawMessage(compact), name: found["name"]}
	if err := e.check(kind, found); err != nil {
		return e, nil, "", err
	}
	e.says = saysOf(kind, compact, found)
	if description := text(compact, found["description"]); len(description) > MaxDescription {
		said = fmt.Sprintf("the description of %s has %d bytes, and is cut to %d", shown(e.own), len(description), MaxDescription)
		e.raw = splice(e.raw, found["description"], beginning(description, MaxDescription))
		if found, err = members(e.raw); err != nil {
			return e, nil, "", err
		}
		e.name = found["name"]
	}
	if len(e.raw) > MaxEntry {
		return e, nil, "", fmt.Errorf("%s has %d bytes, more than %d", shown(e.own), len(e.raw), MaxEntry)
	}
	return e, found, said, nil
}

// refusedSchemas says which schemas of a tool clients may refuse.
func (e entry) refusedSchemas(found map[string]span, all, inputs *texts) {
	for _, name := range []string{"inputSchema", "outputSchema"} {
		if err := schema.CheckReferences(e.raw[found[name].start:found[name].end]); err != nil {
			const format = "the %s of %s may be refused by clients: %v"
			all.add(format, name, shown(e.own), err)
			if name == "inputSchema" {
				inputs.add(format, name, shown(e.own), err)
			}
		}
	}
}

// saysOf returns what a tool says of itself. Where it repeats a member, it says nothing.
func saysOf(kind Kind, tool []byte, found map[string]span) (says Says) {
	if kind != Tools {
		return says
	}
	annotations, hints := object(tool, found["annotations"])
	execution, of := object(tool, found["execution"])
	meta, own := object(tool, found["_meta"])
	tasks := protocol.TaskSupport(text(execution, of["taskSupport"]))
	return Says{
		ReadOnly:   textAt(annotations, hints["readOnlyHint"]) == "true",
		Stateful:   text(meta, own[protocol.MetaToolMode]) == string(protocol.Stateful),
		CanBeTask:  tasks == protocol.TaskOptional || tasks == protocol.TaskRequired,
		MustBeTask: tasks == protocol.TaskRequired,
	}
}

// object returns an object that is a member, and where its own members are: none if it is absent or no object.
func object(raw []byte, at span) (inside json.RawMessage, found map[string]span) {
	if inside = raw[at.start:at.end]; len(inside) > 0 {
		found, _ = members(inside)
	}
	return inside, found
}

// check says why a client could not read the entry.
func (e entry) check(kind Kind, found map[string]span) error {
	if e.own == "" {
		return fmt.Errorf("it has no %s", kind.identity())
	}
	for name, at := range found {
		if form := forms[name]; form != 0 && jsontext.Value(e.raw[at.start:]).Kind() != jsontext.Kind(form) && e.raw[at.start] != 'n' {
			return fmt.Errorf("the %s of %s has the wrong type", name, shown(e.own))
		}
	}
	if input, there := found["inputSchema"]; kind == Tools && (!there || e.raw[input.start] != '{') {
		return fmt.Errorf("the inputSchema of %s is no object", shown(e.own))
	}
	if kind != Templates {
		return nil
	}
	if _, err := compile(e.own); err != nil {
		return fmt.Errorf("%s: %w", shown(e.own), err)
	}
	return nil
}

// rawOf returns entries as the server has them.
func rawOf(entries []entry) []json.RawMessage {
	all := make([]json.RawMessage, len(entries))
	for i, e := range entries {
		all[i] = e.raw
	}
	return all
}
