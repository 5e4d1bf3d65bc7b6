package protocol

import (
	"encoding/json"
	"reflect"
	"testing"

	general "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The fast encoder gives the same as reflection, and fails when reflection fails.
func TestPlainIsGeneral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := &CallToolParams{Name: anyText().Draw(t, "name"), Arguments: anyRaw().Draw(t, "arguments")}
		params.Meta = anyMeta().Draw(t, "_meta")
		sameEncoding(t, params.Meta, params, params.written())
		result := &CallToolResult{
			Content:           anyContents().Draw(t, "content"),
			StructuredContent: anyRaw().Draw(t, "structured content"),
			IsError:           rapid.Bool().Draw(t, "is error"),
		}
		result.Meta, result.ResultType = anyMeta().Draw(t, "_meta"), anyText().Draw(t, "type")
		if rapid.IntRange(0, 9).Draw(t, "others") == 0 {
			result.Others = map[string]json.RawMessage{"other": json.RawMessage("1")}
		}
		sameEncoding(t, result.Meta, result, result)
	})
}

// The same holds for the tools of a page, with and without unusual members.
func TestPlainPageIsGeneral(t *testing.T) {
	yes := true
	rapid.Check(t, func(t *rapid.T) {
		tool := rapid.Custom(func(t *rapid.T) *Tool {
			tool := &Tool{
				Name: anyText().Draw(t, "name"), Title: anyText().Draw(t, "title"), Description: anyText().Draw(t, "description"),
				InputSchema: anyRaw().Draw(t, "input schema"), OutputSchema: anyRaw().Draw(t, "output schema"),
			}
			switch rapid.IntRange(0, 9).Draw(t, "more") {
			case 0:
				tool.Annotations = &ToolAnnotations{Title: "a", DestructiveHint: &yes}
			case 1:
				tool.Meta = Meta{"a": json.RawMessage("1")}
			case 2:
				tool.Others = map[string]json.RawMessage{"other": json.RawMessage("1")}
			case 3:
				tool.Icons = []Icon{{Source: "a:b"}}
			case 4:
				tool.Execution = &ToolExecution{TaskSupport: TaskOptional}
			}
			return tool
		})
		page := &ListToolsResult{Tools: rapid.SliceOfN(tool, 0, 2).Draw(t, "tools")}
		page.ResultType, page.CacheScope = anyText().Draw(t, "type"), anyText().Draw(t, "scope")
		if rapid.Bool().Draw(t, "more") {
			ttl, cursor := rapid.Int64().Draw(t, "ttl"), anyText().Draw(t, "cursor")
			page.TTLMs, page.NextCursor = &ttl, &cursor
		}
		sameEncoding(t, nil, page, page)
	})
	for _, page := range []*ListToolsResult{{}, {Tools: []*Tool{nil}}, {CacheableResult: CacheableResult{Result: Result{Meta: Meta{"a": json.RawMessage("1")}}}}} {
		sameEncoding(t, page.Meta, page, page)
	}
}

// Values with other members are left to reflection.
func TestUnusualIsGeneral(t *testing.T) {
	names := Meta{"\xff": json.RawMessage("1"), "\xfe": json.RawMessage("2")} // both become U+FFFD
	for _, result := range []*CallToolResult{
		{Result: Result{Meta: names}},
		{Content: Contents{&TextContent{Text: "a", Meta: Meta{}}}},
		{Content: Contents{&TextContent{Text: "a", Annotations: new(Annotations)}}},
		{Content: Contents{&TextContent{Text: "a"}, &ImageContent{}}},
		{Others: map[string]json.RawMessage{"other": json.RawMessage("1")}},
	} {
		sameEncoding(t, result.Meta, result, result)
	}
}

// A field that the generated encoder does not know would be lost, so each field of each type is
// set alone.
func TestNoFieldIsLost(t *testing.T) {
	for _, fresh := range append(messages, func() any { return new(Tool) }) {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(fresh()).Elem()) {
			if field.Anonymous && field.Type.Kind() == reflect.Struct || field.Tag.Get("json") == "-" {
				continue // its own fields come by themselves; or it is not on the wire
			}
			value := fresh()
			set(reflect.ValueOf(value).Elem().FieldByIndex(field.Index))
			sameEncoding(t, nil, value, value)
		}
	}
}

// set sets a variable to a value other than zero.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		element := reflect.New(v.Type().Elem()).Elem()
		if element.Kind() != reflect.Interface {
			set(element)
		}
		v.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), element)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(5)
	case reflect.Float64:
		v.SetFloat(1e21)
	case reflect.Uint8:
		v.SetUint(5)
	case reflect.Struct:
		if v.NumField() > 0 && v.Field(0).CanSet() {
			set(v.Field(0))
		}
	case reflect.Interface:
	default:
		panic(v.Type())
	}
}

// The fast encoder accepts the usual calls and results.
func TestMostCallsArePlain(t *testing.T) {
	meta := Meta{MetaProgressToken: json.RawMessage("1")}
	for _, common := range []any{
		&CallToolParams{Name: "add"},
		&CallToolParams{RequestParams: RequestParams{meta}, Name: "add", Arguments: json.RawMessage(`{"a":1}`)},
		&CallToolResult{Content: Contents{&TextContent{Text: "5"}, &TextContent{}}},
		&CallToolResult{Result: Result{meta, ResultComplete}, StructuredContent: json.RawMessage(`{"sum":5}`), IsError: true},
		&Tool{Name: "add", Title: "Add", Description: "adds", InputSchema: json.RawMessage(`{}`), OutputSchema: json.RawMessage(`{}`)},
		&ListToolsResult{Tools: []*Tool{{Name: "add", InputSchema: json.RawMessage(`{}`), Annotations: new(ToolAnnotations)}}},
	} {
		if _, ok := appendFast(nil, common); !ok {
			t.Errorf("the fast encoder refuses %#v", common)
		}
	}
}

