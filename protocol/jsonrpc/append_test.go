package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// appendMessage appends any message.
func appendMessage(dst []byte, m jsonrpc.Message) []byte {
	switch m.Kind {
	case jsonrpc.KindRequest:
		return jsonrpc.AppendRequest(dst, m.ID, m.Method, m.Params)
	case jsonrpc.KindNotification:
		return jsonrpc.AppendNotification(dst, m.Method, m.Params)
	case jsonrpc.KindResult:
		return jsonrpc.AppendResult(dst, m.ID, m.Result)
	default:
		return jsonrpc.AppendError(dst, m.ID, m.Error)
	}
}

func TestAppend(t *testing.T) {
	id := jsonrpc.StringID("a")
	for _, test := range []struct{ got, want string }{
		{string(jsonrpc.AppendRequest([]byte("x\n"), id, "m", []byte(`{}`))), "x\n" + `{"jsonrpc":"2.0","id":"a","method":"m","params":{}}`},
		{string(jsonrpc.AppendRequest(nil, id, "m\n\xff", nil)), `{"jsonrpc":"2.0","id":"a","method":"m\n�"}`},
		{string(jsonrpc.AppendNotification(nil, "m", nil)), `{"jsonrpc":"2.0","method":"m"}`},
		{string(jsonrpc.AppendNotification(nil, "m", []byte("[1,\r\n\t2]"))), "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":[1,  \t2]}"},
		{string(jsonrpc.AppendResult(nil, id, []byte("\n1\n"))), `{"jsonrpc":"2.0","id":"a","result": 1 }`},
		{string(jsonrpc.AppendResult(nil, id, nil)), `{"jsonrpc":"2.0","id":"a","result":null}`},
		{string(jsonrpc.AppendResult(nil, id, []byte{})), `{"jsonrpc":"2.0","id":"a","result":null}`},
		{string(jsonrpc.AppendError(nil, id, &jsonrpc.Error{Code: -1, Message: `"`, Data: []byte{}})), `{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"\""}}`},
		{string(jsonrpc.AppendError(nil, jsonrpc.ID{}, &jsonrpc.Error{Data: []byte("\n[]")})), `{"jsonrpc":"2.0","error":{"code":0,"message":"","data": []}}`},
	} {
		if test.got != test.want {
			t.Errorf("got  %s\nwant %s", test.got, test.want)
		}
	}
}

func TestAppendWithoutAnIDPanics(t *testing.T) {
	for name, write := range map[string]func(){
		"request": func() { jsonrpc.AppendRequest(nil, jsonrpc.ID{}, "m", nil) },
		"result":  func() { jsonrpc.AppendResult(nil, jsonrpc.ID{}, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a %s without an id was encoded", name)
				}
			}()
			write()
		}()
	}
}

func ids() *rapid.Generator[jsonrpc.ID] {
	big := rapid.Custom(func(t *rapid.T) jsonrpc.ID {
		id, err := jsonrpc.ParseID([]byte(rapid.StringMatching(`-?[1-9][0-9]{19,62}`).Draw(t, "big")))
		if err != nil {
			t.Fatal(err)
		}
		return id
	})
	return rapid.OneOf(
		rapid.Map(rapid.Int64(), jsonrpc.IntegerID),
		rapid.Map(rapid.StringN(-1, -1, 1024), jsonrpc.StringID),
		big,
	)
}

// values are JSON texts with white space in them, line breaks included.
func values(kinds ...string) *rapid.Generator[json.RawMessage] {
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		text := rapid.String().Draw(t, "text")
		var value any
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "absent":
			return nil
		case "object":
			value = map[string]any{text: []any{1.5, nil, text}, "b": map[string]any{}}
		case "array":
			value = []any{text, []any{}, true}
		default:
			value = text
		}
		raw, err := json.MarshalIndent(value, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		return raw
	})
}

func messages() *rapid.Generator[jsonrpc.Message] {
	return rapid.Custom(func(t *rapid.T) jsonrpc.Message {
		m := jsonrpc.Message{Kind: jsonrpc.Kind(rapid.IntRange(1, 4).Draw(t, "kind"))}
		if m.Kind != jsonrpc.KindNotification {
			m.ID = ids().Draw(t, "id")
		}
		switch m.Kind {
		case jsonrpc.KindRequest, jsonrpc.KindNotification:
			m.Method = rapid.String().Draw(t, "method")
			m.Params = values("absent", "object", "array").Draw(t, "params")
		case jsonrpc.KindResult:
			m.Result = values("object", "array", "string").Draw(t, "result")
		case jsonrpc.KindError:
			if rapid.Bool().Draw(t, "without id") {
				m.ID = jsonrpc.ID{}
			}
			m.Error = &jsonrpc.Error{
				Code:    rapid.Int64().Draw(t, "code"),
				Message: rapid.String().Draw(t, "message"),
				Data:    values("absent", "object", "array", "string").Draw(t, "data"),
			}
		}
		return m
	})
}

