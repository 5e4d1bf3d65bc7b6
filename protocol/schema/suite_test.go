package schema_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/schema"
)

// The JSON Schema Test Suite passes, except for schemas whose references are refused.
func TestSuite(t *testing.T) {
	for dialect, want := range map[string]struct{ passed, refused int }{"draft2020-12": {982, 56}, "draft7": {854, 28}} {
		files, err := filepath.Glob(filepath.Join("testdata", "suite", dialect, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		passed, refused := 0, 0
		for _, file := range files {
			p, r := suite(t, dialect, file)
			passed, refused = passed+p, refused+r
		}
		if passed != want.passed || refused != want.refused {
			t.Errorf("%s: %d tests passed, %d schemas were refused; want %+v", dialect, passed, refused, want)
		}
	}
}

func suite(t *testing.T, dialect, file string) (passed, refused int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(raw, &groups); err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		validator, err := schema.Compile(t.Context(), inDialect(dialect, group.Schema))
		if errors.Is(err, schema.ErrReference) {
			refused++
			continue
		} else if err != nil {
			t.Errorf("%s: %s: %v", file, group.Description, err)
			continue
		}
		for _, test := range group.Tests {
			if err := validator.Validate(t.Context(), test.Data); (err == nil) != test.Valid {
				t.Errorf("%s: %s: %s: %v", file, group.Description, test.Description, err)
				continue
			}
			passed++
		}
	}
	return passed, refused
}

// inDialect adds the dialect to a schema, unless it is the default.
func inDialect(dialect string, raw json.RawMessage) json.RawMessage {
	members, isObject := strings.CutPrefix(string(raw), "{")
	if dialect != "draft7" || !isObject || strings.Contains(members, "$schema") {
		return raw
	}
	comma := ","
	if strings.TrimSpace(members) == "}" {
		comma = ""
	}
	return json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#"` + comma + members)
}
