package protocol_test

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	general "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// onTheWire returns a value of each exported type that is part of a message.
func onTheWire() []any {
	return []any{
		new(protocol.AcknowledgedParams), new(protocol.Annotations), new(protocol.AudioContent), new(protocol.CacheableResult),
		new(protocol.CallToolParams), new(protocol.CallToolResult), new(protocol.CancelTaskParams), new(protocol.CancelledParams),
		new(protocol.Capability), new(protocol.ClientCapabilities), new(protocol.CompleteArgument), new(protocol.CompleteContext),
		new(protocol.CompleteParams), new(protocol.CompleteReference), new(protocol.CompleteResult), new(protocol.Completion),
		new(protocol.CreateMessageParams), new(protocol.CreateMessageResult), new(protocol.CreateTaskResult), new(protocol.DetailedTask),
		new(protocol.DiscoverParams), new(protocol.DiscoverResult), new(protocol.ElicitParams), new(protocol.ElicitResult),
		new(protocol.ElicitationCapability), new(protocol.ElicitationCompleteParams), new(protocol.EmbeddedResource), new(protocol.EmptyResult),
		new(protocol.GetPromptParams), new(protocol.GetPromptResult), new(protocol.GetSkillParams), new(protocol.GetSkillResult),
		new(protocol.GetTaskParams), new(protocol.GetTaskResult), new(protocol.GetTaskResultParams), new(protocol.Icon), new(protocol.ImageContent),
		new(protocol.Implementation), new(protocol.InitializeParams), new(protocol.InitializeResult), new(protocol.InputParams),
		new(protocol.InputRequired), new(protocol.LegacyCreateTaskResult), new(protocol.LegacyTask), new(protocol.LegacyTaskResult),
		new(protocol.ListCapability), new(protocol.ListPromptsParams), new(protocol.ListPromptsResult), new(protocol.ListResourceTemplatesParams),
		new(protocol.ListResourceTemplatesResult), new(protocol.ListResourcesParams), new(protocol.ListResourcesResult), new(protocol.ListRootsParams),
		new(protocol.ListRootsResult), new(protocol.ListSkillsParams), new(protocol.ListSkillsResult), new(protocol.ListTasksParams),
		new(protocol.ListTasksResult), new(protocol.ListToolsParams), new(protocol.ListToolsResult), new(protocol.ListenParams),
		new(protocol.ListenResult), new(protocol.LogMessageParams), new(protocol.MissingCapabilityData), new(protocol.ModelHint),
		new(protocol.ModelPreferences), new(protocol.NotificationParams), new(protocol.PingParams), new(protocol.ProgressParams), new(protocol.Prompt),
		new(protocol.PromptArgument), new(protocol.PromptMessage), new(protocol.ReadDirectoryParams), new(protocol.ReadDirectoryResult),
		new(protocol.ReadResourceParams), new(protocol.ReadResourceResult), new(protocol.RelatedTask), new(protocol.RequestParams), new(protocol.Resource),
		new(protocol.ResourceContents), new(protocol.ResourceLink), new(protocol.ResourceNotFoundData), new(protocol.ResourceTemplate),
		new(protocol.ResourceUpdatedParams), new(protocol.ResourcesCapability), new(protocol.Result), new(protocol.Root), new(protocol.RootsCapability),
		new(protocol.SamplingCapability), new(protocol.SamplingMessage), new(protocol.ServerCapabilities), new(protocol.SetLogLevelParams),
		new(protocol.Skill), new(protocol.SkillFile), new(protocol.SkillResources), new(protocol.SubscribeParams), new(protocol.SubscriptionFilter),
		new(protocol.Task), new(protocol.TaskError), new(protocol.TaskMetadata), new(protocol.TaskParams), new(protocol.TaskStatusParams),
		new(protocol.TasksCapability), new(protocol.TextContent), new(protocol.Tool), new(protocol.ToolAnnotations), new(protocol.ToolChoice),
		new(protocol.ToolExecution), new(protocol.ToolResultContent), new(protocol.ToolUseContent), new(protocol.URLElicitationData),
		new(protocol.UnsubscribeParams), new(protocol.UnsupportedVersionData), new(protocol.UpdateTaskParams),
		new(protocol.Contents), new(protocol.InputRequests),
		new(protocol.InputResponses), new(protocol.Meta),

		new(protocol.SamplingContents),
	}
}

