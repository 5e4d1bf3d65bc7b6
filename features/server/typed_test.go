package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

type inner struct {
	A int `json:"a"`
}

type blob []byte

// allTypes has a field of each type that has an inferred schema.
type allTypes struct {
	inner
	Text     string            `json:"text"`
	Count    int               `json:"count,omitempty"`
	Flag     bool              `json:"flag,omitempty"`
	Ratio    float32           `json:"ratio,omitzero"`
	Bytes    []byte            `json:"bytes"`
	Blob     blob              `json:"blob"`
	Array    [4]byte           `json:"array"`
	Raw      json.RawMessage   `json:"raw"`
	RawTo    *json.RawMessage  `json:"rawTo"`
	Duration time.Duration     `json:"duration"`
	Time     time.Time         `json:"time"`
	Address  netip.Addr        `json:"address"`
	Big      *big.Int          `json:"big"`
	BigValue big.Int           `json:"bigValue"`
	Number   json.Number       `json:"number"`
	Any      any               `json:"any"`
	List     []inner           `json:"list"`
	Map      map[string]inner  `json:"map"`
	Pointer  *inner            `json:"pointer"`
	Pointers map[string]*inner `json:"pointers"`
	Unnamed  int
	Hidden   func() `json:"-"`
	private  chan int
}

func filledAllTypes() allTypes {
	raw := json.RawMessage(`[1]`)
	return allTypes{
		inner: inner{1}, Text: "<ä>", Count: 1, Flag: true, Ratio: 0.5, Bytes: []byte{0, 255}, Blob: blob{1}, Array: [4]byte{1, 2, 3, 4},
		Raw: json.RawMessage(`{"x":[1]}`), RawTo: &raw, Duration: 90 * time.Minute, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Address: netip.MustParseAddr("::1"), Big: big.NewInt(7), BigValue: *big.NewInt(8), Number: "1.5", Any: "x", List: []inner{{2}},
		Map: map[string]inner{"k": {3}}, Pointer: &inner{4}, Pointers: map[string]*inner{"n": nil}, Unnamed: 5, private: nil,
	}
}

