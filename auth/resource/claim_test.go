package resource_test

import (
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/auth/resource"
)

// A claim is a text or a list of texts, and nothing else is taken for one.
//
// Guarantees: G-0098.2
func TestClaims(t *testing.T) {
	p := &resource.Principal{Claims: []byte(`{"one":"x y","list":["a","b"],"number":1,"null":null,"mixed":["a",1],"none":[],"object":{"list":["a"]},"empty":"","Role":"admin","LIST":["c"]}`)}
	for name, want := range map[string][]string{
		"one": {"x y"}, "list": {"a", "b"}, "number": nil, "null": nil, "mixed": nil, "none": nil, "object": nil, "object.list": nil, "absent": nil, "empty": {""}, "One": nil, "Role": {"admin"}, "role": nil, "LIST": {"c"},
	} {
		if got := p.Claim(name); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := (&resource.Principal{Claims: []byte(`{"a":"x","a":"y"}`)}).Claim("a"); got != nil {
		t.Errorf("a claim that is there twice: %q", got)
	}
}
