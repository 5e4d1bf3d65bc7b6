package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

var fuzzFrames = []string{
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,{"b":"\u00e9\n"}]}}`,
	`{"jsonrpc":"2.0","id":18446744073709551615,"method":"","params":[]}`,
	`{"jsonrpc":"2.0","method":"m"}`,
	` {"jsonrpc" : "2.0" , "id":"a\u0062" , "result" : null } `,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\ud800","data":{}}}`,
	`{"jsonrpc":"2.0","error":{"code":1,"message":""}}`,
	`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
	`{"jsonrpc":"2.0","id":1.0,"method":"m"}`,
	`{"jsonrpc":"2.0","id":1,"Method":"m","method":null}`,
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
	`{"jsonrpc":"2.0","id":1,"result":[[[[[[[[]]]]]]]]}`,
	`{"jsonrpc":"2.0","id":1,"result":{}}]`,
	`[{"jsonrpc":"2.0","method":"m"},1,{"jsonrpc":"2.0","id":2,"result":[]}]`,
	`[]`, `[1,2`, `{"\u006aso`, ``, "\ufeff{}", `{"a":1e400,"":-0}`,
	strings.Repeat(`{"params":[`, 300),
}

// checkText compares whether a frame is accepted with encoding/json, as far as the
// two grammars agree: Decode also requires UTF-8 and a bounded depth.
func checkText(t *testing.T, frame []byte, err error) {
	t.Helper()
	valid := json.Valid(frame) && utf8.Valid(frame)
	var refusal *jsonrpc.DecodeError
	switch {
	case err == nil:
		if !valid {
			t.Fatalf("accepted: %q", frame)
		}
	case !errors.As(err, &refusal):
		t.Fatalf("%T is no DecodeError", err)
	case refusal.Code == jsonrpc.CodeParseError:
		if valid {
			t.Fatalf("reported as invalid JSON: %q: %v", frame, err)
		}
	case !valid && !errors.Is(err, jsonrpc.ErrTooDeep):
		t.Fatalf("reported as valid JSON: %q: %v", frame, err)
	}
}

// checkMessage compares a message with what encoding/json decodes from the frame, and
// with what Decode gives for a frame encoded from the message.
func checkMessage(t *testing.T, frame []byte, m jsonrpc.Message) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(frame, &members); err != nil {
		t.Fatal(err)
	}
	var method string
	if raw, ok := members["method"]; ok {
		if err := json.Unmarshal(raw, &method); err != nil {
			t.Fatal(err)
		}
	}
	if method != m.Method {
		t.Fatalf("method %q, want %q", m.Method, method)
	}
	if string(members["params"]) == "null" {
		delete(members, "params")
	}
	isCall := m.Kind == jsonrpc.KindRequest || m.Kind == jsonrpc.KindNotification
	if isCall && !bytes.Equal(members["params"], m.Params) || !bytes.Equal(members["result"], m.Result) {
		t.Fatalf("%s was decoded as %+v", frame, m)
	}
	again, err := jsonrpc.Decode(appendMessage(nil, m), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	sameBreaks := cmp.Transformer("breaks", func(raw json.RawMessage) string {
		return strings.NewReplacer("\n", " ", "\r", " ").Replace(string(raw))
	})
	if diff := cmp.Diff(m, again, sameID, sameBreaks); diff != "" {
		t.Fatal(diff)
	}
}

// Guarantees: G-0016.1, G-0016.3, G-0016.6
func FuzzDecode(f *testing.F) {
	for _, frame := range fuzzFrames {
		f.Add([]byte(frame), 0)
		f.Add([]byte(frame), 5)
	}
	f.Fuzz(func(t *testing.T, frame []byte, maxDepth int) {
		before := bytes.Clone(frame)
		m, err := jsonrpc.Decode(frame, jsonrpc.Limits{MaxDepth: maxDepth})
		if !bytes.Equal(before, frame) {
			t.Fatal("the frame was modified")
		}
		checkText(t, frame, err)
		if err == nil {
			checkMessage(t, frame, m)
		}
	})
}

// Guarantees: G-0016.3, G-0016.6, G-0017.8
func FuzzDecodeBatch(f *testing.F) {
	for _, frame := range fuzzFrames {
		f.Add([]byte(frame), 0)
		f.Add([]byte("["+frame+","+frame+"]"), 3)
	}
	f.Fuzz(func(t *testing.T, frame []byte, maxBatch int) {
		items, err := jsonrpc.DecodeBatch(frame, jsonrpc.Limits{MaxBatch: maxBatch})
		if maxBatch <= 0 || len(frame) <= maxBatch { // too short to have too many elements
			checkText(t, frame, err)
		}
		if err != nil || !jsonrpc.IsBatch(frame) {
			return
		}
		var elements []json.RawMessage
		if err := json.Unmarshal(frame, &elements); err != nil {
			t.Fatal(err)
		}
		if len(items) != len(elements) {
			t.Fatalf("%d items, want %d", len(items), len(elements))
		}
		for i, item := range items {
			m, err := jsonrpc.Decode(elements[i], jsonrpc.Limits{})
			if (err == nil) != (item.Err == nil) || !cmp.Equal(m, item.Message, sameID) || m.Memory != item.Message.Memory {
				t.Fatalf("%q: alone %+v, %v; in the batch %+v, %v", elements[i], m, err, item.Message, item.Err)
			}
		}
	})
}

// Guarantees: G-0016.6, G-0017.2, G-0017.3, G-0017.13
func FuzzParseID(f *testing.F) {
	for _, literal := range []string{`1`, `10e-1`, `1e63`, `-0.0e99`, `1.5`, `123.4500e2`, `-0`, `1.0`, `1e3`, `9223372036854775808`, `"a"`, `"\u0061\ud83d\ude00"`, `"\ud800"`, `null`, ` 7 `, "\"\xff\"", `01`} {
		f.Add([]byte(literal))
	}
	f.Fuzz(func(t *testing.T, literal []byte) {
		id, err := jsonrpc.ParseID(literal)
		if !json.Valid(literal) {
			if err == nil {
				t.Fatalf("accepted: %q", literal)
			}
			return
		}
		if err != nil {
			if integer := idNumber(literal); integer != nil && len(integer.String()) <= 64 {
				t.Fatalf("refused: %q, the integer %v", literal, integer)
			}
			return
		}
		written := id.Append(nil)
		if again, err := jsonrpc.ParseID(written); err != nil || again != id {
			t.Fatalf("%q is written as %q and read as %v, %v", literal, written, again, err)
		}
		if want, got := idValue(t, literal), idValue(t, written); want != got {
			t.Fatalf("%q is %v, written as %v", literal, want, got)
		}
	})
}

// idValue returns what encoding/json decodes: a string, or the exact integer in digits.
func idValue(t *testing.T, literal []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(literal))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	number, ok := value.(json.Number)
	if !ok {
		return value
	}
	integer := idNumber([]byte(number))
	if integer == nil {
		t.Fatalf("%s is no integer", number)
	}
	return json.Number(integer.String())
}

// idNumber returns the integer that a literal of at most 64 bytes equals, or nil.
func idNumber(literal []byte) *big.Int {
	text := string(bytes.TrimSpace(literal))
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	switch {
	case !strings.ContainsAny(mantissa, "123456789"):
		text = mantissa
	case len(text) > 64 || len(strings.TrimLeft(exponent, "+-0")) > 4: // math/big would write out all of it
		return nil
	}
	number, ok := new(big.Rat).SetString(text)
	if !ok || !number.IsInt() {
		return nil
	}
	return number.Num()
}
