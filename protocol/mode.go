package protocol

// MetaToolMode is the member of a tool's _meta by which a server says how the
// tool may be carried over to another session of it. It is this project's own.
const MetaToolMode = "io.github.bowline-mcp/mode"

// A ToolMode is whether calls of a tool depend on earlier ones of the session.
type ToolMode string

const (
	Stateless ToolMode = "stateless" // they do not: any session of the server will do
	Stateful  ToolMode = "stateful"  // they do: in another session they mean something else, or nothing
)

// Mode is what the server says of the tool's mode; "" when it says nothing, or
// nothing known here.
func (t *Tool) Mode() ToolMode {
	var mode ToolMode
	raw, ok := t.Meta[MetaToolMode]
	if !ok || Unmarshal(raw, &mode) != nil || mode != Stateless && mode != Stateful {
		return ""
	}
	return mode
}
