package scan

import (
	"bytes"
	"encoding/json"
	"maps"
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
		if string(value) != test.want || repeated != test.repeated || cap(value) != len(value) {
			t.Errorf("%s: got %s, %v, with room for %d", test.object, value, repeated, cap(value))
		}
	}
}

func TestAlias(t *testing.T) {
	for object, want := range map[string]bool{
		`{"name":1}`: false, `{"name":1,"Name":2}`: true, ` { "x" : {"NAME":1} , "naMe" : 1 } `: true, `{"x":{"NAME":1}}`: false, `{"\u004eame":1}`: true,
		`{"\u006eame":1}`: false, `{"names":1,"nam":2}`: false, `{}`: false, `[]`: false,
	} {
		if got := Alias([]byte(object), "other", "name"); got != map[bool]string{true: "name"}[want] {
			t.Errorf("%s: %q", object, got)
		}
	}
	if Alias([]byte(`{"taſKId":1}`), "other", "taskId") != "taskId" {
		t.Error("letters that have the same upper case are missed")
	}
	if n := testing.AllocsPerRun(100, func() { Alias([]byte(`{"_meta":{},"name":"x"}`), "taskId") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMemberAllocatesNothing(t *testing.T) {
	object := []byte(`{"_meta":{"a":"b"},"name":"` + strings.Repeat("x", 1000) + `","arguments":{"a":[1,2,3]}}`)
	room := make([]byte, 0, 2*len(object))
	if n := testing.AllocsPerRun(100, func() { Member(object, "arguments"); AppendMembers(append(room, '{'), object, "_meta", "name") }); n != 0 {
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

func TestMembersAreSpliced(t *testing.T) {
	for _, test := range []struct{ object, replaced, without string }{
		{`{"a":1,"b":2}`, `{"a":1,"b":[3]}`, `{"a":1}`},
		{` { "b" : { "b" : 1 } , "a" : "}" } `, ` { "b" : [3] , "a" : "}" } `, `{"a" : "}"}`},
		{`{"\u0062":1,"b":2,"c":[{}]}`, `{"\u0062":[3],"b":2,"c":[{}]}`, `{"c":[{}]}`},
		{`{"a":{"b":1}}`, ``, `{"a":{"b":1}}`}, {`{}`, ``, `{}`}, {`{"b":1}`, `{"b":[3]}`, `{}`}, {``, ``, `{}`},
	} {
		object := []byte(test.object)
		if got := Replace(object, "b", []byte("[3]")); string(got) != test.replaced {
			t.Errorf("%s: replaced: %s", test.object, got)
		}
		if Replace(object, "b", []byte("7")); string(object) != test.object {
			t.Errorf("%s became %s", test.object, object)
		}
		if got := append(AppendMembers([]byte("[{"), []byte(test.object), "z", "b"), '}'); string(got) != "["+test.without {
			t.Errorf("%s: without b: %s", test.object, got)
		}
	}
}

// FuzzSplice compares Replace and AppendMembers with encoding/json, and calls them with invalid JSON.
func FuzzSplice(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[2,{"a":"\""}]}`, `{"a" : "x\\" , "a":null}`, `{"a":`, `{"a"`, `{"b":{},"c":"}"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		replaced, without := Replace(object, "a", []byte("[7]")), append(AppendMembers([]byte("{"), object, "a"), '}')
		var members map[string]json.RawMessage
		_, repeated := Member(object, "a")
		if repeated || !json.Valid(object) || json.Unmarshal(object, &members) != nil || members == nil {
			return
		}
		_, had := members["a"]
		delete(members, "a")
		checkMembers(t, without, members)
		if members["a"] = json.RawMessage("[7]"); had {
			checkMembers(t, replaced, members)
		} else if replaced != nil {
			t.Errorf("%s: replaced: %s", object, replaced)
		}
	})
}

func checkMembers(t *testing.T, object []byte, want map[string]json.RawMessage) {
	var got map[string]json.RawMessage
	if err := json.Unmarshal(object, &got); err != nil || !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		t.Errorf("%s: want %s, %v", object, want, err)
	}
}