func TestTypedValuesFitTheirInferredSchemas(t *testing.T) {
	s := newServer(server.Options{})
	out := make(chan allTypes, 1)
	in := make(chan allTypes, 1)
	server.AddTool(s, protocol.Tool{Name: "out"}, func(context.Context, struct{}) (allTypes, error) {
		return <-out, nil
	})
	server.AddTool(s, protocol.Tool{Name: "in"}, func(_ context.Context, given allTypes) (*allTypes, error) {
		in <- given
		return &given, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	promised := outputSchema(t, w, "out")
	for name, value := range map[string]allTypes{"zero": {Number: "0"}, "filled": filledAllTypes()} {
		out <- value
		got := w.call("out", `{}`)
		if got.Error.Code != 0 || got.Result.Content.Text() != string(got.Result.StructuredContent) {
			t.Fatalf("%s: got %+v", name, got)
		}
		if err := promised.Validate(t.Context(), got.Result.StructuredContent); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		back := w.call("in", string(got.Result.StructuredContent))
		if !bytes.Equal(back.Result.StructuredContent, got.Result.StructuredContent) {
			t.Fatalf("%s: sent %s\ngot %+v %s", name, got.Result.StructuredContent, back, back.Result.Content.Text())
		}
		if given := <-in; name == "filled" && !reflect.DeepEqual(given, value) {
			t.Errorf("%s: sent %+v\ngot %+v", name, value, given)
		}
	}
}

// outputSchema returns the schema that the server lists for the tool's output.
func outputSchema(t *testing.T, w *rawPeer, name string) *schema.Validator {
	t.Helper()
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var page struct {
		Result protocol.ListToolsResult `json:"result"`
	}
	w.read(&page)
	for _, tool := range page.Result.Tools {
		if tool.Name == name {
			promised, err := schema.Compile(t.Context(), tool.OutputSchema)
			if err != nil {
				t.Fatal(err)
			}
			return promised
		}
	}
	t.Fatalf("no tool %q", name)
	return nil
}

func TestTypedValuesAreWrittenAsEncodingJSONDoes(t *testing.T) {
	s := newServer(server.Options{})
	type mix struct {
		Zero     int           `json:"zero,omitempty"`
		Duration time.Duration `json:"duration"`
		Array    [2]byte       `json:"array"`
		Bytes    []byte        `json:"bytes"`
		List     []int         `json:"list"`
	}
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (mix, error) {
		return mix{Duration: time.Second, Array: [2]byte{1, 2}, Bytes: []byte("hi")}, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	want := `{"duration":1000000000,"array":[1,2],"bytes":"aGk=","list":[]}`
	if got := string(w.call("t", `{}`).Result.StructuredContent); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestIntegersMayBeWrittenAsNumbers(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in struct {
		N int64   `json:"n"`
		F float64 `json:"f,omitempty"`
		S string  `json:"s,omitempty"`
		L []int8  `json:"l,omitempty"`
	}) (string, error) {
		return fmt.Sprintf("%v %v %v %v", in.N, in.F, in.S, in.L), nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	for arguments, want := range map[string]string{
		`{"n":1.0}`:                 "1 0  []",
		`{"n":1e3}`:                 "1000 0  []",
		`{"n":9007199254740993.0}`:  "", // not exact as a float64
		`{"n":-2.50E1,"n2":0}`:      "",
		`{"n":-2.50E2}`:             "-250 0  []",
		`{"n":-0.0,"f":1.5}`:        "0 1.5  []",
		`{"n":1.0,"s":"1.0\u0041"}`: "1 0 1.0A []",
		`{"n":1.0,"l":[1.0,2,3e0]}`: "1 0  [1 2 3]",
		`{"n":9007199254740991.0}`:  "9007199254740991 0  []",
		`{"n":9223372036854775807}`: "9223372036854775807 0  []",
	} {
		got := w.call("t", arguments)
		if text := got.Result.Content.Text(); got.Result.IsError != (want == "") || want != "" && text != want {
			t.Errorf("%s: got %q, want %q", arguments, text, want)
		}
	}
}

func TestPointersAreWhatTheyPointTo(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(_ context.Context, in *inner) (*inner, error) {
		if in.A == 0 {
			return nil, nil
		}
		return in, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{"a":1}`); string(got.Result.StructuredContent) != `{"a":1}` {
		t.Errorf("got %+v, want %q", got, `{"a":1}`)
	}
	if got := w.call("t", `{"a":0}`); got.Error.Code != jsonrpc.CodeInternalError {
		t.Errorf("nil: got %+v, want %v", got, jsonrpc.CodeInternalError)
	}
}

func TestOutputThatCannotBeEncodedIsAnInternalError(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (map[string]float64, error) {
		return map[string]float64{"x": math.NaN()}, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{}`); got.Error.Code != jsonrpc.CodeInternalError {
		t.Errorf("got %+v, want %v", got, jsonrpc.CodeInternalError)
	}
}

func TestTextOfAToolIsAlwaysSent(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "a\xffb", nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{}`).Result.Content.Text(); got != "a\uFFFDb" {
		t.Errorf("got %q, want %q", got, "a\uFFFDb")
	}
}

func add[In, Out any](tool protocol.Tool) func() {
	return func() {
		server.AddTool(newServer(server.Options{}), tool, func(context.Context, In) (out Out, err error) { return out, nil })
	}
}

// AddTool refuses what can never work.
//
// Guarantees: G-0029.15
func TestAddToolRefusesTheProgramsOwnMistakes(t *testing.T) {
	x := protocol.Tool{Name: "x"}
	for _, test := range []struct {
		name, message string
		add           func()
	}{
		{"no handler", "no function", func() {
			server.AddTool[struct{}, string](newServer(server.Options{}), x, nil)
		}},
		{"no name", "name", add[struct{}, string](protocol.Tool{})},
		{"a name with a space", `the name contains ' '`, add[struct{}, string](protocol.Tool{Name: "my tool!"})},
		{"a name with another letter", `the name contains 'ä'`, add[struct{}, string](protocol.Tool{Name: "träume"})},
		{"a long name", "longer than 128", add[struct{}, string](protocol.Tool{Name: strings.Repeat("a", 129)})},
		{"input is no object", "int", add[int, string](x)},
		{"output may be anything", "interface", add[struct{}, any](x)},
		{"output is a function", "func", add[struct{}, func()](x)},
		{"output is bytes", "[]byte", add[struct{}, []byte](x)},
		{"result by value", "*protocol.CallToolResult", add[struct{}, protocol.CallToolResult](x)},
		{"text with a schema", "structured", add[struct{}, string](protocol.Tool{Name: "x", OutputSchema: anyObject})},
		{"number as string", `"n"`, add[struct {
			N int `json:"n,string"`
		}, string](x)},
		{"number as string in a list", `"n"`, add[struct{}, struct {
			List []map[string]*struct {
				N int `json:"n,string"`
			}
		}](x)},
		{"named embedding", "inner", add[struct{}, struct {
			inner `json:"i"`
		}](x)},
		{"embedded pointer", "inner", add[struct{}, struct{ *inner }](x)},
		{"embedded text", "Text", add[struct{}, struct{ Text }](x)},
		{"map keys of numbers", "map", add[map[int]string, string](x)},
		{"function", "func", add[struct{ F func() }, string](x)},
		{"recursive", "contains itself: set the schema", add[recursive, string](x)},
		{"recursive output", "contains itself: set the schema", add[struct{}, recursive](x)},
		{"one name for two fields", "conflict", add[embedsTwice, string](x)},
		{"one name for two fields of an output", "conflict", add[struct{}, []struct{ In embedsTwice }](x)},
	} {
		wantPanic(t, test.name, test.message, test.add)
	}
}

// A name may be as long as MCP recommends, and have all the characters.
func TestNamesOfToolsThatAreAllowed(t *testing.T) {
	for _, name := range []string{"a", "A.b-c_9", strings.Repeat("a", 128)} {
		add[struct{}, string](protocol.Tool{Name: name})()
	}
}

// A type that can be no form is found when the feature is added.
//
// Guarantees: G-0031.17
func TestFormOfAnotherTypeIsRefused(t *testing.T) {
	for name, form := range map[string]func(){
		"a nested struct": func() { server.Form[struct{ In inner }]() },
		"a list of texts": func() { server.Form[struct{ List []string }]() },
		"no struct":       func() { server.Form[int]() },
		"a wrong default": func() {
			server.Form[struct {
				S string `enum:"a" default:"b"`
			}]()
		},
	} {
		wantPanic(t, name, "", form)
	}
	server.Form[struct {
		Size  string   `json:"size" enum:"small,large" default:"small"`
		Extra []string `json:"extra,omitempty" enum:"a,b"`
	}]()
}

// Text is a type that cannot be embedded as an object.
type Text string

type embedsTwice struct {
	A string
	B string `json:"A"`
}

// A type that contains itself has no inferred schema, but can be used with an explicit
// one.
func TestRecursiveTypesWithASchema(t *testing.T) {
	const schema = `{"type":"object","properties":{"next":{"type":"array","items":{"$ref":"#"}}}}`
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "tree", InputSchema: json.RawMessage(schema), OutputSchema: json.RawMessage(schema)},
		func(_ context.Context, in recursive) (*recursive, error) { return &in, nil })
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	const tree = `{"next":[{"next":[]},{"next":[]}]}`
	if got := w.call("tree", tree).Result; got.IsError || string(got.StructuredContent) != tree {
		t.Errorf("got %s %s, want %v", got.StructuredContent, got.Content.Text(), tree)
	}
	if got := w.call("tree", `{"next":[{"next":7}]}`).Result; !got.IsError {
		t.Errorf("got %s, want a tool error", got.StructuredContent)
	}
}

type recursive struct {
	Next []recursive `json:"next"`
}

// A pickyName decodes itself with encoding/json, whose errors contain Go types.
type pickyName struct{ Name string }

func (p *pickyName) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &p.Name) }

func TestUnmarshalerOfAnArgumentIsStrict(t *testing.T) {
	s := newServer(server.Options{})
	server.AddTool(s, protocol.Tool{Name: "t", InputSchema: anyObject}, func(_ context.Context, in struct {
		Name pickyName `json:"name"`
	}) (string, error) {
		return in.Name.Name, nil
	})
	w := dial(t, s)
	w.initialize(protocol.Version20251125)
	if got := w.call("t", `{"name":"a","NAME":"b"}`).Result.Content.Text(); got != "a" {
		t.Errorf("names of another case: got %q, want %q", got, "a")
	}
	want := `invalid arguments: a number at "/name" does not fit: a JSON number is not expected`
	if got := w.call("t", `{"name":7}`).Result.Content.Text(); got != want {
		t.Errorf("got %q, want %v", got, want)
	}
}

// Since 2026-07-28 the output of a tool can be any JSON. Older clients, which support
// objects only, get the text.
//
// Guarantees: G-0029.11
func TestOutputOfAnyType(t *testing.T) {
	make := func() *server.Server {
		s := newServer(server.Options{})
		list := json.RawMessage(`{"type":"array","items":{"type":"integer"}}`)
		server.AddTool(s, protocol.Tool{Name: "typed", OutputSchema: list}, func(context.Context, struct{}) ([]int, error) { return []int{1, 2}, nil })
		shared := &protocol.CallToolResult{Content: protocol.Contents{}, StructuredContent: json.RawMessage(` [1,2]`)}
		server.AddTool(s, protocol.Tool{Name: "raw", OutputSchema: list}, func(context.Context, struct{}) (*protocol.CallToolResult, error) { return shared, nil })
		server.AddTool(s, protocol.Tool{Name: "breaks", OutputSchema: list}, func(context.Context, struct{}) ([]string, error) { return []string{"no number"}, nil })
		server.AddTool(s, protocol.Tool{Name: "wrapped"}, func(context.Context, struct{}) ([]int, error) { return []int{1, 2}, nil })
		return s
	}
	everywhere(t, make, client.Options{}, func(t *testing.T, s *server.Server, session *client.Session) {
		newest := session.Server().ProtocolVersion == protocol.Latest
		for tool, err := range session.Tools(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if promised := len(tool.OutputSchema) > 0; promised != (newest || tool.Name == "wrapped") {
				t.Errorf("%s has the output schema %s", tool.Name, tool.OutputSchema)
			}
		}
		for _, name := range []string{"typed", "raw", "wrapped"} {
			if got, err := client.Call[[]int](t.Context(), session, name, nil); err != nil || !slices.Equal(got, []int{1, 2}) {
				t.Errorf("%s: got %v, %v, want %v", name, got, err, []int{1, 2})
			}
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if err != nil || (len(result.StructuredContent) > 0) != (newest || name == "wrapped") {
				t.Errorf("%s: got %s, %v", name, result.StructuredContent, err)
			}
		}
		if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "breaks"}); err == nil {
			t.Errorf("got %+v, want an error", result)
		}
		// What a client of another revision got before has changed nothing.
		if got := dial(t, s).ask(modern(`1`, "tools/list", ``)).text("tools"); strings.Count(got, `"outputSchema"`) != 4 {
			t.Errorf("got %s, want every output schema", got)
		}
	})
}
