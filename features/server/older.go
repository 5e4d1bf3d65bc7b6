package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// questionsIn adapts questions to a revision. It converts or leaves out what the
// revision does not have, or fails with ErrUnsupported. It copies questions before it
// changes them, because they may be shared.
// It is called for each question, just before that goes out: the handler asks in the newest form, and does not know
// for whom.
func questionsIn(version string, asked protocol.InputRequests) (protocol.InputRequests, error) {
	if revision.Has(version, revision.ListFields) {
		return asked, nil
	}
	older := make(protocol.InputRequests, len(asked))
	for key, q := range asked {
		adapted, err := olderQuestion(version, q)
		if err != nil {
			return nil, fmt.Errorf("the question %q: %w", key, err)
		}
		older[key] = adapted
	}
	return older, nil
}

// olderQuestion returns a copy of a question as an older revision has it. A list of roots is the
// same in all of them.
func olderQuestion(version string, q protocol.InputRequest) (_ protocol.InputRequest, err error) {
	switch q := q.(type) {
	case *protocol.ElicitParams:
		copied := *q
		copied.Mode = ""
		copied.RequestedSchema, err = olderForm(q.RequestedSchema)
		return &copied, err
	case *protocol.CreateMessageParams:
		copied := *q
		copied.Messages, err = olderMessages(version, q.Messages)
		return &copied, err
	default:
		return q, nil
	}
}

// olderForm converts a form to 2025-06-18. Only a bool has a default there, and the
// titles of choices are a separate list. A field with several choices is left out; if it
// is required, olderForm fails.
func olderForm(form json.RawMessage) (json.RawMessage, error) {
	if len(form) == 0 {
		return form, nil
	}
	var said struct {
		Required []string `json:"required"`
	}
	if err := protocol.Unmarshal(form, &said); err != nil {
		return nil, fmt.Errorf("its form cannot be read: %w", err)
	}
	members, err := membersOf(form)
	if err != nil {
		return nil, err
	}
	var older []member
	for _, m := range members {
		switch m.name {
		// A form of that revision has no such member.
		case "$schema":
			continue
		case "properties":
			if m.value, err = olderFields(m.value, said.Required); err != nil {
				return nil, err
			}
		}
		older = append(older, m)
	}
	return objectOf(older), nil
}

func olderFields(properties json.RawMessage, required []string) (json.RawMessage, error) {
	fields, err := membersOf(properties)
	if err != nil {
		return nil, err
	}
	var older []member
	for _, field := range fields {
		// To leave out a field that is required would change what is asked.
		several, err := field.olderField()
		switch {
		case err != nil:
			return nil, fmt.Errorf("its field %.80q: %w", field.name, err)
		case several && slices.Contains(required, field.name):
			return nil, fmt.Errorf("%w: before %s there is no choice of several, as its field %.80q is", ErrUnsupported, revision.Since(revision.ListFields), field.name)
		case !several:
			older = append(older, field)
		}
	}
	return objectOf(older), nil
}

// olderField converts a field to 2025-06-18, or reports that it allows several choices.
func (m *member) olderField() (several bool, err error) {
	members, err := membersOf(m.value)
	if err != nil {
		return false, err
	}
	var field choices
	if err := protocol.Unmarshal(m.value, &field); err != nil {
		return false, err
	}
	if field.Type == "array" {
		return true, nil
	}
	var older []member
	for _, said := range members {
		switch {
		case said.name == "default" && field.Type != "boolean":
		case said.name == "oneOf":
			older = append(older, field.older()...)
		default:
			older = append(older, said)
		}
	}
	m.value = objectOf(older)
	return false, nil
}

// choices is what a field says of its choices.
type choices struct {
	Type  string `json:"type"`
	OneOf []struct {
		Const string `json:"const"`
		Title string `json:"title"`
	} `json:"oneOf"`
}

// older returns the choices as two lists, which a client reads side by side: the values and their
// titles.
func (c *choices) older() []member {
	var values, titles []string
	for _, choice := range c.OneOf {
		values, titles = append(values, choice.Const), append(titles, choice.Title)
	}
	return []member{{"enum", quoted(values)}, {"enumNames", quoted(titles)}}
}

// olderMessages returns a conversation with one block for each message, and without
// _meta.
func olderMessages(version string, messages []protocol.SamplingMessage) (older []protocol.SamplingMessage, err error) {
	for _, message := range messages {
		for _, block := range downgraded(version, protocol.Contents(message.Content)) {
			switch block.(type) {
			case *protocol.ToolUseContent, *protocol.ToolResultContent:
				return nil, fmt.Errorf("%w: a conversation of %s has no use of tools", ErrUnsupported, version)
			}
			older = append(older, protocol.SamplingMessage{Role: message.Role, Content: protocol.SamplingContents{block}})
		}
	}
	return older, nil
}

// A member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in their order, in which a user sees the
// fields of a form. The object is valid JSON: the whole form was decoded before.
func membersOf(object json.RawMessage) (members []member, err error) {
	from := jsontext.NewDecoder(bytes.NewReader(object))
	if from.PeekKind() != '{' {
		return nil, errors.New("it is no object")
	}
	_, err = from.ReadToken()
	for err == nil && from.PeekKind() == '"' {
		name, unread := from.ReadToken()
		text := name.String() // the next read makes the token invalid
		value, unreadable := from.ReadValue()
		members, err = append(members, member{text, json.RawMessage(bytes.Clone(value))}), cmp.Or(unread, unreadable)
	}
	return members, err
}

// objectOf is the opposite of membersOf: the values are written as they were.
func objectOf(members []member) json.RawMessage {
	object := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(append(append(object, quoted(m.name)...), ':'), m.value...)
	}
	return append(object, '}')
}

// downgraded replaces blocks that a revision does not have by text about them.
func downgraded(version string, content protocol.Contents) protocol.Contents {
	all := make(protocol.Contents, len(content))
	for i, block := range content {
		all[i] = block
		switch block := block.(type) {
		case *protocol.ResourceLink:
			if !revision.Has(version, revision.ResourceLinks) {
				all[i] = protocol.Text(block.Name + ": " + block.URI)
			}
		case *protocol.AudioContent:
			if !revision.Has(version, revision.AudioBlocks) {
				all[i] = protocol.Text(fmt.Sprintf("(%s, %d bytes)", block.MIMEType, len(block.Data)))
			}
		}
	}
	return all
}

// lacks reports whether an object has no member of a name.
func lacks(object json.RawMessage, name string) bool {
	value, _ := jsonrpc.Member(object, name)
	return value == nil
}

// appendRest appends an object to dst, which has its opening brace already, and members that the object lacks with a comma behind
// each: at least one if the object has none.
func appendRest(dst []byte, object json.RawMessage) []byte {
	rest := bytes.TrimLeft(object[len("{"):], " \t\r\n")
	if bytes.HasPrefix(rest, []byte{'}'}) {
		dst = dst[:len(dst)-len(",")]
	}
	return append(dst, rest...)
}
