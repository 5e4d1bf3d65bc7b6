package typed

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// These types encode themselves, each in one way only.
type (
	writesJSON  int
	readsJSON   int
	writesTo    int
	readsFrom   int
	writesText  int
	appendsText int
	readsText   int
	ownByte     byte
	color       int
)

func (writesJSON) MarshalJSON() ([]byte, error)              { return nil, nil }
func (*readsJSON) UnmarshalJSON([]byte) error                { return nil }
func (writesTo) MarshalJSONTo(*jsontext.Encoder) error       { return nil }
func (*readsFrom) UnmarshalJSONFrom(*jsontext.Decoder) error { return nil }
func (writesText) MarshalText() ([]byte, error)              { return nil, nil }
func (appendsText) AppendText([]byte) ([]byte, error)        { return nil, nil }
func (*readsText) UnmarshalText([]byte) error                { return nil }
func (ownByte) MarshalText() ([]byte, error)                 { return nil, nil }
func (color) EnumValues() []string                           { return []string{"red", "blue"} }
func (color) MarshalJSON() ([]byte, error)                   { return nil, nil }

var (
	_ stdjson.Marshaler        = writesJSON(0)
	_ stdjson.Unmarshaler      = (*readsJSON)(nil)
	_ json.MarshalerTo         = writesTo(0)
	_ json.UnmarshalerFrom     = (*readsFrom)(nil)
	_ encoding.TextAppender    = appendsText(0)
	_ encoding.TextUnmarshaler = (*readsText)(nil)
)

type base struct {
	Shared int `json:"shared" header:"Shared" minimum:"1" maximum:"7"`
}

type inner struct {
	N    int    `json:"n" default:"2"`
	Note string `json:"note,omitempty" title:"Note" format:"email"`
}

type outer struct {
	base
	Text   string           `json:"text" minLength:"1" maxLength:"9" pattern:"^a" jsonschema:"what = is said"`
	Hidden string           `json:"-"`
	Many   []string         `json:"many" enum:"x,y"`
	Zero   int              `json:"zero,omitzero" enum:"0,5"`
	ByName map[string]inner `json:"byName"`
	Lists  [][]inner        `json:"lists"`
	Fixed  [2]bool          `json:"fixed"`
	Maybe  *[]int           `json:"maybe"`
	Twice  *inner           `json:"twice"`
	Any    any              `json:"any"`
	Bytes  []byte           `json:"bytes"`
	Own    []ownByte        `json:"own"`
	Color  color            `json:"color"`
	Time   time.Time        `json:"time"`
	Level  slog.Level       `json:"level" default:"warn"`
	Big    big.Int          `json:"big"`
	J1     writesJSON
	J2     readsJSON
	J3     writesTo
	J4     readsFrom
	T1     writesText
	T2     appendsText
	T3     readsText
}

