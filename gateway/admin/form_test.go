package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A form asks for each argument by its type, and what is entered becomes the JSON that the schema wants. What cannot be asked for piece by piece
// is entered as JSON, and is not sent if it is none.
//
// Guarantees: G-0091.17
func TestFormOfASchema(t *testing.T) {
	const schema = `{"type": "object", "required": ["b", "must"], "properties": {"b": {"type": "boolean", "title": "Be"}, "s": {"type": "string", "default": "x"}, "must": {"type": "string"},
		"i": {"type": "integer"}, "n": {"type": "number", "default": 1.5}, "e": {"enum": ["a", 1, null]}, "o": {"type": "object"}, "l": {"type": ["string", "null"]}, "any": true}}`
	fields, whole := fieldsOf(json.RawMessage(schema))
	var kinds []string
	for _, f := range fields {
		kinds = append(kinds, f.Name+" "+f.Kind+" "+f.Value)
	}
	if want := []string{"b choice ", "s text x", "must text ", "i number ", "n number 1.5", "e choice ", "o json ", "l json ", "any json "}; whole || !slices.Equal(kinds, want) {
		t.Errorf("the fields are %q, want %q", kinds, want)
	}
	if fields[3].Whole == fields[4].Whole || !fields[3].Whole {
		t.Errorf("an integer is whole: %v, a number: %v", fields[3].Whole, fields[4].Whole)
	}
	if fields[0].label() != "Be" || fields[1].label() != "s" || len(fields[5].Choices) != 3 || fields[5].Choices[0] != (choice{`"a"`, "a"}) {
		t.Errorf("the fields are %+v", fields)
	}
	for _, test := range []struct{ entered, want, problem string }{
		{`true|say "x"||7|1e3|"a"|{"k": [1]}|null|"t"`, `{"b":true,"s":"say \"x\"","must":"","i":7,"n":1e3,"e":"a","o":{"k": [1]},"l":null,"any":"t"}`, ""},
		{"false||||||||", `{"b":false,"must":""}`, ""},
		{"|x||||||||", "", "Be is required"},
		{"true|||seven||||[|", "", "i is no JSON\nl is no JSON"},
	} {
		for i, value := range strings.Split(test.entered+"||||||||", "|")[:len(fields)] {
			fields[i].Value = value
		}
		got, err := argumentsOf(fields, whole)
		if test.problem != "" && (err == nil || err.Error() != test.problem) || test.problem == "" && (err != nil || string(got) != test.want) {
			t.Errorf("%q: %s, %v; want %s %s", test.entered, got, err, test.want, test.problem)
		}
	}
	if given, _ := fieldsOf(json.RawMessage(`{"properties": {"o": {"type": "object", "default": "x"}}}`)); given[0].Value != `"x"` {
		t.Errorf("a default of what is entered as JSON is %s", given[0].Value)
	}
	if fields, _ := fieldsOf(json.RawMessage(`{"type": "object"}`)); len(fields) != 0 {
		t.Errorf("a tool without arguments: %+v", fields)
	}
	if fields, whole := fieldsOf(json.RawMessage(`{"properties": {}}`)); whole || len(fields) != 0 {
		t.Errorf("a tool with no arguments yet: %+v", fields)
	}
	if fields, whole := fieldsOf(json.RawMessage(`{"properties": {` + strings.Repeat(`"a": true, `, maxFields-1) + `"b": 1}}`)); whole || len(fields) != maxFields {
		t.Errorf("a tool with %d arguments has %d fields, in one: %t", maxFields, len(fields), whole)
	}
	for _, odd := range []string{`true`, `[]`, `{"properties": 1}`, `{"properties": {` + strings.Repeat(`"a": true, `, maxFields) + `"b": 1}}`} {
		fields, whole := fieldsOf(json.RawMessage(odd))
		if !whole || len(fields) != 1 {
			t.Errorf("%s: %+v", odd, fields)
			continue
		}
		fields[0].Value = ""
		if _, err := argumentsOf(fields, whole); err == nil || err.Error() != "arguments is required" {
			t.Errorf("%s: nothing is entered, and the problem is %v", odd, err)
		}
		fields[0].Value = `{"a": 1}`
		if got, err := argumentsOf(fields, whole); string(got) != `{"a": 1}` || err != nil {
			t.Errorf("%s: %s, %v", odd, got, err)
		}
	}
}

