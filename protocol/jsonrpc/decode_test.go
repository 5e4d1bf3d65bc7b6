package jsonrpc_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// sameID makes cmp compare ids. What the text takes in memory is not compared.
var sameID = cmp.Options{
	cmp.Comparer(func(a, b jsonrpc.ID) bool { return a == b }),
	cmpopts.IgnoreFields(jsonrpc.Message{}, "Memory"),
}

func decode(frame string) (jsonrpc.Message, error) {
	return jsonrpc.Decode([]byte(frame), jsonrpc.Limits{})
}

// refused decodes a frame that must be refused with a code.
func refused(t *testing.T, frame string, code int64) *jsonrpc.DecodeError {
	t.Helper()
	m, err := decode(frame)
	var refusal *jsonrpc.DecodeError
	if !errors.As(err, &refusal) {
		t.Fatalf("%.200q is accepted as %+v", frame, m)
	}
	if refusal.Code != code {
		t.Errorf("%.200q is refused with %d, want %d: %v", frame, refusal.Code, code, err)
	}
	if !cmp.Equal(m, jsonrpc.Message{}, sameID) {
		t.Errorf("%.200q is refused, but gives %+v", frame, m)
	}
	return refusal
}

// Guarantees: G-0017.1, G-0017.4, G-0017.5, G-0017.6, G-0017.11
func TestDecode(t *testing.T) {
	id := jsonrpc.IntegerID(1)
	request := func(params string) jsonrpc.Message {
		m := jsonrpc.Message{Kind: jsonrpc.KindRequest, ID: id, Method: "m"}
		if params != "" {
			m.Params = []byte(params)
		}
		return m
	}
	failure := func(id jsonrpc.ID, data string) jsonrpc.Message {
		e := &jsonrpc.Error{Code: -5, Message: "no"}
		if data != "" {
			e.Data = []byte(data)
		}
		return jsonrpc.Message{Kind: jsonrpc.KindError, ID: id, Error: e}
	}
	result := func(value string) jsonrpc.Message {
		return jsonrpc.Message{Kind: jsonrpc.KindResult, ID: id, Result: []byte(value)}
	}
	for _, test := range []struct {
		name, frame string
		want        jsonrpc.Message
	}{
		{"request", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`, request(`{"a":1}`)},
		{"positional params", `{"jsonrpc":"2.0","id":1,"method":"m","params":[1, 2]}`, request(`[1, 2]`)},
		{"absent params", `{"jsonrpc":"2.0","id":1,"method":"m"}`, request("")},
		{"null params", `{"jsonrpc":"2.0","id":1,"method":"m","params": null }`, request("")},
		{"null params of a notification", `{"jsonrpc":"2.0","method":"m","params":null}`, jsonrpc.Message{Kind: jsonrpc.KindNotification, Method: "m"}},
		{"ids as floating point", `{"jsonrpc":"2.0","id":1.0,"result":{}}`, result(`{}`)},
		{"codes as floating point", `{"jsonrpc":"2.0","id":10e-1,"error":{"code":-5.0,"message":"no"}}`, failure(id, "")},
		{"any order and white space", "\r\n\t {\"params\" \r\n\t :\r\n\t { } \r\n\t ,\r\n\t \"method\":\"m\" , \"id\" : 1, \"jsonrpc\":\"2.0\"} \n", request(`{ }`)},
		{"escaped names and values", `{"\u006asonrpc":"2\u002e0","i\u0064":1,"method":"\u006d"}`, request("")},
		{"names of another case", `{"jsonrpc":"2.0","id":1,"method":"m","Method":"x","ID":2,"PARAMS":[1],"JSONRPC":"1.0"}`, request("")},
		{"unknown members", `{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":{"x":[]},"":null}`, request("")},
		{"repeated names inside params", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":2}}`, request(`{"a":1,"a":2}`)},
		{"lone surrogate in params", `{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800"]}`, request(`["\ud800"]`)},
		{"brackets in a string", `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat(`[{\"`, 600) + `"]}`, request(`["` + strings.Repeat(`[{\"`, 600) + `"]`)},
		{"notification", `{"jsonrpc":"2.0","method":"m"}`, jsonrpc.Message{Kind: jsonrpc.KindNotification, Method: "m"}},
		{"empty method", `{"jsonrpc":"2.0","method":""}`, jsonrpc.Message{Kind: jsonrpc.KindNotification}},
		{"result", `{"jsonrpc":"2.0","id":1,"result":{}}`, result(`{}`)},
		{"null result", `{"jsonrpc":"2.0","id":1,"result":null}`, result(`null`)},
		{"exact number as result", `{"jsonrpc":"2.0","id":1,"result":1.000000000000000000000000001E+400}`, result(`1.000000000000000000000000001E+400`)},
		{"params of a response", `{"jsonrpc":"2.0","id":1,"result":0,"params":{}}`, result(`0`)},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no"}}`, failure(id, "")},
		{"error with data", `{"jsonrpc":"2.0","id":1,"error":{"message":"no","data":{"a": 1},"code":-5,"Code":1}}`, failure(id, `{"a": 1}`)},
		{"error with null data", `{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no","data":null}}`, failure(id, `null`)},
		{"error with null id", `{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"no"}}`, failure(jsonrpc.ID{}, "")},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":-5,"message":"no"}}`, failure(jsonrpc.ID{}, "")},
		{"error message cut in a surrogate pair", `{"jsonrpc":"2.0","id":1,"error":{"code":-9223372036854775808,"message":"\ud83d"}}`,
			jsonrpc.Message{Kind: jsonrpc.KindError, ID: id, Error: &jsonrpc.Error{Code: -1 << 63, Message: "�"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decode(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, sameID); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Guarantees: G-0016.1
// A method that needs no memory is decoded like any other, escaped or not.
func TestFrequentMethods(t *testing.T) {
	for _, method := range []string{
		protocol.MethodCallTool, protocol.MethodReadResource, protocol.MethodGetPrompt, protocol.MethodComplete, protocol.MethodPing,
		protocol.MethodInitialize, protocol.MethodDiscover, protocol.NotificationInitialized, protocol.NotificationProgress,
		protocol.NotificationMessage, protocol.NotificationCancelled, protocol.NotificationResourcesUpdated,
	} {
		for _, text := range []string{`"` + method + `"`, `"\u00` + hex.EncodeToString([]byte(method[:1])) + method[1:] + `"`} {
			if m, err := decode(`{"jsonrpc":"2.0","method":` + text + `}`); err != nil || m.Method != method {
				t.Errorf("%s is the method %q, want %q (%v)", text, m.Method, method, err)
			}
		}
	}
}

// A byte order mark is refused, with the id and the kind of what it marks.
//
// Guarantees: G-0017.10
func TestDecodeRefusesAByteOrderMark(t *testing.T) {
	for frame, want := range map[string]jsonrpc.Kind{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`:   jsonrpc.KindRequest,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:    jsonrpc.KindResult,
		`{"jsonrpc":"2.0","id":1,"error":"oops"}`: jsonrpc.KindError,
	} {
		if refusal := refused(t, "\ufeff"+frame, jsonrpc.CodeParseError); refusal.ID != jsonrpc.IntegerID(1) || refusal.Kind != want {
			t.Errorf("a mark and %s: id %v, kind %v, want 1, %v", frame, refusal.ID, refusal.Kind, want)
		}
	}
	if refusal := refused(t, "\ufeff"+`{"jsonrpc":"2.0","method":"m"}`, jsonrpc.CodeParseError); refusal.Kind != jsonrpc.KindNotification || refusal.IsResponse() {
		t.Errorf("a mark and a notification: kind %v, is a response: %t, want a notification", refusal.Kind, refusal.IsResponse())
	}
}

// A message with several ids is refused with the first four that are valid and differ, also behind a byte order mark.
//
// Guarantees: G-0017.10
func TestRefusalNamesSeveralIDs(t *testing.T) {
	for _, mark := range []string{"", "\ufeff"} {
		_, err := decode(mark + `{"jsonrpc":"2.0","id":1,"id":"2","id":3,"id":4,"id":5,"result":{}}`)
		var refusal *jsonrpc.DecodeError
		want := []jsonrpc.ID{jsonrpc.IntegerID(1), jsonrpc.StringID("2"), jsonrpc.IntegerID(3), jsonrpc.IntegerID(4)}
		if !errors.As(err, &refusal) || !slices.Equal(refusal.IDs, want) || !refusal.ID.IsZero() || !refusal.IsResponse() {
			t.Errorf("%q: got %+v, want a response with %v", mark, refusal, want)
		}
	}
}

func TestDecodeRefusesWhatIsNotJSON(t *testing.T) {
	for _, frame := range []string{
		``, ` `, `{`, `}`, `nul`, `{"jsonrpc":"2.0","id":1,"method":"m"`, `{"jsonrpc":"2.0","id":1`,
		`{"jsonrpc":"2.0","id":1,"method":"m"} {}`, `{"jsonrpc":"2.0","id":1,"method":"m"}x`,
		`{"jsonrpc":"2.0","id":1,"method":"m"}]`, `{"jsonrpc":"2.0","id":1,"method":"m"}` + "\x00",
		"\ufeff", "\ufeff" + `{"jsonrpc":"2.0","id":1`, "\ufeff\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m",}`, `{"jsonrpc":"2.0" "id":1}`, `{jsonrpc:"2.0"}`, `{"a"}`, `{"a":}`, `{1:2}`, `{{}:1}`,
		`{"jsonrpc":"2.0","id":01,"method":"m"}`, `{"jsonrpc":"2.0","id":1,"method":"m","params":[NaN]}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":tru}}`, `{"jsonrpc":"2.0","id":1,"method":"m","x":[1,,2]}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":["\x"]}`, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\n\"}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[\"\t\"]}", `[`, `[1,2`, `1 2`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":[/* */]}`,
	} {
		if refusal := refused(t, frame, jsonrpc.CodeParseError); !refusal.ID.IsZero() || refusal.Kind != 0 {
			t.Errorf("%q is no JSON, but has id %v and kind %v", frame, refusal.ID, refusal.Kind)
		}
	}
}

// Guarantees: G-0016.1, G-0017.10
func TestDecodeRefusesInvalidUTF8Anywhere(t *testing.T) {
	for _, bad := range []string{"\xff", "\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe6\xbc"} {
		for _, frame := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"BAD"}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":["BAD"]}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{"BAD":1}}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","BAD":1}`,
			`{"jsonrpc":"2.0","id":1,"method":"m","x":"BAD"}`,
		} {
			refusal := refused(t, strings.ReplaceAll(frame, "BAD", bad), jsonrpc.CodeParseError)
			if refusal.ID != jsonrpc.IntegerID(1) || refusal.Kind != jsonrpc.KindRequest {
				t.Errorf("%q: id %v, kind %v, want those of the request", frame, refusal.ID, refusal.Kind)
			}
		}
		if refusal := refused(t, `{"jsonrpc":"2.0","id":"`+bad+`","result":1}`, jsonrpc.CodeParseError); !refusal.ID.IsZero() {
			t.Errorf("id %q is reported as %v", bad, refusal.ID)
		}
		refused(t, `["`+bad+`"]`, jsonrpc.CodeParseError)
	}
}

// Guarantees: G-0017.1, G-0017.3, G-0017.5, G-0017.6, G-0017.7, G-0017.10, G-0017.12
func TestDecodeRefusesWhatIsNoMessage(t *testing.T) {
	none, one := jsonrpc.ID{}, jsonrpc.IntegerID(1)
	const unknown = jsonrpc.Kind(0)
	for _, test := range []struct {
		frame string
		id    jsonrpc.ID
		kind  jsonrpc.Kind
	}{
		{`null`, none, unknown}, {`1`, none, unknown}, {`"a"`, none, unknown}, {`true`, none, unknown},
		{`[]`, none, unknown}, {`[{"jsonrpc":"2.0","method":"m"}]`, none, unknown},
		{`{}`, none, unknown}, {`{"jsonrpc":"2.0"}`, none, unknown}, {`{"jsonrpc":"2.0","id":1}`, one, unknown},
		{`{"jsonrpc":"2.0","params":{}}`, none, unknown},

		{`{"id":1,"method":"m"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"1.0","id":1,"method":"m"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":2.0,"id":1,"method":"m"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":[2.0],"id":1,"method":"m"}`, one, jsonrpc.KindRequest}, // only the quotation marks are wrong
		{`{"jsonrpc":"2","id":1,"method":"m"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":null,"method":"m"}`, none, jsonrpc.KindNotification},
		{`{"Jsonrpc":"2.0","id":1,"result":1}`, one, jsonrpc.KindResult},

		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1.5,"method":"m"}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":true,"method":"m"}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":[1],"method":"m"}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":"\ud800","method":"m"}`, none, jsonrpc.KindRequest},

		{`{"jsonrpc":"2.0","id":1,"method":1}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"Method":"m"}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"method":"\udc00"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":"p"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","method":"m","params":1}`, none, jsonrpc.KindNotification},

		{`{"jsonrpc":"2.0","id":1,"method":"m","result":1}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":""}}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"result":1,"error":null}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","result":1}`, none, jsonrpc.KindResult},
		{`{"jsonrpc":"2.0","id":null,"result":1}`, none, jsonrpc.KindResult},
		{`{"jsonrpc":"2.0","id":1.5,"error":{"code":1,"message":""}}`, none, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":null}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":"e"}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"Message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1.0,"error":{"code":1.5,"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1e0,"error":{"code":1e99,"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":9223372036854775808,"message":""}}`, one, jsonrpc.KindError},

		{`{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","id":1}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","id":null}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","\u0069d":2}`, none, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}`, one, unknown},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}`, one, jsonrpc.KindRequest},
		{`{"jsonrpc":"2.0","id":1,"result":1,"result":1}`, one, jsonrpc.KindResult},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"error":{"code":1,"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":1,"message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","message":""}}`, one, jsonrpc.KindError},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":1,"d\u0061ta":1}}`, one, jsonrpc.KindError},
	} {
		refusal := refused(t, test.frame, jsonrpc.CodeInvalidRequest)
		if refusal.ID != test.id || refusal.Kind != test.kind {
			t.Errorf("%s: id %v, kind %v, want %v, %v", test.frame, refusal.ID, refusal.Kind, test.id, test.kind)
		}
	}
}

// Guarantees: G-0017.10
func TestReplyDue(t *testing.T) {
	for kind, due := range map[jsonrpc.Kind]bool{
		0: true, jsonrpc.KindRequest: true,
		jsonrpc.KindNotification: false, jsonrpc.KindResult: false, jsonrpc.KindError: false,
	} {
		if refusal := (&jsonrpc.DecodeError{Kind: kind}); refusal.ReplyDue() != due {
			t.Errorf("reply due to an invalid %v: %v", kind, !due)
		}
	}
}

// nested returns a request with brackets nested to the given depth.
func nested(depth int, open, shut string) []byte {
	return []byte(`{"jsonrpc":"2.0","params":[` + strings.Repeat(open, depth-2) + `1` + strings.Repeat(shut, depth-2) + `],"id":1,"method":"m"}`)
}

// Guarantees: G-0016.2, G-0017.10
func TestDepthLimitIsExact(t *testing.T) {
	for limit, depth := range map[int]int{0: 512, -1: 512, 3: 3, 600: 600, 9_999: 9_999, 10_000: 9_999, 1 << 40: 9_999} {
		limits := jsonrpc.Limits{MaxDepth: limit}
		for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}, {`["[[\"",`, "]"}} {
			if _, err := jsonrpc.Decode(nested(depth, brackets[0], brackets[1]), limits); err != nil {
				t.Errorf("limit %d, depth %d of %s: %v", limit, depth, brackets[0], err)
			}
			_, err := jsonrpc.Decode(nested(depth+1, brackets[0], brackets[1]), limits)
			if !errors.Is(err, jsonrpc.ErrTooDeep) {
				t.Fatalf("limit %d, depth %d of %s: %v, want too deep", limit, depth+1, brackets[0], err)
			}
			if refusal := err.(*jsonrpc.DecodeError); refusal.Code != jsonrpc.CodeInvalidRequest ||
				depth < 9_999 && (refusal.ID != jsonrpc.IntegerID(1) || refusal.Kind != jsonrpc.KindRequest) {
				t.Errorf("limit %d: %+v, want the request's id", limit, refusal)
			}
		}
	}
	if _, err := decode(strings.Repeat("[", 1<<20)); !errors.Is(err, jsonrpc.ErrTooDeep) {
		t.Errorf("a million brackets: %v", err)
	}
	long := append(nested(4, "[", "]"), strings.Repeat(" ", 1000)...)
	if _, err := jsonrpc.Decode(long, jsonrpc.Limits{MaxDepth: 3, MaxValues: 100}); !errors.Is(err, jsonrpc.ErrTooDeep) {
		t.Errorf("a frame long enough for too many values: %v, want too deep", err)
	}
	wide := `{"jsonrpc":"2.0","id":1,"result":[` + strings.Repeat(`{},`, 5000) + `[]]}`
	if _, err := decode(wide); err != nil {
		t.Errorf("a wide frame: %v", err)
	}
}

// Guarantees: G-0016.4
func TestDecodeDoesNotCopy(t *testing.T) {
	for _, padding := range []string{"", strings.Repeat("[],", 600)} { // both ways through the reader
		frame := []byte(`{"jsonrpc":"2.0","id":1,"x":[` + padding + `1],"error":{"code":1,"message":"","data" : [ 1 ] } }`)
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		data := m.Error.Data
		if string(data) != "[ 1 ]" || cap(data) != len(data) {
			t.Errorf("data %q with capacity %d", data, cap(data))
		}
		if at := strings.Index(string(frame), "[ 1 ]"); unsafe.SliceData(data) != &frame[at] {
			t.Error("data was copied")
		}
		m, err = jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","\u0069d":1,"x":[`+padding+`1],"method":"m","params" : [ 1 ] }`), jsonrpc.Limits{})
		if err != nil || string(m.Params) != "[ 1 ]" || cap(m.Params) != len(m.Params) {
			t.Errorf("params %q with capacity %d, %v", m.Params, cap(m.Params), err)
		}
	}
}

// One garbage collection frees what is not referenced, but does not empty a sync.Pool.
//
// Guarantees: G-0016.4
func TestDecodeKeepsNoFrameAlive(t *testing.T) {
	var decoded []weak.Pointer[byte]
	for range 4 {
		frame := bytes.Clone(nested(10, "[", "]"))
		decoded = append(decoded, weak.Make(&frame[0]))
		if _, err := jsonrpc.Decode(frame, jsonrpc.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	for i, frame := range decoded {
		if frame.Value() != nil {
			t.Errorf("frame %d of %d is still in memory", i+1, len(decoded))
		}
	}
}

// The bounds are one above the usual number, because under the race detector a sync.Pool
// drops some values.
//
// Guarantees: G-0016.5
func TestDecodeAllocations(t *testing.T) {
	for frame, most := range map[string]float64{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`:     2,
		`{"jsonrpc":"2.0","id":"abc","method":"tools/call","params":{"name":"echo"}}`: 3,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`:                            1,
	} {
		raw := []byte(frame)
		got := testing.AllocsPerRun(1000, func() {
			if _, err := jsonrpc.Decode(raw, jsonrpc.Limits{}); err != nil {
				t.Fatal(err)
			}
		})
		if got > most {
			t.Errorf("%s costs %v allocations, want at most %v", frame, got, most)
		}
	}
}

// Guarantees: G-0016.6
func TestHostileFramesCostLittleMemory(t *testing.T) {
	for _, f := range benchmarkFrames() {
		if !strings.HasPrefix(f.name, "hostile") {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = jsonrpc.Decode(f.frame, jsonrpc.Limits{}) // some are valid, some not: the cost counts
		runtime.ReadMemStats(&after)
		if spent, most := after.TotalAlloc-before.TotalAlloc, uint64(2<<20+2*len(f.frame)); spent > most {
			t.Errorf("%s: %d bytes are decoded with %d bytes of memory, want at most %d", f.name, len(f.frame), spent, most)
		}
	}
}

// Guarantees: G-0016.8
func TestValueLimitIsExact(t *testing.T) {
	for frame, values := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`:                                   4,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":[1,2,{"a":[],"b":",[{"}]}`: 10,
		`{"params":[{},{},{},{}],"jsonrpc":"2.0","method":"m","id":1}`:            9,
		`{"jsonrpc":"2.0","id":1,"result":[[[null]],true,{}]}`:                    9,
	} {
		if _, err := jsonrpc.Decode([]byte(frame), jsonrpc.Limits{MaxValues: values}); err != nil {
			t.Errorf("%s: %v", frame, err)
		}
		var refused *jsonrpc.DecodeError
		_, err := jsonrpc.Decode([]byte(frame), jsonrpc.Limits{MaxValues: values - 1})
		if !errors.Is(err, jsonrpc.ErrTooManyValues) || !errors.As(err, &refused) || refused.ID != jsonrpc.IntegerID(1) || refused.Code != jsonrpc.CodeInvalidRequest {
			t.Errorf("%s with one value too many: %v", frame, err)
		}
		batch := []byte("[" + frame + "]")
		if _, err := jsonrpc.DecodeBatch(batch, jsonrpc.Limits{MaxValues: values + 1}); err != nil {
			t.Errorf("%s: %v", batch, err)
		}
		if _, err := jsonrpc.DecodeBatch(batch, jsonrpc.Limits{MaxValues: values}); !errors.Is(err, jsonrpc.ErrTooManyValues) {
			t.Errorf("%s with one value too many: %v", batch, err)
		}
	}
}

// Guarantees: G-0016.8
func TestDefaultValueLimit(t *testing.T) {
	frame := func(elements int) []byte {
		return []byte(`{"jsonrpc":"2.0","id":1,"result":[` + strings.Repeat(`0,`, elements-1) + `0]}`)
	}
	if _, err := jsonrpc.Decode(frame(1<<20-4), jsonrpc.Limits{}); err != nil {
		t.Error(err)
	}
	if _, err := jsonrpc.Decode(frame(1<<20-3), jsonrpc.Limits{}); !errors.Is(err, jsonrpc.ErrTooManyValues) {
		t.Error(err)
	}
}

// An invalid response is distinguished from an invalid request of the peer that has the same
// id.
//
// Guarantees: G-0017.10
func TestMalformedResponseNamesItsRequest(t *testing.T) {
	for frame, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`:                                             true,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`:                         true,
		`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}`:                       true,
		`{"jsonrpc":"2.0","id":1}`:                                                                      true,
		`{"jsonrpc":"2.0","id":1,"Result":{}}`:                                                          true,
		`{"jsonrpc":"2.0","id":1,"error":null}`:                                                         true,
		`{"jsonrpc":"2.0","id":1,"error":"no"}`:                                                         true,
		`{"jsonrpc":"2.0","id":1,"error":{}}`:                                                           true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"m"}}`:                                   true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1}}`:                                                   true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":1,"message":"m"}}`:                            true,
		`{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`:                                              true,
		`{"jsonrpc":"1.0","id":1,"result":{}}`:                                                          true,
		`{"id":1,"result":{}}`:                                                                          true,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}":                                            true,
		`{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`: true,
		`{"jsonrpc":"2.0","id":null,"result":{}}`:                                                       false,
		`{"jsonrpc":"2.0","id":1,"id":1,"result":{}}`:                                                   true,
		`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`:                                                   true,
		`{"jsonrpc":"2.0","id":1,"id":null,"result":{}}`:                                                true,
		`{"jsonrpc":"2.0","id":null,"id":{},"result":{}}`:                                               false,
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"result":{}}`:                                               true,
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"error":{}}`:                                                true,
		"\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"m"}`:                                              false,
		"\ufeff" + `{"jsonrpc":"2.0","id":1`:                                                            false,
		"\ufeff\ufeff" + `{"jsonrpc":"2.0","id":1,"result":{}}`:                                         false,
		`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`:                                             false,
		`{"jsonrpc":"2.0","id":1,"method":1}`:                                                           false,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":1}`:                                              false,
		`{"jsonrpc":"2.0","id":1,"result":{}`:                                                           false,
		`{"jsonrpc":"2.0","id":1,"result":{}}}`:                                                         false,
		`{"jsonrpc":"2.0","id":1,"result":{]}`:                                                          false,
		`[{"jsonrpc":"2.0","id":1,"result":{}}]`:                                                        false,
		`{"jsonrpc":"2.0","result":{}}`:                                                                 false,
		`{"jsonrpc":"2.0","id":` + strings.Repeat("1", 100) + `,"result":{}}`:                           false,
	} {
		_, err := jsonrpc.Decode([]byte(frame), jsonrpc.Limits{})
		var refused *jsonrpc.DecodeError
		if !errors.As(err, &refused) {
			t.Errorf("%.80s: %v", frame, err)
		} else if refused.IsResponse() != want {
			t.Errorf("%.80s: counts as a response: %v, want %v (%v)", frame, !want, want, err)
		}
	}
}