// The schema of a type has all that its fields and their tags say, and nothing else. What arguments must fit is the same, but that null is any list.
func TestTheWholeSchemaOfAType(t *testing.T) {
	const (
		anyValue   = `{"type":["null","boolean","object","array","number","string"]}`
		text       = `{"type":"string"}`
		innerRest  = `"properties":{"n":{"type":"integer","default":2},"note":{"type":"string","title":"Note","format":"email"}},"additionalProperties":false}`
		listOf     = `{"type":"array","items":`
		listOrNull = `{"type":["null","array"],"items":`
	)
	want := map[string]string{
		"shared": `{"type":"integer","minimum":1,"maximum":7,"x-mcp-header":"Shared"}`,
		"text":   `{"type":"string","description":"what = is said","minLength":1,"maxLength":9,"pattern":"^a"}`,
		"many":   listOf + `{"type":"string","enum":["x","y"]}}`,
		"zero":   `{"type":"integer","enum":[0,5]}`,
		"byName": `{"type":"object","additionalProperties":{"type":"object",` + innerRest + `}`,
		"lists":  listOf + listOf + `{"type":"object",` + innerRest + `}}`,
		"fixed":  `{"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":2}`,
		"maybe":  listOrNull + `{"type":"integer"}}`,
		"twice":  `{"type":["null","object"],` + innerRest,
		"any":    anyValue,
		"bytes":  `{"type":"string","contentEncoding":"base64"}`,
		"own":    listOf + text + `}`,
		"color":  `{"type":"string","enum":["red","blue"]}`,
		"time":   `{"type":"string","format":"date-time"}`,
		"level":  `{"type":"string","default":"warn"}`,
		"big":    `{"type":"integer"}`,
		"J1":     anyValue, "J2": anyValue, "J3": anyValue, "J4": anyValue, "T1": text, "T2": text, "T3": text,
	}
	required := []string{"shared", "text", "many", "byName", "lists", "fixed", "any", "bytes", "own", "color", "time", "big", "J1", "J2", "J3", "J4", "T1", "T2", "T3"}
	check := func(what string, raw stdjson.RawMessage) {
		t.Helper()
		var got struct {
			Type                 string
			Properties           map[string]stdjson.RawMessage
			Required             []string
			AdditionalProperties stdjson.RawMessage
		}
		if err := stdjson.Unmarshal(raw, &got); err != nil || got.Type != "object" || string(got.AdditionalProperties) != "false" {
			t.Errorf("%s: got %s, %v, want an object that takes nothing else", what, raw, err)
		}
		texts := make(map[string]string)
		for name, property := range got.Properties {
			texts[name] = string(property)
		}
		if diff := cmp.Diff(want, texts) + cmp.Diff(required, got.Required); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	s := Infer(reflect.TypeFor[**outer]())
	check("what clients see", s.MustMarshal())
	accepted := s.Accepted()
	check("what clients see after that", s.MustMarshal())
	want["many"] = listOrNull + `{"type":"string","enum":["x","y"]}}`
	want["lists"] = listOrNull + listOrNull + `{"type":"object",` + innerRest + `}}`
	want["own"] = listOrNull + text + `}`
	check("what arguments must fit", accepted)
	byName := Infer(reflect.TypeFor[map[string][]int]())
	if got := string(byName.Accepted()); got != `{"type":"object","additionalProperties":`+listOrNull+`{"type":"integer"}}}` {
		t.Errorf("a map of lists: got %s", got)
	}
	if !byName.TakesAny() || s.TakesAny() || Infer(reflect.TypeFor[[]int]()).IsObject() {
		t.Error("the map takes no other names, the struct does, or a list is an object")
	}
}

type tree struct{ Children []tree }

type leaves []leaves

type names map[string]names

// Of a recursive type whose schema the program has set only the kind is inferred. Any other mistake in a type is named, schema or not.
func TestTypesThatHaveNoSchema(t *testing.T) {
	set := stdjson.RawMessage(`{"type":"object"}`)
	for of, want := range map[reflect.Type]string{
		reflect.TypeFor[**tree](): `{"type":"object"}`, reflect.TypeFor[*leaves](): `{"type":"array"}`, reflect.TypeFor[names](): `{"type":"object","additionalProperties":true}`,
	} {
		if got := string(InferUnless(set, of).MustMarshal()); got != want {
			t.Errorf("%v: got %s, want %s", of, got, want)
		}
	}
	with := func(of reflect.Type, tag reflect.StructTag) reflect.Type {
		return reflect.StructOf([]reflect.StructField{{Name: "A", Type: of, Tag: tag}})
	}
	texts := reflect.TypeFor[string]()
	for name, test := range map[string]struct {
		set  stdjson.RawMessage
		of   reflect.Type
		want string
	}{
		"recursive":        {nil, reflect.TypeFor[tree](), "schema of typed.tree: typed.tree: it contains itself: set the schema"},
		"a list":           {nil, reflect.TypeFor[[]int](), "schema of []int: it is not an object in JSON"},
		"a recursive list": {set, reflect.TypeFor[leaves](), "schema of typed.leaves: it is not an object in JSON"},
		"an interface":     {set, reflect.TypeFor[*error](), "schema of *error: an interface may be anything: name a concrete type"},
		"an option":        {nil, with(number, `json:"a,omitempty,string"`), `field "a" has option "string"`},
		"a dead tag":       {nil, with(number, `uniqueItems:""`), "field A: the tag uniqueItems is not read"},
		"a setting":        {nil, with(number, `jsonschema:"minimum=1"`), `field A: the tag jsonschema is a description, and begins with "minimum="`},
		"a limit":          {nil, with(reflect.TypeFor[*bool](), `json:"a" pattern:"x"`), `field "a": tag pattern: it has no effect on a field of type null or boolean`},
		"a bound":          {nil, with(number, `json:"a" maximum:"x"`), `field "a": tag maximum: `},
		"a value":          {nil, with(reflect.TypeFor[*int](), `json:"a" enum:"x"`), `field "a": tag enum: `},
		"within a map":     {nil, reflect.MapOf(texts, with(number, `json:"a" default:"x"`)), `field "a": tag default: `},
		"beyond a limit":   {nil, with(number, `json:"a" maximum:"1" default:"2"`), `field "a": tag default: `},
		"a bad format":     {nil, with(texts, `json:"a" format:"email" default:"x"`), `field "a": tag default: `},
		"a bad text":       {nil, with(reflect.TypeFor[slog.Level](), `json:"a" default:"loud"`), `field "a": tag default: `},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, test.want) {
					t.Errorf("%s: got %s, want %q in it", name, got, test.want)
				}
			}()
			InferObject(test.of, test.set)
		}()
	}
	// A limit on what may be anything is no mistake, nor is one on what may be null.
	for _, of := range []reflect.Type{with(reflect.TypeFor[writesJSON](), `maximum:"1"`), with(reflect.TypeFor[*string](), `maxLength:"1"`)} {
		Infer(of)
	}
}

