package server

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/protocol"
)

// An argument that the call leaves out has the default of the schema that the tool
// declares, whatever type the function takes.
//
// Guarantees: G-0016.11
func TestDefaultsOfADeclaredSchema(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"city": {"type":"string","default":"Oslo"},
		"days": {"type":"integer","default":3},
		"any": true,
		"units": {"type":"object","properties":{"wind":{"type":"string","default":"knots"}}}}}`
	type in struct {
		City  string `json:"city"`
		Days  int    `json:"days"`
		Any   any    `json:"any"`
		Units struct {
			Wind string `json:"wind"`
		} `json:"units"`
	}
	for arguments, want := range map[string][2]string{
		`{}`:                       {"{Oslo 3 <nil> {knots}}", "map[city:Oslo days:3]"},
		`{"city":"Rome","days":0}`: {"{Rome 0 <nil> {knots}}", "map[city:Rome days:0]"},
		`{"units":{}}`:             {"{Oslo 3 <nil> {knots}}", "map[city:Oslo days:3 units:map[]]"},
	} {
		for n, read := range []func(json.RawMessage) (string, error){
			func(raw json.RawMessage) (string, error) { return readWith[in](schema, raw) },
			func(raw json.RawMessage) (string, error) { return readWith[map[string]any](schema, raw) },
		} {
			if got, err := read(json.RawMessage(arguments)); got != want[n] || err != nil {
				t.Errorf("%s: got %s, %v; want %s", arguments, got, err, want[n])
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("AddTool accepted a default that the function cannot take, want a panic")
		}
	}()
	_, _ = readWith[in](`{"type":"object","properties":{"days":{"default":"three"}}}`, nil)
}

// A default is for an argument that is missing. An argument that was given is not mixed with
// it, but the members that a nested struct lacks have their own defaults.
//
// Guarantees: G-0029.2
func TestDefaultsDoNotChangeWhatWasGiven(t *testing.T) {
	type wind struct {
		Unit string `json:"unit" default:"knots"`
		Max  int    `json:"max" default:"9"`
	}
	type in struct {
		M    map[string]int `json:"m" default:"{\"a\":1}"`
		L    []int          `json:"l" default:"[1,2]"`
		P    *int           `json:"p" default:"3"`
		Wind wind           `json:"wind"`
	}
	for arguments, want := range map[string]string{
		`{}`:                               `{"m":{"a":1},"l":[1,2],"p":3,"wind":{"unit":"knots","max":9}}`,
		` { } `:                            `{"m":{"a":1},"l":[1,2],"p":3,"wind":{"unit":"knots","max":9}}`,
		`{"m":{"b":2}}`:                    `{"m":{"b":2},"l":[1,2],"p":3,"wind":{"unit":"knots","max":9}}`,
		`{"m":{},"l":[],"p":null}`:         `{"m":{},"l":[],"p":null,"wind":{"unit":"knots","max":9}}`,
		`{"wind":{"max":1e1},"l":[3]}`:     `{"m":{"a":1},"l":[3],"p":3,"wind":{"unit":"knots","max":10}}`,
		`{"\u006d":{"c":"}"}}`:             ``,
		`{"\u006d":{"c":3}}`:               `{"m":{"c":3},"l":[1,2],"p":3,"wind":{"unit":"knots","max":9}}`,
		`{"wind":{"max":1},"m":{},"m":{}}`: ``,
	} {
		_, read := toolInput[in](&protocol.Tool{Name: "t"})
		value, err := read(&protocol.CallToolParams{Arguments: json.RawMessage(arguments)})
		if want == "" {
			if err == nil {
				t.Errorf("%s: got %+v, want an error", arguments, value)
			}
			continue
		}
		if got, _ := typed.Encode(value); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", arguments, got, err, want)
		}
	}
	const schema = `{"type":"object","properties":{"m":{"type":"object","default":{"a":1}}}}`
	for arguments, want := range map[string]string{`{}`: "map[m:map[a:1]]", `{"m":{"b":2}}`: "map[m:map[b:2]]"} {
		if got, err := readWith[map[string]any](schema, json.RawMessage(arguments)); got != want || err != nil {
			t.Errorf("%s: got %s, %v; want %s", arguments, got, err, want)
		}
	}
}

func readWith[In any](schema string, arguments json.RawMessage) (string, error) {
	_, read := toolInput[In](&protocol.Tool{Name: "t", InputSchema: json.RawMessage(schema)})
	value, err := read(&protocol.CallToolParams{Arguments: arguments})
	return fmt.Sprint(value), err
}