// compacted returns a message without insignificant white space in its values.
func compacted(t *rapid.T, m jsonrpc.Message) jsonrpc.Message {
	shrink := func(raw json.RawMessage) json.RawMessage {
		if raw == nil {
			return nil
		}
		var out bytes.Buffer
		if err := json.Compact(&out, raw); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	m.Params, m.Result = shrink(m.Params), shrink(m.Result)
	if m.Error != nil {
		m.Error = &jsonrpc.Error{Code: m.Error.Code, Message: m.Error.Message, Data: shrink(m.Error.Data)}
	}
	return m
}

// Guarantees: G-0017.2, G-0017.9
func TestEncodingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := messages().Draw(t, "message")
		frame := appendMessage(nil, m)
		if bytes.ContainsAny(frame, "\r\n") {
			t.Fatalf("line break in %q", frame)
		}
		got, err := jsonrpc.Decode(frame, jsonrpc.Limits{})
		if err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
		if diff := cmp.Diff(compacted(t, m), compacted(t, got), sameID); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A raw value appends itself, or returns an error.
type raw struct {
	json.RawMessage
	err error
}

func (r raw) AppendJSON(dst []byte) ([]byte, error) { return append(dst, r.RawMessage...), r.err }
func (r raw) SizeJSON() int                         { return len(r.RawMessage) / 2 } // an estimate

// A value that appends itself gives the same frame as its JSON, unless it fails.
func TestValuesAppendThemselves(t *testing.T) {
	id := jsonrpc.IntegerID(1)
	for _, text := range []string{`{}`, "{\n\"a\":\r\n[1]}", `{"a":"\n"}`} {
		before, value := []byte("before\n"), raw{RawMessage: json.RawMessage(text)}
		request, err := jsonrpc.AppendRequestOf(bytes.Clone(before), id, "m", value)
		if want := jsonrpc.AppendRequest(before, id, "m", value.RawMessage); err != nil || !bytes.Equal(request, want) {
			t.Errorf("got %s, %v, want %s", request, err, want)
		}
		result, err := jsonrpc.AppendResultOf(bytes.Clone(before), id, value)
		if want := jsonrpc.AppendResult(before, id, value.RawMessage); err != nil || !bytes.Equal(result, want) {
			t.Errorf("got %s, %v, want %s", result, err, want)
		}
	}
	broken := raw{err: errors.New("no")}
	if frame, err := jsonrpc.AppendRequestOf(nil, id, "m", broken); frame != nil || err != broken.err {
		t.Errorf("a request: %s, %v", frame, err)
	}
	if frame, err := jsonrpc.AppendResultOf(nil, id, broken); frame != nil || err != broken.err {
		t.Errorf("a result: %s, %v", frame, err)
	}
}

// Guarantees: G-0017.8, G-0017.9
func TestBatchOfWrittenMessagesIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(messages(), 1, 8).Draw(t, "messages")
		frame := []byte("[")
		for _, m := range want {
			frame = append(appendMessage(frame, m), ',')
		}
		frame[len(frame)-1] = ']'
		items, err := jsonrpc.DecodeBatch(frame, jsonrpc.Limits{})
		if err != nil || len(items) != len(want) {
			t.Fatalf("%d items, %v", len(items), err)
		}
		for i, item := range items {
			if item.Err != nil {
				t.Fatal(item.Err)
			}
			if diff := cmp.Diff(compacted(t, want[i]), compacted(t, item.Message), sameID); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// Guarantees: G-0016.5
func TestAppendAllocatesNothing(t *testing.T) {
	frame, params, failure := make([]byte, 0, 1024), []byte("{\n}"), &jsonrpc.Error{Code: 1, Message: "m", Data: []byte("1")}
	got := testing.AllocsPerRun(100, func() {
		frame = jsonrpc.AppendRequest(frame[:0], jsonrpc.IntegerID(1), "m", params)
		frame = jsonrpc.AppendResult(frame[:0], jsonrpc.StringID("a"), params)
		frame = jsonrpc.AppendError(frame[:0], jsonrpc.IntegerID(1), failure)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
