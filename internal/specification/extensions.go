package specification

import (
	_ "embed"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
)

// extensionText is a schema that this project wrote for the tasks and skills
// extensions, because the published schemas do not have them. It refers to definitions
// of the latest revision.
//
//go:embed extensions/2026-07-28.json
var extensionText []byte

// extensions returns the schema of protocol.Latest with the extensions.
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

// schemaFor returns the schema that has the method: the schema of the revision, or the
// schema with the extensions.
func schemaFor(version, method string) *Revision {
	of := Of(version)
	if version == protocol.Latest && of.methods[method] == "" && extensions().methods[method] != "" {
		return extensions()
	}
	return of
}
