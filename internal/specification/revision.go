// Package specification has the published JSON schemas of the protocol's revisions,
// and checks the messages of a conversation against them. It is for tests.
//
// The schemas in the folder schema are those of the MCP project, unchanged (MIT
// licence, see schema/README.md).
package specification

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/jsonschema-go/jsonschema"
)

//go:embed schema/*.json
var files embed.FS

// A Revision is the schema of one revision of the protocol.
type Revision struct {
	Version  string
	resolved *jsonschema.Resolved
	methods  map[string]string // the name of the definition of each method
}

// Of returns the schema of a revision, which must be one of protocol.Versions.
func Of(version string) *Revision {
	revision := revisions[version]
	if revision == nil {
		panic(fmt.Sprintf("specification: %q is no revision", version))
	}
	return revision()
}

// revisions compiles each schema when it is first needed.
var revisions = compileLater()

func compileLater() map[string]func() *Revision {
	all := make(map[string]func() *Revision)
	for _, version := range protocol.Versions() {
		all[version] = sync.OnceValue(func() *Revision {
			raw, err := files.ReadFile("schema/" + version + ".json")
			if err != nil {
				panic(err)
			}
			return compile(version, parse(raw))
		})
	}
	return all
}

// parse reads a schema. It panics if the schema is malformed: the files are part of
// the program, so that is a mistake of the programmer.
func parse(raw []byte) *jsonschema.Schema {
	root := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, root); err != nil {
		panic(err)
	}
	return root
}

// compile changes the schema so that it validates an object with one member: a
// message, under the name of its definition.
func compile(version string, root *jsonschema.Schema) *Revision {
	place, definitions := "#/$defs/", root.Defs
	if root.Definitions != nil {
		place, definitions = "#/definitions/", root.Definitions
	}
	r := &Revision{Version: version, methods: make(map[string]string)}
	fixNumbers(definitions)
	root.Properties = make(map[string]*jsonschema.Schema)
	for name, definition := range definitions {
		root.Properties[name] = &jsonschema.Schema{Ref: place + name}
		of := definition.Properties["method"]
		if of == nil || of.Const == nil || strings.HasPrefix(name, "Client") || strings.HasPrefix(name, "Server") {
			continue
		}
		r.methods[(*of.Const).(string)] = name
	}
	resolved, err := root.Resolve(nil)
	if err != nil {
		panic(err)
	}
	r.resolved = resolved
	r.methods[protocol.NotificationCancelled] = "CancelledNotification" // 2026-07-28 has an alias instead
	return r
}

// fixNumbers corrects a mistake of the published files: they allow only integers
// in the content of a form and in a JSON value, where the specification's source
// says number.
func fixNumbers(definitions map[string]*jsonschema.Schema) {
	mend := func(s *jsonschema.Schema) {
		if i := slices.Index(s.Types, "integer"); i >= 0 {
			s.Types[i] = "number"
		}
	}
	if result := definitions["ElicitResult"]; result != nil {
		content := result.Properties["content"].AdditionalProperties
		for _, s := range append(content.AnyOf, content) {
			mend(s)
		}
	}
	if value := definitions["JSONValue"]; value != nil {
		for _, s := range value.AnyOf {
			mend(s)
		}
	}
}

// Definitions are what the schema defines, by name.
func (r *Revision) Definitions() map[string]*jsonschema.Schema {
	root := r.resolved.Schema()
	if root.Definitions != nil {
		return root.Definitions
	}
	return root.Defs
}

// Check reports why a value, as encoding/json decodes it, does not fit a
// definition.
func (r *Revision) Check(definition string, value any) error {
	if r.Definitions()[definition] == nil {
		return fmt.Errorf("specification: %s has no %s", r.Version, definition)
	}
	if err := r.resolved.Validate(map[string]any{definition: value}); err != nil {
		return fmt.Errorf("specification: it is no %s of %s: %w", definition, r.Version, err)
	}
	return nil
}
