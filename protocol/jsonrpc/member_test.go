package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestMember(t *testing.T) {
	for _, test := range []struct {
		object, name, want string
		repeated           bool
	}{
		{`{"a":1,"b":2}`, "b", `2`, false},
		{` { "a" : [ 1 , {"b":3} ] , "b" : "x" } `, "b", `"x"`, false},
		{`{"a":{"b":1},"c":"b\":\"}"}`, "b", ``, false},
		{`{"\u0062":true}`, "b", `true`, false},
		{`{"b\\":1,"b":null}`, "b", `null`, false},
		{`{"b":[1,[2,{"b":3}]],"c":0}`, "b", `[1,[2,{"b":3}]]`, false},
		{`{"b":-1.5e+7,"b":2}`, "b", `-1.5e+7`, true},
		{`{"b":"x\\","\u0062":2}`, "b", `"x\\"`, true},
		{`{"b":1`, "b", ``, false}, {`{"b":1,`, "b", ``, false}, {`{"b":"`, "b", ``, false},
		{`{}`, "b", ``, false}, {`[{"b":1}]`, "b", ``, false}, {`"b"`, "b", ``, false}, {``, "b", ``, false}, {`{"":1}`, "", `1`, false},
		{`["b":1}`, "b", ``, false}, {`{"b":1]`, "b", ``, false}, {`{"b":,"b":2}`, "b", `2`, false},
		{"\t{\t\"b\"\t:\t1\t,\t\"c\"\t:\t2\t}", "c", `2`, false},
		{"\n{\n\"b\"\n:\n1\n,\n\"c\"\n:\n2\n}", "c", `2`, false},
		{"\r{\r\"b\"\r:\r1\r,\r\"c\"\r:\r2\r}", "c", `2`, false},
	} {
		value, repeated := Member([]byte(test.object), test.name)
		if string(value) != test.want || repeated != test.repeated {
			t.Errorf("%s: got %s, %v", test.object, value, repeated)
		}
	}
}

func TestMemberAllocatesNothing(t *testing.T) {
	object := []byte(`{"_meta":{"a":"b"},"name":"` + strings.Repeat("x", 1000) + `","arguments":{"a":[1,2,3]}}`)
	if n := testing.AllocsPerRun(100, func() { Member(object, "arguments") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMember compares Member with encoding/json, and calls it with invalid JSON.
func FuzzMember(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[2,{"a":"\""}]}`, `{"a" : "x\\" , "a":null}`, `{"a":`, `{"a"`, `{"a":1}}`, `"\`, `{"\`, `{"a":[}`, `{"a":1,`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		value, repeated := Member(object, "a")
		var members map[string]json.RawMessage
		if repeated || !json.Valid(object) || json.Unmarshal(object, &members) != nil {
			return
		}
		if want := members["a"]; !bytes.Equal(value, want) {
			t.Errorf("%s: got %s, want %s", object, value, want)
		}
	})
}
