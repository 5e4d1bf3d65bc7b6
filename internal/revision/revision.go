// Package revision says what the revisions of MCP differ in.
package revision

import "github.com/bowline-mcp/bowline/protocol"

// A Difference is something that some revisions have and others do not. Code that behaves
// differently from revision to revision asks [Has], and compares no dates: so this table says all
// that a new revision changes.
type Difference int

// What revisions differ in.
const (
	AudioBlocks               Difference = iota // content may be audio
	Batches                                     // several messages may be sent in a JSON array
	CompletionCapability                        // a server declares that it completes arguments
	Elicitation                                 // a server may ask the user to fill in a form
	ResourceLinks                               // content may link to a resource
	ListFields                                  // a form may ask for several choices, and its choices have titles
	URLElicitation                              // a server may ask the user to open a page
	SamplingTools                               // a server may offer tools to the client's model; messages have several blocks
	SamplingContextCapability                   // a client declares that it can include context
	InvalidArgumentsAsResult                    // arguments that break a tool's schema are answered with a result, so that a model sees why
	Tasks                                       // calls may become tasks
	InitialEventID                              // an event stream begins with an id and no data, so that it can be resumed from its start
	NoSessions                                  // every request stands alone
)

// revisions says in which revisions there is each Difference: from the first one on, to the last one
// that has it, which is the newest if none is named.
var revisions = [...]struct{ since, until string }{
	AudioBlocks:               {since: protocol.Version20250326},                                  // server/tools, "Audio Content"
	Batches:                   {since: protocol.Version20250326, until: protocol.Version20250326}, // basic, "Batching"
	CompletionCapability:      {since: protocol.Version20250326},                                  // server/utilities/completion, "Capabilities"
	Elicitation:               {since: protocol.Version20250618},                                  // client/elicitation
	ResourceLinks:             {since: protocol.Version20250618},                                  // server/tools, "Resource Links"
	ListFields:                {since: protocol.Version20251125},                                  // client/elicitation, "Requested Schema"
	URLElicitation:            {since: protocol.Version20251125},                                  // client/elicitation, "URL Mode"
	SamplingTools:             {since: protocol.Version20251125},                                  // client/sampling, "Tools in Sampling"
	SamplingContextCapability: {since: protocol.Version20251125},                                  // client/sampling, "Capabilities"
	InvalidArgumentsAsResult:  {since: protocol.Version20251125},                                  // server/tools, "Error Handling"
	Tasks:                     {since: protocol.Version20251125},                                  // basic/utilities/tasks
	InitialEventID:            {since: protocol.Version20251125},                                  // basic/transports, "Sending Messages to the Server"
	NoSessions:                {since: protocol.Version20260728},                                  // basic/versioning
}

// Has reports whether a revision has something. A revision that is newer than all known ones
// counts as the newest.
func Has(version string, d Difference) bool {
	is := revisions[d]
	return is.since <= version && (is.until == "" || version <= is.until) // dates sort by age
}

// Since returns the first revision that has something.
func Since(d Difference) string { return revisions[d].since }

// WithoutHeader is the revision of an HTTP request whose header names none
// (2025-11-25 basic/transports, "Protocol Version Header").
const WithoutHeader = protocol.Version20250326

// IsModernCode reports whether only a server of a modern revision sends code. A
// client that receives such an error need not try initialize.
func IsModernCode(code int64) bool {
	return protocol.CodeUnsupportedVersion <= code && code <= protocol.CodeHeaderMismatch
}