// notOnTheWire returns the names of the other exported structs. UnknownContent and
// UnknownInputResponse are encoded by the types that contain them.
func notOnTheWire() []string {
	return []string{"Method", "LimitError", "RequestContext", "UnknownContent", "UnknownInputResponse"}
}

// The lists of onTheWire and notOnTheWire are complete.
func TestEveryTypeIsEncoded(t *testing.T) {
	missing := make(map[string]bool)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				switch spec.Type.(type) {
				case *ast.StructType, *ast.ArrayType, *ast.MapType:
					missing[spec.Name.Name] = true
				}
			}
			return true
		})
	}
	if len(missing) == 0 {
		t.Fatal("no type was found")
	}
	for _, name := range notOnTheWire() {
		delete(missing, name)
	}
	for _, value := range onTheWire() {
		delete(missing, reflect.TypeOf(value).Elem().Name())
	}
	if len(missing) > 0 {
		t.Errorf("onTheWire lacks %v", missing)
	}
}

// Each encoder writes a nil list as an empty array, because no schema allows null for a list.
func TestNilListsAreArrays(t *testing.T) {
	lists := 0
	check := func(kind reflect.Type, value any, want string) {
		t.Helper()
		lists++
		for _, same := range []any{value, reflect.ValueOf(value).Elem().Interface()} {
			marshalled, err := protocol.Marshal(same)
			standard, failed := stdjson.Marshal(same)
			if err != nil || failed != nil || !strings.Contains(string(marshalled), want) || !strings.Contains(string(standard), want) {
				t.Errorf("%s: got %s, %v, and of encoding/json %s, %v, want %s", kind, marshalled, err, standard, failed, want)
			}
		}
	}
	for _, value := range onTheWire() {
		kind := reflect.TypeOf(value).Elem()
		switch kind.Kind() {
		case reflect.Slice:
			check(kind, value, "[]")
		case reflect.Struct:
			for _, field := range reflect.VisibleFields(kind) {
				if _, bounded := field.Tag.Lookup("most"); bounded && !strings.HasSuffix(field.Tag.Get("json"), ",omitzero") {
					check(kind, value, `"`+field.Tag.Get("json")+`":[]`)
				}
			}
		}
	}
	if lists < 17 {
		t.Errorf("%d lists were tried", lists)
	}
}

// encoding/json encodes as Marshal does, and decodes as Unmarshal does.
func TestStandardEncoderAgrees(t *testing.T) {
	for _, value := range onTheWire() {
		fill(t, reflect.ValueOf(value).Elem())
		marshalled, err := protocol.Marshal(value)
		if err != nil {
			t.Errorf("%T: %v", value, err)
			continue
		}
		for _, same := range []any{value, reflect.ValueOf(value).Elem().Interface()} {
			standard, err := stdjson.Marshal(same)
			if err != nil {
				t.Errorf("%T: %v", same, err)
			} else if diff := cmp.Diff(anyOf(t, marshalled), anyOf(t, standard)); diff != "" {
				t.Errorf("%T:\n%s", same, diff)
			}
		}
		one, other := reflect.New(reflect.TypeOf(value).Elem()).Interface(), reflect.New(reflect.TypeOf(value).Elem()).Interface()
		if err := stdjson.Unmarshal(marshalled, one); err != nil {
			t.Errorf("%T: %v", value, err)
		}
		if err := protocol.Unmarshal(marshalled, other); err != nil {
			t.Errorf("%T: %v", value, err)
		}
		if diff := cmp.Diff(other, one, cmp.Comparer(func(a, b jsonrpc.ID) bool { return a == b })); diff != "" {
			t.Errorf("%T:\n%s", value, diff)
		}
	}
}

