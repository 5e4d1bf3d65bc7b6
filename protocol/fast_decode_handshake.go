package protocol

import "github.com/bowline-mcp/bowline/internal/scan"

func (p *InitializeParams) readPlain(raw []byte) bool {
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

func (r *InitializeResult) readPlain(raw []byte) bool {
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

func (r *DiscoverResult) readPlain(raw []byte) bool {
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
			readFlags(text, flag{"listChanged", &read.Roots.ListChanged})
		case "sampling":
			read.Sampling = new(SamplingCapability)
			readParts(text, part{"context", &read.Sampling.Context}, part{"tools", &read.Sampling.Tools})
		case "elicitation":
			read.Elicitation = new(ElicitationCapability)
			readParts(text, part{"form", &read.Elicitation.Form}, part{"url", &read.Elicitation.URL})
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
			readFlags(text, flag{"listChanged", &read.Tools.ListChanged})
		case "prompts":
			read.Prompts = new(ListCapability)
			readFlags(text, flag{"listChanged", &read.Prompts.ListChanged})
		case "resources":
			read.Resources = new(ResourcesCapability)
			readFlags(text, flag{"subscribe", &read.Resources.Subscribe}, flag{"listChanged", &read.Resources.ListChanged})
		case "logging":
			read.Logging = new(Capability)
			readFlags(text)
		case "completions":
			read.Completions = new(Capability)
			readFlags(text)
		default:
			text.Fail()
		}
	}
	return read
}

// A flag is a member of a capability that is true or false.
type flag struct {
	name string
	into *bool
}

// readFlags reads a capability that has no members but these.
func readFlags(text *scan.Text, flags ...flag) {
	for name := range text.Members {
		known := false
		for _, f := range flags {
			if f.name == string(name) {
				*f.into, known = text.Bool(), true
			}
		}
		if !known {
			text.Fail()
		}
	}
}

// A part is a member of a capability that is itself a capability without settings.
type part struct {
	name string
	into **Capability
}

// readParts reads a capability that has no members but these.
func readParts(text *scan.Text, parts ...part) {
	for name := range text.Members {
		known := false
		for _, p := range parts {
			if p.name == string(name) {
				*p.into, known = new(Capability), true
				readFlags(text)
			}
		}
		if !known {
			text.Fail()
		}
	}
}