type blob []byte

func (blob) MarshalJSON() ([]byte, error) { return nil, nil }

// A result of bytes has no text of its own, unless they encode themselves. What is no object is wrapped for clients that know only objects.
func TestBytesAndWrappedSchemas(t *testing.T) {
	if !Infer(reflect.TypeFor[*[]byte]()).Binary || Infer(reflect.TypeFor[blob]()).Binary {
		t.Error("bytes are a text, or what encodes itself is not")
	}
	got := string(Infer(number).Wrap("result").MustMarshal())
	if want := `{"type":"object","properties":{"result":{"type":"integer"}},"required":["result"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

var number = reflect.TypeFor[int]()

type pointerWrites int

func (*pointerWrites) MarshalJSON() ([]byte, error) { return []byte(`"by its pointer"`), nil }

// Values are written for a model, and their lists and maps are never null.
func TestHowValuesAreWritten(t *testing.T) {
	for want, value := range map[string]any{
		`"<a> & b"`:  "<a> & b",
		"\"\u2028\"": "\u2028",
		`{"M":{},"S":[]}`: struct {
			M map[string]int
			S []int
		}{},
		`{"a":"by its pointer"}`: map[string]pointerWrites{"a": 1},
	} {
		if got, err := Encode(value); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	type taken struct {
		N     int    `json:"n"`
		Fixed [2]int `json:"fixed"`
		Other string `json:"other"`
	}
	for text, want := range map[string]taken{
		`{"n":1e2,"other":"x"}`: {N: 100, Other: "x"}, `{"other":"x","n":-9007199254740991.0}`: {N: -9007199254740991, Other: "x"},
		"{\"n\":3.0,\"other\":\"\xff\"}": {N: 3, Other: "\ufffd"}, `{"n":2.0,"fixed":[1.0,2]}`: {N: 2, Fixed: [2]int{1, 2}},
	} {
		if got, err := Decode[taken](stdjson.RawMessage(text)); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"n":1,"n":2}`: `duplicate object member name "n"`, `{"fixed":[1]}`: `an array at "/fixed" does not fit`, `{"N":1.5,"n":1.5}`: `a number at "/n" does not fit`,
		`{"n":9007199254740992.0}`: `a number at "/n" does not fit`, `{"n":-9007199254740992.0}`: `a number at "/n" does not fit`, `{"other":1}`: `a number at "/other" does not fit`, `{"n":1.0,"other":1}`: `a number at "/other" does not fit`,
	} {
		if got, err := Decode[taken](stdjson.RawMessage(text)); err == nil || !strings.Contains(refusal.Explain(err), want) {
			t.Errorf("%s: got %+v, %v, want %q in it", text, got, err, want)
		}
	}
}