// With each combination of decoder and encoder, a type that keeps unknown members keeps them.
func TestUnknownMembersSurviveAnyEncoder(t *testing.T) {
	decoders := map[string]func([]byte, any) error{"encoding/json": stdjson.Unmarshal, "protocol": protocol.Unmarshal}
	encoders := map[string]func(any) ([]byte, error){
		"encoding/json":          stdjson.Marshal,
		"encoding/json by value": func(value any) ([]byte, error) { return stdjson.Marshal(reflect.ValueOf(value).Elem().Interface()) },
		"encoding/json within": func(value any) ([]byte, error) {
			raw, err := stdjson.Marshal(map[string][]any{"a": {value}})
			return []byte(strings.TrimSuffix(strings.TrimPrefix(string(raw), `{"a":[`), `]}`)), err
		},
		"protocol": func(value any) ([]byte, error) { return protocol.Marshal(value) },
	}
	kinds := 0
	for _, value := range onTheWire() {
		kind := reflect.TypeOf(value).Elem()
		if kind.Kind() != reflect.Struct {
			continue
		}
		if _, keeps := kind.FieldByName("Others"); !keeps {
			continue
		}
		kinds++
		fill(t, reflect.ValueOf(value).Elem())
		reflect.ValueOf(value).Elem().FieldByName("Others").SetZero()
		raw, err := protocol.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range []string{strings.TrimSuffix(string(raw), "}"), "{"} {
			if raw != "{" {
				raw += ","
			}
			raw += `"x-unknown":{"b":[1.50,null]},"Others":{"c":1}}`
			for reader, decode := range decoders {
				for writer, encode := range encoders {
					got := reflect.New(kind).Interface()
					if err := decode([]byte(raw), got); err != nil {
						t.Fatalf("%s: %s: %v", kind, reader, err)
					}
					again, err := encode(got)
					if err != nil {
						t.Fatalf("%s: %s: %v", kind, writer, err)
					}
					want, written := anyOf(t, []byte(raw)).(map[string]any), anyOf(t, again).(map[string]any)
					if raw[1:4] == `"x-` { // required members have come by then
						for name := range written {
							if _, sent := want[name]; !sent {
								delete(written, name)
							}
						}
					}
					if diff := cmp.Diff(want, written); diff != "" {
						t.Errorf("%s, read by %s, written by %s:\n%s", kind, reader, writer, diff)
					}
				}
			}
		}
	}
	if kinds < 16 {
		t.Errorf("only %d types keep unknown members", kinds)
	}
}

func anyOf(t *testing.T, raw []byte) (value any) {
	t.Helper()
	decoder := stdjson.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return value
}

// fill sets every member of a message.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch into := v.Addr().Interface().(type) {
	case *stdjson.RawMessage:
		*into = stdjson.RawMessage(`{"a":1}`)
		return
	case *jsonrpc.ID:
		*into = jsonrpc.IntegerID(7)
		return
	case *protocol.Content:
		*into = protocol.Image([]byte{1}, "image/png")
		return
	case *protocol.InputRequest:
		*into = &protocol.ElicitParams{Message: "m"}
		return
	case *protocol.InputResponse:
		*into = &protocol.ElicitResult{Action: "accept"}
		return
	case *protocol.SkillResources:
		into.Files = []protocol.SkillFile{{URI: "a", Digest: "b", Size: 1}}
		return
	case *protocol.ResourceContents:
		*into = protocol.ResourceContents{URI: "a", Blob: []byte{1}, Meta: protocol.Meta{"a": stdjson.RawMessage("1")}}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if tag := field.Tag.Get("json"); tag != "-" && tag != ",inline" {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		fill(t, element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), element)
	case reflect.String:
		v.SetString("a<b>")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(5)
	case reflect.Uint8:
		v.SetUint(5)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		t.Fatalf("no value for a %s", v.Type())
	}
}

