package specification

import (
	_ "embed"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
)

// extensionText is a schema of our own for the extensions for tasks and skills, which
// the revisions' schemas do not have. It refers to definitions of the latest revision.
//
//go:embed extensions/2026-07-28.json
var extensionText []byte

// extensions is the schema of protocol.Latest with the extensions.
var extensions = sync.OnceValue(func() *Revision {
	raw, err := files.ReadFile("schema/" + protocol.Latest + ".json")
	if err != nil {
		panic(err)
	}
	root, more := parse(raw), parse(extensionText)
	for name, definition := range more.Defs {
		if root.Defs[name] != nil {
			panic("specification: " + protocol.Latest + " has a " + name)
		}
		root.Defs[name] = definition
	}
	return compile(protocol.Latest, root)
})

// schemaFor returns the schema that has a method: that of the revision, or the one with
// the extensions.
func schemaFor(version, method string) *Revision {
	of := Of(version)
	if version == protocol.Latest && of.methods[method] == "" && extensions().methods[method] != "" {
		return extensions()
	}
	return of
}
