package jsonrpc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func decodeBatch(frame string) ([]jsonrpc.Item, error) {
	return jsonrpc.DecodeBatch([]byte(frame), jsonrpc.Limits{})
}

// Guarantees: G-0017.8
func TestBatchIsRefusedUnlessAskedFor(t *testing.T) {
	const frame = `[{"jsonrpc":"2.0","id":1,"method":"m"}]`
	if _, err := decode(frame); !errors.Is(err, jsonrpc.ErrBatch) {
		t.Errorf("Decode: %v, want ErrBatch", err)
	}
	items, err := decodeBatch(frame)
	if err != nil || len(items) != 1 || items[0].Err != nil || items[0].Message.Method != "m" {
		t.Errorf("DecodeBatch: %+v, %v", items, err)
	}
}

// Guarantees: G-0017.8
func TestBadElementOfABatchLeavesTheOthers(t *testing.T) {
	items, err := decodeBatch(` [{"jsonrpc":"2.0","id":1,"method":"a"}, 7,
		{"jsonrpc":"2.0","id":2}, [], {"jsonrpc":"2.0","method":"b","method":"b"}, {"jsonrpc":"2.0","method":"c"}] `)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range items {
		if item.Err == nil {
			got = append(got, item.Message.Kind.String()+" "+item.Message.Method)
			continue
		}
		if item.Err.Code != jsonrpc.CodeInvalidRequest || errors.Is(item.Err, jsonrpc.ErrBatch) {
			t.Errorf("element is refused with %v", item.Err)
		}
		got = append(got, "bad "+item.Err.ID.String())
	}
	const want = "request a,bad none,bad 2,bad none,bad none,notification c"
	if strings.Join(got, ",") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ","), want)
	}
}

// An element that is an array is not a nested batch. Each other invalid element has its own
// reason.
//
// Guarantees: G-0017.8
func TestBadElementSaysWhy(t *testing.T) {
	items, err := decodeBatch(`[[], 7, {"jsonrpc":"1.0","method":"m"}, {"jsonrpc":"2.0","id":1.5,"method":"m"}]`)
	if err != nil || len(items) != 4 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for i, want := range []string{"a message is an object", "a message is an object", "jsonrpc", "not an integer"} {
		if got := items[i].Err; got == nil || !strings.Contains(got.Err.Error(), want) {
			t.Errorf("element %d is refused with %v, want %q", i, got, want)
		}
	}
}

// Guarantees: G-0017.8
func TestDecodeBatchTakesASingleMessage(t *testing.T) {
	items, err := decodeBatch(`{"jsonrpc":"2.0","method":"m"}`)
	if err != nil || len(items) != 1 || items[0].Message.Method != "m" || items[0].Err != nil {
		t.Errorf("got %+v, %v", items, err)
	}
	_, err = decodeBatch(`{"jsonrpc":"2.0","id":3,"method":1}`)
	var refusal *jsonrpc.DecodeError
	if !errors.As(err, &refusal) || refusal.ID != jsonrpc.IntegerID(3) {
		t.Errorf("an invalid single message gives %v", err)
	}
}

// Guarantees: G-0016.1, G-0016.2, G-0017.8
func TestBatchRefusedAsAWhole(t *testing.T) {
	const message = `{"jsonrpc":"2.0","method":"m"}`
	many := func(n int) string { return "[" + strings.Repeat(message+",", n-1) + message + "]" }
	deep := func(n int) string {
		return "[" + message + "," + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "]"
	}
	for _, frame := range []string{many(1024), deep(512)} {
		if _, err := decodeBatch(frame); err != nil {
			t.Errorf("%.50s at its limit: %v", frame, err)
		}
	}
	for frame, code := range map[string]int64{
		`[]`: jsonrpc.CodeInvalidRequest, ` [ ] `: jsonrpc.CodeInvalidRequest,
		many(1025): jsonrpc.CodeInvalidRequest, deep(513): jsonrpc.CodeInvalidRequest,
		strings.Repeat("[", 1<<20):          jsonrpc.CodeInvalidRequest,
		`[` + message:                       jsonrpc.CodeParseError,
		`[` + message + `,]`:                jsonrpc.CodeParseError,
		`[` + message + `] 1`:               jsonrpc.CodeParseError,
		`[` + message + `,{"a":}]`:          jsonrpc.CodeParseError,
		"[" + message + ",\"\xff\"]":        jsonrpc.CodeParseError,
		`[` + message + ` ` + message + `]`: jsonrpc.CodeParseError,
	} {
		items, err := decodeBatch(frame)
		var refusal *jsonrpc.DecodeError
		if !errors.As(err, &refusal) || refusal.Code != code || items != nil {
			t.Errorf("%.50q: %d items, %v, want code %d", frame, len(items), err, code)
		}
	}
	if _, err := jsonrpc.DecodeBatch([]byte(many(3)), jsonrpc.Limits{MaxBatch: 2}); err == nil {
		t.Error("three messages pass a limit of two")
	}
}

func TestIsBatch(t *testing.T) {
	for frame, want := range map[string]bool{"[": true, " \t\r\n[]": true, "": false, "{}": false, "\v[": false} {
		if jsonrpc.IsBatch([]byte(frame)) != want {
			t.Errorf("IsBatch(%q) = %v", frame, !want)
		}
	}
}
