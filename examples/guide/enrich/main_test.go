package main

import (
	"encoding/json"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call is about the data sets whose names are words of its arguments, each once.
func TestEnrich(t *testing.T) {
	all, err := load("datasets.csv")
	if err != nil || len(all) != 5 {
		t.Fatalf("%d data sets, %v", len(all), err)
	}
	for arguments, want := range map[string]string{
		`{"sql":"SELECT *\nFROM Customers c JOIN \"orders\" o, customers"}`: `[{"name":"customers","owner":"team-crm","from":["crm.accounts","crm.contacts"],"personal":["email","phone"]},{"name":"orders","owner":"team-shop","from":["shop.events"]}]`,
		`{"tables":["order_items"]}`:                                        `[{"name":"order_items","owner":"team-shop","from":["orders","shop.events"]}]`,
		`{"sql":"select 1"}`:                                                `null`,
	} {
		added, err := all.enrich(t.Context(), gateway.ToolCall{Arguments: json.RawMessage(arguments)})
		if err != nil {
			t.Fatal(err)
		}
		var found any
		if meta, ok := added.Meta.(map[string]any); ok {
			found = meta["datasets"]
		}
		if got, err := json.Marshal(found); err != nil || string(got) != want || (found == nil) != (len(added.Content) == 0) {
			t.Errorf("%s: %s, %v", arguments, got, err)
		}
	}
	if _, err := load("main.go"); err == nil {
		t.Error("what is no catalogue was read")
	}
}