func sameEncoding(t rapid.TB, meta Meta, value, same any) {
	t.Helper()
	got, gotErr := Marshal(value)
	want, wantErr := general.Marshal(same, jsontext.AllowInvalidUTF8(true))
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("got error %v, want %v", gotErr, wantErr)
	}
	if gotErr == nil && len(meta) < 2 && string(got) != string(want) {
		t.Fatalf("got %s, want %s", got, want)
	}
	if gotErr == nil && len(meta) > 1 { // whose members have no order
		if diff := cmp.Diff(membersOf(t, want), membersOf(t, got)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func membersOf(t rapid.TB, object json.RawMessage) (members struct {
	Meta   map[string]json.RawMessage `json:"_meta"`
	Others map[string]json.RawMessage `json:",unknown"`
}) {
	t.Helper()
	if err := Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	return members
}

// The fast decoder of a text block accepts nothing that reflection would decode to another
// value.
func FuzzTextIsGeneral(f *testing.F) {
	for _, seed := range []string{
		`{"type":"text","text":"a"}`, `{"type":"text","text":"a\"\n\ud83d\ude00"}`, `{"type":"text","text":"\ud800"}`,
		`{"type":"text","text":"a","text":"b"}`, `{"type":"text","text":"a","type":"image"}`, `{"type":"text","text":null}`,
		`{"type":"text","text":"a","_meta":{"b":"c"}}`, `{"type":"text","text":"a"} `, "{\"type\":\"text\",\"text\":\"\xff\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := cutText(raw)
		if !ok {
			return
		}
		want := new(struct {
			Type string `json:"type"`
			TextContent
		})
		if err := general.Unmarshal(raw, want, jsontext.AllowInvalidUTF8(true)); err != nil || want.Type != "text" {
			t.Fatalf("%q was decoded as text, and reflection fails with %v", raw, err)
		}
		if diff := cmp.Diff(&want.TextContent, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "echo", "a\xffb", "\"\\\n\u2028<&>", "\U0001f600", "\xed\xa0\x80"}))
}

// anyRaw draws JSON as callers write it, invalid JSON, and nil.
func anyRaw() *rapid.Generator[json.RawMessage] {
	return rapid.Map(rapid.SampledFrom([]string{
		`{}`, `{"a":1.0,"b":[null,true,1e3]}`, " {\n\t\"a\" : \"\\u0041\\/\" } ", `"\ud800"`, "\"\xff\"", `null`, `12345678901234567890`,
		`{"a":1,"a":2}`, `{"a":{"b":1,"\u0062":2}}`, `{`, `{}}`, `01`, ``, `absent`,
	}), func(text string) json.RawMessage {
		if text == "absent" {
			return nil
		}
		return json.RawMessage(text)
	})
}

func anyMeta() *rapid.Generator[Meta] {
	return rapid.Custom(func(t *rapid.T) Meta {
		if rapid.Bool().Draw(t, "without") {
			return nil
		}
		return rapid.MapOfN(anyText(), anyRaw(), 0, 2).Draw(t, "members")
	})
}

func anyContents() *rapid.Generator[Contents] {
	text := rapid.Map(anyText(), func(s string) Content { return &TextContent{Text: s} })
	other := rapid.SampledFrom([]Content{
		&TextContent{Text: "a", Annotations: &Annotations{Audience: []Role{RoleUser}}},
		&TextContent{Text: "a", Meta: Meta{}},
		&ImageContent{Data: []byte{1}, MIMEType: "image/png"},
		&ResourceLink{URI: "a:b", Name: "c"},
		&UnknownContent{Type: "hologram", Raw: json.RawMessage(`{"type":"hologram", "x":1}`)},
		&UnknownContent{Type: "hologram", Raw: json.RawMessage(`{`)},
		&UnknownContent{Type: "hologram"},
		(*TextContent)(nil), (*UnknownContent)(nil), nil,
	})
	few := rapid.OneOf(text, text, text, other)
	return rapid.Map(rapid.SliceOfN(few, 0, 3), func(blocks []Content) Contents {
		if len(blocks) == 0 {
			return nil
		}
		return blocks
	})
}

// With any raw JSON in a message, both encoders give the same.
func FuzzPlainRaw(f *testing.F) {
	for _, v := range []string{`{"a":"x","b":1}`, `[1,2.0,-0]`, `{"a":null,"a":1}`, ``, ` {} `, `"\ud800"`, "{\"\xff\":1,\"\xfe\":1}", `{"":{}} `, "{\"a\\/\":\"\u2028\\u007f<>\"}", `{"\u0061":1,"a":2}`} {
		f.Add("n", []byte(v), []byte(v), "t", v, "m")
	}
	f.Fuzz(func(t *testing.T, name string, a, b []byte, rt, text, m string) {
		p := &CallToolParams{Name: name, Arguments: a}
		p.Meta = Meta{m: b}
		sameEncoding(t, p.Meta, p, p.written())
		r := &CallToolResult{Content: Contents{&TextContent{Text: text}}, StructuredContent: json.RawMessage(b)}
		r.ResultType = rt
		sameEncoding(t, nil, r, r)
	})
}