// Texts of a prompt or a template are what their field wants: a text stays one, also if it looks like a number. They are checked as arguments are.
func TestTextsAsValues(t *testing.T) {
	type taken struct {
		N    int    `json:"n" default:"7" maximum:"9"`
		Text string `json:"text,omitempty"`
		List []int  `json:"list,omitempty"`
	}
	decode := TextDecoder[taken](Infer(reflect.TypeFor[taken]()))
	for _, test := range []struct {
		texts map[string]string
		want  taken
		err   string
	}{
		{nil, taken{N: 7}, ""},
		{map[string]string{"n": "1e0", "text": "007", "list": "[1]"}, taken{N: 1, Text: "007", List: []int{1}}, ""},
		{map[string]string{"list": "null"}, taken{N: 7}, ""},
		{map[string]string{"n": "10"}, taken{}, "/n is more than 9"},
		{map[string]string{"n": strings.Repeat("x", 1000)}, taken{}, `n: "xxx`},
		{map[string]string{"other": "x"}, taken{}, "other"},
	} {
		got, err := decode(t.Context(), test.texts)
		if diff := cmp.Diff(test.want, got); test.err == "" && (err != nil || diff != "") || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || len(err.Error()) > 500) {
			t.Errorf("%.50v: got %+v, %v, want %+v, %q", test.texts, got, err, test.want, test.err)
		}
	}
	numbers, err := TextDecoder[map[string]int](Infer(reflect.TypeFor[map[string]int]()))(t.Context(), map[string]string{"a": "5"})
	values, also := TextDecoder[map[string]any](Infer(reflect.TypeFor[map[string]any]()))(t.Context(), map[string]string{"a": "007"})
	if err != nil || also != nil || numbers["a"] != 5 || values["a"] != "007" {
		t.Errorf("got %v, %v and %v, %v, want a number and a text", numbers, err, values, also)
	}
	defer func() {
		if got, want := fmt.Sprint(recover()), `schema: its type is not "object"`; got != want {
			t.Errorf("a schema of another type: got %s, want %s", got, want)
		}
	}()
	MustCompile(stdjson.RawMessage(`{"type":"string"}`))
}

// Defaults are filled into the text of an object, which stays as it was otherwise.
func TestDefaultsInAText(t *testing.T) {
	declared := DeclaredDefaults(stdjson.RawMessage(`{"properties":{"a":{"default":1},"b":{"properties":{"c":{"properties":{"d":{"default":2},"e":{}}}}},
		"bad":{"default":3,"properties":7},"\"q\"":{"default":"x"},"z":{"default":{"y":9},"properties":{"w":{"default":4}}}}}`), true)
	flat := DeclaredDefaults(stdjson.RawMessage(`{"properties":{"a":{"default":1},"b":{"properties":{"c":{"default":2}}},"bad":7,"c":{"default":5}}}`), false)
	for _, test := range []struct {
		of          Defaults
		given, want string
	}{
		{declared, ` {} `, `{"\"q\"":"x","a":1,"b":{"c":{"d":2}},"bad":3,"z":{"y":9,"w":4}}`},
		{declared, `{"a":null,"b":{"c":{}},"bad":1.0,"\"q\"":"","z":{"w":1}}`, `{"a":null,"b":{"c":{"d":2}},"bad":1.0,"\"q\"":"","z":{"w":1}}`},
		{declared, `{"a":12345678901234567890,"b":{},"bad":1,"\"q\"":"","z":{}}`, `{"a":12345678901234567890,"b":{"c":{"d":2}},"bad":1,"\"q\"":"","z":{"w":4}}`},
		{flat, `{ }`, `{ "a":1,"c":5}`},
		{flat, `{"a":2,"x":[ 1 ]}`, `{"a":2,"x":[ 1 ],"c":5}`},
		{flat, ` [] `, `[]`},
		{nil, ` {} `, `{}`},
		{DeclaredDefaults(stdjson.RawMessage(`true`), true), `{}`, `{}`},
	} {
		given := []byte(test.given)
		got, diff := string(test.of.FillIn(given)), ""
		var a, b any
		if stdjson.Unmarshal([]byte(got), &a) == nil && stdjson.Unmarshal([]byte(test.want), &b) == nil {
			diff = cmp.Diff(b, a)
		}
		if len(got) != len(test.want) || diff != "" || string(given) != test.given {
			t.Errorf("%s: got %s, want %s (%s)", given, got, test.want, diff)
		}
	}
}
