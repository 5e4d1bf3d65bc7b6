package server_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// apis are the APIs of models in testdata/models.
var apis = []string{"openai-strict", "anthropic", "gemini"}

// The schemas that are derived for arguments are among those that three APIs of models
// document, but for types and tags that an API does not have.
//
// Guarantees: G-0029.18
func TestDerivedSchemasFitModels(t *testing.T) {
	documented := make(map[string]*schema.Validator)
	for _, api := range apis {
		raw, err := os.ReadFile("testdata/models/" + api + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if documented[api], err = schema.Compile(t.Context(), raw); err != nil {
			t.Fatalf("%s: %v", api, err)
		}
	}
	s := newServer(server.Options{})
	for _, c := range []struct {
		name    string
		add     func(protocol.Tool)
		refused string // the APIs that do not have this, and why: "api part; api part"
	}{
		{"none", takes[struct{}](s), ""},
		{"texts_and_numbers", takes[struct {
			Text  string  `json:"text" jsonschema:"a text" pattern:"^a"`
			Count int     `json:"count" minimum:"1" maximum:"7"`
			Small uint8   `json:"small"`
			Ratio float64 `json:"ratio,omitempty"`
			Flag  bool    `json:"flag"`
		}](s), ""},
		{"lists", takes[struct {
			Texts  []string   `json:"texts" enum:"a,b"`
			Nested [][]inner  `json:"nested"`
			Array  [2]float64 `json:"array"`
			In     struct {
				List []int `json:"list,omitzero"`
			} `json:"in"`
		}](s), ""},
		{"times", takes[struct {
			At  time.Time   `json:"at"`
			All []time.Time `json:"all"`
		}](s), ""},
		{"texts_of_their_own", takes[struct {
			Address  netip.Addr    `json:"address"`
			Style    style         `json:"style"`
			Mail     string        `json:"mail" format:"email"`
			Duration time.Duration `json:"duration"`
		}](s), ""},
		{"weather", takes[struct {
			City string `json:"city"`
			Unit string `json:"unit" enum:"celsius,fahrenheit"`
		}](s), ""},
		{"review", takes[review](s), ""},
		{"pointers", takes[struct {
			A *inner     `json:"a"`
			T *time.Time `json:"t"`
		}](s), "gemini type"}, // a host writes nullable
		{"maps", takes[struct {
			M map[string]int `json:"m"`
		}](s), "openai-strict additionalProperties"},
		{"anything", takes[struct {
			Any any `json:"any"`
		}](s), "openai-strict type; gemini type"},
		{"bytes", takes[struct {
			B []byte `json:"b"`
		}](s), "openai-strict contentEncoding; gemini contentEncoding"},
		{"defaults", takes[struct {
			Unit string `json:"unit" default:"celsius"`
		}](s), "openai-strict default"},
		{"lengths_and_titles", takes[struct {
			City string `json:"city" minLength:"2"`
			Name string `json:"name" title:"Name"`
		}](s), "openai-strict"},
		{"headers", takes[struct {
			Region string `json:"region" header:"Region"`
		}](s), "openai-strict x-mcp-header; gemini x-mcp-header"},
		{"all_types", takes[allTypes](s), "openai-strict; gemini"},
	} {
		c.add(protocol.Tool{Name: c.name})
		raw := inputSchema(t, s, c.name)
		for _, api := range apis {
			why := "fits"
			for part := range strings.SplitSeq(c.refused, "; ") {
				if name, what, _ := strings.Cut(part, " "); name == api {
					why = what
				}
			}
			err := documented[api].Validate(t.Context(), raw)
			if fits := err == nil; fits != (why == "fits") || !fits && !strings.Contains(err.Error(), why) {
				t.Errorf("%s, %s: got %v, want %s: %s", c.name, api, err, why, raw)
			}
		}
	}
}

// takes returns a function that adds a tool with arguments of a type.
func takes[In any](s *server.Server) func(protocol.Tool) {
	return func(tool protocol.Tool) {
		server.AddTool(s, tool, func(context.Context, In) (string, error) { return "", nil })
	}
}

// inputSchema returns the schema that the server lists for the tool's arguments.
func inputSchema(t *testing.T, s *server.Server, name string) json.RawMessage {
	t.Helper()
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var page struct {
		Result protocol.ListToolsResult `json:"result"`
	}
	w.read(&page)
	for _, tool := range page.Result.Tools {
		if tool.Name == name {
			return tool.InputSchema
		}
	}
	t.Fatalf("no tool %q", name)
	return nil
}

// Lists are arrays and times have a format, and null for a list is still taken as none.
//
// Guarantees: G-0029.18
func TestListsAndTimesInDerivedSchemas(t *testing.T) {
	type lists struct {
		Texts  []string            `json:"texts"`
		Nested []struct{ L []int } `json:"nested,omitempty"`
		Maps   map[string][]int    `json:"maps,omitempty"`
		To     *[]int              `json:"to"`
		At     time.Time           `json:"at,omitzero"`
		Array  [1]int              `json:"array,omitzero"`
	}
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in lists) (*lists, error) { return &in, nil })
	for _, want := range []string{
		`"texts":{"type":"array","items":{"type":"string"}}`, `"L":{"type":"array","items":{"type":"integer"}}`, `"additionalProperties":{"type":"array","items":{"type":"integer"}}`,
		`"to":{"type":["null","array"]`, `"at":{"type":"string","format":"date-time"}`,
	} {
		if got := string(inputSchema(t, s, "t")); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for arguments, want := range map[string]string{
		`{"texts":null}`: `{"texts":[],"to":null}`,
		`{"texts":[],"nested":[{"L":null}],"maps":{"a":null},"to":null}`: `{"texts":[],"nested":[{"L":[]}],"maps":{"a":[]},"to":null}`,
		`{"texts":7}`: "", `{"texts":[null]}`: "", `{"texts":[],"array":null}`: "", `{"texts":[],"maps":null}`: "", `{"texts":[],"at":null}`: "",
	} {
		got := w.call("t", arguments)
		if got.Result.IsError != (want == "") || want != "" && string(got.Result.StructuredContent) != want {
			t.Errorf("%s: got %s %s, want %s", arguments, got.Result.StructuredContent, got.Result.Content.Text(), want)
		}
	}
}