// The generated functions accept a message in which every member is set, but none that it does
// not know, and do as reflection does. A member that they do not know would be lost.
//
// Guarantees: G-0056.4
func TestEveryMemberIsGenerated(t *testing.T) {
	for _, value := range onTheWire() {
		kind := reflect.TypeOf(value).Elem()
		if name := kind.Name(); !strings.HasSuffix(name, "Params") && !strings.HasSuffix(name, "Result") && name != "Tool" {
			continue
		}
		fill(t, reflect.ValueOf(value).Elem())
		forgetOthers(reflect.ValueOf(value))
		written, ok := protocol.AppendFast(nil, value)
		reflected, err := general.Marshal(value, jsontext.AllowInvalidUTF8(true))
		if err != nil || !ok || string(written) != string(reflected) {
			t.Errorf("%s: %t, %s, and by reflection %s, %v", kind, ok, written, reflected, err)
		}
		if kind.Name() == "Tool" { // is not decoded alone
			continue
		}
		read, want := reflect.New(kind).Interface(), reflect.New(kind).Interface()
		if !protocol.DecodeFast(written, false, read) {
			t.Errorf("%s was not decoded from %s", kind, written)
		}
		if err := general.Unmarshal(written, want, jsontext.AllowInvalidUTF8(true)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if diff := cmp.Diff(want, read, cmp.AllowUnexported(jsonrpc.ID{})); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// forgetOthers removes all unknown members.
func forgetOthers(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Others" {
				v.Field(i).SetZero()
			} else {
				forgetOthers(v.Field(i))
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			forgetOthers(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			forgetOthers(v.Index(i))
		}
	}
}

// encoding/json also gives the same for a result that requires input or has become a task.
func TestStandardEncoderAsks(t *testing.T) {
	asks := func() *protocol.InputRequired {
		return &protocol.InputRequired{InputRequests: protocol.InputRequests{"a": &protocol.ElicitParams{Message: "m"}}, RequestState: pointer("s")}
	}
	for _, result := range []any{
		&protocol.CallToolResult{InputRequired: asks()}, &protocol.GetPromptResult{InputRequired: asks()}, &protocol.ReadResourceResult{InputRequired: asks()},
		&protocol.CallToolResult{Task: &protocol.Task{TaskID: "t", Status: protocol.TaskWorking}},
	} {
		marshalled, err := protocol.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		standard, err := stdjson.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(anyOf(t, marshalled), anyOf(t, standard)); diff != "" {
			t.Errorf("%T:\n%s", result, diff)
		}
		one, other := reflect.New(reflect.TypeOf(result).Elem()).Interface(), reflect.New(reflect.TypeOf(result).Elem()).Interface()
		if err := stdjson.Unmarshal(marshalled, one); err != nil {
			t.Fatal(err)
		}
		if err := protocol.Unmarshal(marshalled, other); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(other, one); diff != "" {
			t.Errorf("%T:\n%s", result, diff)
		}
	}
}

// A json.Decoder reuses its buffer for the next value, so a result must contain copies.
func TestStandardDecoderKeepsEachResult(t *testing.T) {
	reader, writer := io.Pipe()
	go func() {
		defer writer.Close()
		for _, letter := range "abcdefgh" {
			if _, err := fmt.Fprintf(writer, `{"content":[],"structuredContent":{"a":%q}}`+"\n", strings.Repeat(string(letter), 60)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var results []protocol.CallToolResult
	var first []string
	for decoder := stdjson.NewDecoder(reader); ; {
		var result protocol.CallToolResult
		err := decoder.Decode(&result)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		results, first = append(results, result), append(first, string(result.StructuredContent))
	}
	if len(results) != 8 {
		t.Errorf("%d results", len(results))
	}
	for i, result := range results {
		if now := string(result.StructuredContent); now != first[i] {
			t.Errorf("result %d was %s and became %s", i, first[i], now)
		}
	}
}

// Types whose members depend on each other are decoded anew: nothing of an old value stays.
func TestNothingOfAnOldValueStays(t *testing.T) {
	text := "old"
	for _, c := range []struct {
		into any
		raw  string
		want any
	}{
		{&protocol.PromptMessage{Role: protocol.RoleUser, Content: protocol.Text("old")}, `{}`, &protocol.PromptMessage{}},
		{&protocol.ResourceContents{URI: "old", Text: &text}, `{"blob":""}`, &protocol.ResourceContents{Blob: []byte{}}},
		{&protocol.SkillResources{Dynamic: true}, `[]`, &protocol.SkillResources{Files: []protocol.SkillFile{}}},
		{&protocol.InputRequests{"old": &protocol.ListRootsParams{}}, `{}`, &protocol.InputRequests{}},
		{&protocol.InputResponses{"old": &protocol.ListRootsResult{}}, `{}`, &protocol.InputResponses{}},
		{&protocol.InputRequests{"old": &protocol.ListRootsParams{}}, `null`, new(protocol.InputRequests)},
		{&protocol.InputResponses{"old": &protocol.ListRootsResult{}}, `null`, new(protocol.InputResponses)},
	} {
		if err := stdjson.Unmarshal([]byte(c.raw), c.into); err != nil || !reflect.DeepEqual(c.into, c.want) {
			t.Errorf("%s into an old %T: got %+v, %v", c.raw, c.into, c.into, err)
		}
	}
}
