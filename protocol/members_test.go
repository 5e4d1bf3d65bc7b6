package protocol_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/protocol"
)

// The members of an object are decoded as the object is, and refused where it is refused. The text, and
// what is before it, stays as it is.
func TestMembersAreDecodedAsTheObject(t *testing.T) {
	for _, members := range []string{
		`}`, ` }`, `"name":"a"}`, ` "name" : "a" } `, `"name":"a","arguments":{"b":[1,{"c":null}]}}`,
		`"name":"\u0061"}`, `"Name":"a"}`, `"name":"a","other":{"d":1}}`, `"name":"a","_meta":{"e":1}}`,
		``, `{`, `{}`, `"name":"a"`, `,"name":"a"}`, `"name":1}`, `"name":"a","name":"b"}`, `"name":"a"}}`, `"name":"a"},{}`, `null`, "\"name\":\"\xff\"}",
	} {
		text := `x` + members
		frame := []byte(text)
		var want, got protocol.CallToolParams
		refused, err := protocol.Unmarshal([]byte(`{`+members), &want), protocol.UnmarshalMembers(frame[1:], &got)
		if (refused == nil) != (err == nil) {
			t.Errorf("%s: %v, but with its brace %v", members, err, refused)
		}
		if diff := cmp.Diff(want, got); refused == nil && diff != "" {
			t.Errorf("%s (-with its brace +without):\n%s", members, diff)
		}
		if string(frame) != text {
			t.Errorf("the frame %s became %s", text, frame)
		}
	}
}
