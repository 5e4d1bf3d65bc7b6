package server

import (
	"encoding/json"
	"fmt"
	"testing"

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

func readWith[In any](schema string, arguments json.RawMessage) (string, error) {
	read := toolInput[In](&protocol.Tool{Name: "t", InputSchema: json.RawMessage(schema)})
	value, err := read(&protocol.CallToolParams{Arguments: arguments})
	return fmt.Sprint(value), err
}
