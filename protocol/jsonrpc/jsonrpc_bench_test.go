package jsonrpc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A standardMessage contains what encoding/json needs to distinguish the kinds. It ignores
// case, accepts repeated members and repairs invalid UTF-8, so it does less than Decode.
type standardMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// benchmarkFrames are frames a peer sends, by name.
func benchmarkFrames() []struct {
	name  string
	frame []byte
} {
	tool := `{"name":"search_documents","description":"Finds documents by words.","inputSchema":{"type":"object","properties":{"words":{"type":"array","items":{"type":"string"}},"limit":{"type":"integer"}},"required":["words"]}}`
	result := func(value string) []byte { return []byte(`{"jsonrpc":"2.0","id":7,"result":` + value + `}`) }
	text := func(size int) []byte {
		return result(`{"content":[{"type":"text","text":"` + strings.Repeat("A line of plain text.\\n", size/23) + `"}]}`)
	}
	request := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 64) + `"}}}`
	return []struct {
		name  string
		frame []byte
	}{
		{"call", []byte(request)},
		{"notification", []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.5}}`)},
		{"text-100KiB", text(100 << 10)},
		{"text-10MiB", text(10 << 20)},
		{"base64-10MiB", result(`"` + strings.Repeat("QUJD", 10<<18) + `"`)},
		{"tools-1000", result(`{"tools":[` + strings.Repeat(tool+",", 999) + tool + `]}`)},
		{"hostile-deep", result(strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20))},
		{"hostile-members", result(`{` + strings.Repeat(`"":0,`, 1<<18) + `"":0}`)},
		{"hostile-escapes", result(`"` + strings.Repeat(`\u0041`, 1<<18) + `"`)},
		{"hostile-digits", result(strings.Repeat("9", 1<<20))},
		{"hostile-utf8", result(`"` + strings.Repeat("é", 1<<19) + "\xff" + `"`)},
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, f := range benchmarkFrames() {
		b.Run(f.name+"/jsonrpc", func(b *testing.B) {
			b.SetBytes(int64(len(f.frame)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = jsonrpc.Decode(f.frame, jsonrpc.Limits{}) // hostile frames fail
			}
		})
		b.Run(f.name+"/encoding-json", func(b *testing.B) {
			b.SetBytes(int64(len(f.frame)))
			b.ReportAllocs()
			for b.Loop() {
				var m standardMessage
				_ = json.Unmarshal(f.frame, &m)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{64, 100 << 10, 10 << 20} {
		params := fmt.Appendf(nil, `{"name":"echo","arguments":{"text":"%s"}}`, bytes.Repeat([]byte("x"), size))
		b.Run(fmt.Sprintf("call-%d/jsonrpc", size), func(b *testing.B) {
			b.ReportAllocs()
			var frame []byte
			for b.Loop() {
				frame = jsonrpc.AppendRequest(frame[:0], jsonrpc.IntegerID(7), "tools/call", params)
			}
		})
		b.Run(fmt.Sprintf("call-%d/encoding-json", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := standardMessage{Version: "2.0", ID: json.RawMessage("7"), Method: "tools/call", Params: params}
				if _, err := json.Marshal(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
