package protocol

import (
	"encoding/json"
	"strings"
)

// An Implementation is the name and version of a client or server, as reported by
// itself. Use it as display text and in logs, not for decisions.
type Implementation struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"`
	Version     string `json:"version"`
	Description string `json:"description,omitzero"`
	WebsiteURL  string `json:"websiteUrl,omitzero"`
	// Icons are at most MaxParts when they are decoded.
	Icons []Icon `json:"icons,omitzero" most:"MaxParts icons"`
}

// An Icon is an image that stands for a tool, resource, prompt or
// implementation. Load only https and data URIs, without credentials.
type Icon struct {
	Source   string   `json:"src"`
	MIMEType string   `json:"mimeType,omitzero"`
	Sizes    []string `json:"sizes,omitzero"` // such as "48x48" or "any"
	Theme    string   `json:"theme,omitzero"` // "light" or "dark"; empty: either
}

// A Capability is a capability without settings: it is declared by its presence.
// Unknown members are kept.
type Capability struct {
	Others map[string]json.RawMessage `json:",unknown"`
}

// ClientCapabilities says what a client offers. Unknown members are kept.
type ClientCapabilities struct {
	Experimental map[string]json.RawMessage `json:"experimental,omitzero"`
	Extensions   map[string]json.RawMessage `json:"extensions,omitzero"` // settings by the extension's name
	Roots        *RootsCapability           `json:"roots,omitzero"`
	Sampling     *SamplingCapability        `json:"sampling,omitzero"`
	Elicitation  *ElicitationCapability     `json:"elicitation,omitzero"` // since 2025-06-18
	Tasks        *TasksCapability           `json:"tasks,omitzero"`       // 2025-11-25 only
	Others       map[string]json.RawMessage `json:",unknown"`
}

// RootsCapability says that a client lists its roots.
type RootsCapability struct {
	ListChanged bool                       `json:"listChanged,omitzero"` // legacy: the client reports changes
	Others      map[string]json.RawMessage `json:",unknown"`
}

// SamplingCapability says that a client lets servers use its model.
type SamplingCapability struct {
	Context *Capability                `json:"context,omitzero"` // since 2025-11-25: IncludeContext other than "none"
	Tools   *Capability                `json:"tools,omitzero"`   // since 2025-11-25: Tools and ToolChoice
	Others  map[string]json.RawMessage `json:",unknown"`
}

// ElicitationCapability says in which modes a client can ask its user. If no member is
// set, the client supports forms.
type ElicitationCapability struct {
	Form   *Capability                `json:"form,omitzero"` // since 2025-11-25
	URL    *Capability                `json:"url,omitzero"`  // since 2025-11-25
	Others map[string]json.RawMessage `json:",unknown"`
}

// CanForm reports whether the client shows forms. A nil capability shows none.
func (c *ElicitationCapability) CanForm() bool { return c != nil && (c.Form != nil || c.URL == nil) }

// CanURL reports whether the client opens URLs. A nil capability opens none.
func (c *ElicitationCapability) CanURL() bool { return c != nil && c.URL != nil }

// TasksCapability says which tasks of 2025-11-25 a client or server offers.
type TasksCapability struct {
	List   *Capability `json:"list,omitzero"`
	Cancel *Capability `json:"cancel,omitzero"`

	// Requests names the methods whose requests may become tasks, by their two
	// parts: Requests["tools"]["call"] for tools/call.
	Requests map[string]map[string]Capability `json:"requests,omitzero"`
	Others   map[string]json.RawMessage       `json:",unknown"`
}

// ServerCapabilities says what a server offers. Unknown members are kept.
type ServerCapabilities struct {
	Experimental map[string]json.RawMessage `json:"experimental,omitzero"`
	Extensions   map[string]json.RawMessage `json:"extensions,omitzero"` // settings by the extension's name
	Tools        *ListCapability            `json:"tools,omitzero"`
	Prompts      *ListCapability            `json:"prompts,omitzero"`
	Resources    *ResourcesCapability       `json:"resources,omitzero"`
	Logging      *Capability                `json:"logging,omitzero"`
	Completions  *Capability                `json:"completions,omitzero"` // since 2025-03-26
	Tasks        *TasksCapability           `json:"tasks,omitzero"`       // 2025-11-25 only
	Others       map[string]json.RawMessage `json:",unknown"`
}

// ListCapability says that a server has tools or prompts.
type ListCapability struct {
	ListChanged bool                       `json:"listChanged,omitzero"` // the server reports changes of the list
	Others      map[string]json.RawMessage `json:",unknown"`
}

// ResourcesCapability says that a server has resources.
type ResourcesCapability struct {
	Subscribe   bool                       `json:"subscribe,omitzero"`   // the server reports changes of single resources
	ListChanged bool                       `json:"listChanged,omitzero"` // the server reports changes of the list
	Others      map[string]json.RawMessage `json:",unknown"`
}

// Has reports whether a client declared a capability: a name that Method uses,
// such as "sampling" or "elicitation.url". "extensions." and the name of an
// extension asks for that extension. Has returns true for the empty name.
func (c *ClientCapabilities) Has(name string) bool {
	extension, ok := strings.CutPrefix(name, "extensions.")
	if ok {
		return hasExtension(c.Extensions, extension)
	}
	switch name {
	case "":
		return true
	case "roots":
		return c.Roots != nil
	case "roots.listChanged":
		return c.Roots != nil && c.Roots.ListChanged
	case "sampling":
		return c.Sampling != nil
	case "sampling.context":
		return c.Sampling != nil && c.Sampling.Context != nil
	case "sampling.tools":
		return c.Sampling != nil && c.Sampling.Tools != nil
	case "elicitation":
		return c.Elicitation != nil
	case "elicitation.form":
		return c.Elicitation.CanForm()
	case "elicitation.url":
		return c.Elicitation.CanURL()
	default:
		return c.Tasks.has(name)
	}
}

// Has reports whether a server declared a capability: a name that Method uses,
// such as "tools" or "resources.subscribe". "extensions." and the name of an
// extension asks for that extension. Has returns true for the empty name.
func (c *ServerCapabilities) Has(name string) bool {
	extension, ok := strings.CutPrefix(name, "extensions.")
	if ok {
		return hasExtension(c.Extensions, extension)
	}
	switch name {
	case "":
		return true
	case "tools":
		return c.Tools != nil
	case "tools.listChanged":
		return c.Tools != nil && c.Tools.ListChanged
	case "prompts":
		return c.Prompts != nil
	case "prompts.listChanged":
		return c.Prompts != nil && c.Prompts.ListChanged
	case "resources":
		return c.Resources != nil
	case "resources.subscribe":
		return c.Resources != nil && c.Resources.Subscribe
	case "resources.listChanged":
		return c.Resources != nil && c.Resources.ListChanged
	case "logging":
		return c.Logging != nil
	case "completions":
		return c.Completions != nil
	default:
		return c.Tasks.has(name)
	}
}

func (c *TasksCapability) has(name string) bool {
	switch name {
	case "tasks":
		return c != nil
	case "tasks.list":
		return c != nil && c.List != nil
	case "tasks.cancel":
		return c != nil && c.Cancel != nil
	default:
		return false
	}
}

func hasExtension(all map[string]json.RawMessage, name string) bool {
	settings, ok := all[name]
	return ok && !isNull(settings)
}