// Who has the token calls a tool from the page, and sees what it has answered, as text. Nobody else sees a schema, and nothing is called without
// the form, for a tool that is not there, or where the page must not.
//
// Guarantees: G-0091.1, G-0091.17
func TestATriedTool(t *testing.T) {
	f := newFake(files())
	f.detail.Tools = []Tool{{Name: "files__a/b", Description: hostile, Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"` + strings.ReplaceAll(hostile, `"`, "") + `":{"type":"string","description":"` + strings.ReplaceAll(hostile, `"`, "") + `"}}}`)}}
	f.result = json.RawMessage(`{"content":[{"type":"text","text":"<img src=x>\u202e"}]}`)
	h := serveWeb(t, f, true)
	const at = "/servers/files/tools/files__a%2Fb"
	if got := ask(h, "GET", at); got.Code != 401 || strings.Contains(got.Body.String(), "path") || !strings.Contains(got.Body.String(), `action="/login"`) {
		t.Errorf("without the token: %d %s", got.Code, got.Body)
	}
	cookies := ask(h, "POST", "/login", form("token=t0ken")).Result().Cookies()
	held := with("Cookie", cookies[0].Name+"="+cookies[0].Value)
	got := page(h, at, held)
	if strings.Contains(got, "<img") || !strings.Contains(got, `name="a1"`) || strings.Contains(got, "<script") || !strings.Contains(page(h, "/servers/files", held), `href="`+at+`"`) {
		t.Errorf("the page of the tool: %s", got)
	}
	secret := guard{web: Web{Token: "t0ken"}}.secret("form")
	entered := form(url.Values{"form": {secret}, "a0": {"x"}, "a1": {""}}.Encode())
	answer := ask(h, "POST", at, entered, held)
	if body := answer.Body.String(); answer.Code != 200 || !strings.Contains(body, `data-outcome="answered"`) || !strings.Contains(body, `&lt;img src=x&gt;`) || strings.ContainsAny(body, "\u202e") ||
		!slices.Equal(f.did(), []string{`call files__a/b {"path":"x"}`}) {
		t.Errorf("called: %d %s, %q", answer.Code, body, f.did())
	}
	f.result = json.RawMessage(`{"content":[],"isError":true}`)
	if body := ask(h, "POST", at, entered, held).Body.String(); !strings.Contains(body, `data-outcome="error"`) {
		t.Errorf("the tool has failed: %s", body)
	}
	f.broken = errBroken
	if body := ask(h, "POST", at, entered, held).Body.String(); !strings.Contains(body, errBroken.Error()) || !strings.Contains(body, `data-outcome="failed"`) {
		t.Errorf("the call has failed: %s", body)
	}
	before := len(f.did())
	d := New(f)
	defer d.Close()
	closed := d.Web(Web{Token: "t0ken", NoTry: true})
	for name, code := range map[string]int{
		"without the form": ask(h, "POST", at, form("a0=x"), held).Code - 403,
		"nobody's":         ask(h, "POST", "/servers/files/tools/none", entered, held).Code - 404,
		"no token":         ask(h, "POST", at, entered).Code - 401,
		"where it is off":  ask(closed, "POST", at, entered, held).Code - 403,
		"no form there":    strings.Count(page(closed, at, held), "<form"),
	} {
		if code != 0 {
			t.Errorf("%s: off by %d", name, code)
		}
	}
	if len(f.did()) != before {
		t.Errorf("called: %q", f.did())
	}
}

// A few calls of the page run at a time: one that is stuck keeps nobody from the rest of the page.
//
// Guarantees: G-0091.17
func TestFewToolsAreTriedAtOnce(t *testing.T) {
	f := newFake(files())
	f.detail.Tools = []Tool{{Name: "t", Schema: json.RawMessage(`{}`)}}
	d := New(f)
	defer d.Close()
	e := d.entrance(guard{local: true})
	h := e.routes()
	for range maxTries {
		e.tries <- struct{}{}
	}
	if got := ask(h, "POST", "/servers/files/tools/t", form("")); got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Body.String(), fmt.Sprint(maxTries)) || len(f.did()) != 0 {
		t.Errorf("one too many: %d %s", got.Code, got.Body)
	}
	<-e.tries
	if got := ask(h, "POST", "/servers/files/tools/t", form("")); got.Code != 200 || len(e.tries) != maxTries-1 {
		t.Errorf("after one has ended: %d %s", got.Code, got.Body)
	}
}

// Results and schemas are indented, unless that would make many times as much of them: a server chooses how deep they are.
//
// Guarantees: G-0091.17
func TestWhatIsShownIsBounded(t *testing.T) {
	if got := indented(json.RawMessage(`{"a":["]}]}\\\"",1]}`)); got != "{\n  \"a\": [\n    \"]}]}\\\\\\\"\",\n    1\n  ]\n}" {
		t.Errorf("indented: %s", got)
	}
	beside := "[" + strings.TrimSuffix(strings.Repeat(`[],{},`, 1000), ",") + "]"
	if got := indented(json.RawMessage(beside)); strings.Count(got, "\n  []") != 1000 {
		t.Errorf("a thousand arrays beside one another are shown as %.40s", got)
	}
	deep := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(strings.Repeat("[", 500)+strings.Repeat("]", 500)+",", 100), ",") + "]")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := indented(deep)
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; got != string(deep[:maxShown])+"\n… cut here" || !strings.HasPrefix(got, "[[[[") || cost > 16*uint64(len(deep)) {
		t.Errorf("%d bytes are shown of %d, at the cost of %d", len(got), len(deep), cost)
	}
	if whole := `"` + strings.Repeat("a", maxShown-2) + `"`; indented(json.RawMessage(whole)) != whole {
		t.Error("a result that has just room is cut")
	}
	if got := indented(json.RawMessage(`[1`)); got != "" {
		t.Errorf("what is no JSON: %s", got)
	}
}

// What a person has entered goes to the tool with the ends of lines that were entered. One that is too long is refused, whoever sends it, and is
// no call without arguments.
//
// Guarantees: G-0091.2, G-0091.17
func TestWhatIsEntered(t *testing.T) {
	f := newFake(files())
	f.detail.Tools = []Tool{{Name: "t", Schema: json.RawMessage(`{"properties":{"s":{"type":"string"}}}`)}}
	for what, h := range map[string]http.Handler{"local": New(f).Local(), "with the token": serveWeb(t, f, true)} {
		before := len(f.did())
		if got := ask(h, "POST", "/servers/files/tools/t", form("a0="+strings.Repeat("a", maxForm)), token); got.Code != 413 || len(f.did()) != before || !strings.Contains(got.Body.String(), fmt.Sprint(maxForm)) {
			t.Errorf("%s, too long: %d %s", what, got.Code, got.Body)
		}
		if got := ask(h, "POST", "/servers/files/tools/t", form(url.Values{"a0": {"one\r\ntwo"}}.Encode()), token); got.Code != 200 || f.did()[len(f.did())-1] != `call t {"s":"one\ntwo"}` {
			t.Errorf("%s, two lines: %d, %q", what, got.Code, f.did())
		}
	}
	f.detail.Tools[0].Schema = json.RawMessage(`{"properties":{"o":{"type":"object"}}}`)
	before := len(f.did())
	if got := ask(New(f).Local(), "POST", "/servers/files/tools/t", form("a0=[")); len(f.did()) != before || !strings.Contains(got.Body.String(), "o is no JSON") || !strings.Contains(got.Body.String(), `data-outcome="failed"`) {
		t.Errorf("what is no JSON: %s, %q", got.Body, f.did())
	}
	if got := ask(serveWeb(t, f, true), "POST", "/login", form("token="+strings.Repeat("a", maxForm))); got.Code != 413 {
		t.Errorf("a token that is too long: %d %s", got.Code, got.Body)
	}
}
