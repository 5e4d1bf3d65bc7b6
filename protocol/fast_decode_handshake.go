package protocol

import (
	"slices"

	"github.com/bowline-mcp/bowline/internal/scan"
)

func (p *InitializeParams) decodeFast(raw []byte) bool {
	read := *p
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "protocolVersion":
			read.ProtocolVersion = readVersion(&text)
		case "capabilities":
			read.Capabilities = readClientCapabilities(&text)
		case "clientInfo":
			read.ClientInfo = readImplementation(&text)
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*p = read
	return true
}

func (r *InitializeResult) decodeFast(raw []byte) bool {
	read := *r
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "protocolVersion":
			read.ProtocolVersion = readVersion(&text)
		case "capabilities":
			read.Capabilities = readServerCapabilities(&text)
		case "serverInfo":
			read.ServerInfo = readImplementation(&text)
		case "instructions":
			read.Instructions = text.String()
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*r = read
	return true
}

func (r *DiscoverResult) decodeFast(raw []byte) bool {
	read := *r
	text := scan.Unique(raw)
	for name := range text.Members {
		switch string(name) {
		case "_meta":
			read.Meta = readMeta(&text)
		case "resultType":
			read.ResultType = readType(&text)
		case "ttlMs":
			read.TTLMs = readInteger(&text)
		case "cacheScope":
			read.CacheScope = text.String()
		case "supportedVersions":
			read.SupportedVersions = readVersions(&text)
		case "capabilities":
			read.Capabilities = readServerCapabilities(&text)
		case "instructions":
			read.Instructions = text.String()
		default:
			text.Fail()
		}
	}
	if !text.End() {
		return false
	}
	*r = read
	return true
}

// readVersion reads a known revision.
func readVersion(text *scan.Text) string {
	switch string(text.Value()) {
	case `"` + Version20241105 + `"`:
		return Version20241105
	case `"` + Version20250326 + `"`:
		return Version20250326
	case `"` + Version20250618 + `"`:
		return Version20250618
	case `"` + Version20251125 + `"`:
		return Version20251125
	case `"` + Version20260728 + `"`:
		return Version20260728
	default:
		text.Fail()
		return ""
	}
}

func readVersions(text *scan.Text) SupportedVersions {
	read := SupportedVersions{}
	for range text.Elements {
		if len(read) == MaxVersions {
			text.Fail()
		}
		read = append(read, readVersion(text))
	}
	return read
}

func readImplementation(text *scan.Text) (read Implementation) {
	for name := range text.Members {
		switch string(name) {
		case "name":
			read.Name = text.String()
		case "title":
			read.Title = text.String()
		case "version":
			read.Version = text.String()
		case "description":
			read.Description = text.String()
		case "websiteUrl":
			read.WebsiteURL = text.String()
		default:
			text.Fail()
		}
	}
	return read
}

func readClientCapabilities(text *scan.Text) (read ClientCapabilities) {
	for name := range text.Members {
		switch string(name) {
		case "experimental":
			read.Experimental = readMeta(text)
		case "extensions":
			read.Extensions = readMeta(text)
		case "roots":
			read.Roots = new(RootsCapability)
			readSettings(text, setting{name: "listChanged", flag: &read.Roots.ListChanged})
		case "sampling":
			read.Sampling = new(SamplingCapability)
			readSettings(text, setting{name: "context", part: &read.Sampling.Context}, setting{name: "tools", part: &read.Sampling.Tools})
		case "elicitation":
			read.Elicitation = new(ElicitationCapability)
			readSettings(text, setting{name: "form", part: &read.Elicitation.Form}, setting{name: "url", part: &read.Elicitation.URL})
		default:
			text.Fail()
		}
	}
	return read
}

func readServerCapabilities(text *scan.Text) (read ServerCapabilities) {
	for name := range text.Members {
		switch string(name) {
		case "experimental":
			read.Experimental = readMeta(text)
		case "extensions":
			read.Extensions = readMeta(text)
		case "tools":
			read.Tools = new(ListCapability)
			readSettings(text, setting{name: "listChanged", flag: &read.Tools.ListChanged})
		case "prompts":
			read.Prompts = new(ListCapability)
			readSettings(text, setting{name: "listChanged", flag: &read.Prompts.ListChanged})
		case "resources":
			read.Resources = new(ResourcesCapability)
			readSettings(text, setting{name: "subscribe", flag: &read.Resources.Subscribe}, setting{name: "listChanged", flag: &read.Resources.ListChanged})
		case "logging":
			read.Logging = new(Capability)
			readSettings(text)
		case "completions":
			read.Completions = new(Capability)
			readSettings(text)
		default:
			text.Fail()
		}
	}
	return read
}

// A setting is a member of a capability: a flag, or a capability without settings.
type setting struct {
	name string
	flag *bool
	part **Capability // only if flag is nil
}

// readSettings reads a capability that has no members but these.
func readSettings(text *scan.Text, settings ...setting) {
	for name := range text.Members {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.name == string(name) })
		switch {
		case i < 0:
			text.Fail()
		case settings[i].flag != nil:
			*settings[i].flag = text.Bool()
		default:
			*settings[i].part = new(Capability)
			readSettings(text)
		}
	}
}
