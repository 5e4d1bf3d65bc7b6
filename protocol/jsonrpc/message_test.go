package jsonrpc_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// What Memory says of many small values is what they take on the heap together with their text, within a factor of
// two, and it is the same if the message is written so that it must be parsed.
//
// Guarantees: G-0083.8
func TestMemory(t *testing.T) {
	const elements = 20_000
	for _, element := range []string{
		`0`, `1.5`, `true`, `""`, `"abc"`, `"` + strings.Repeat("x", 100) + `"`, `[]`, `[0]`, `[1,2,3]`, `{}`, `{"a":0}`, `{"a":0,"b":"c"}`,
		`{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7}`, `{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8}`, ` { "a" : [ { "b" : [ ] } , "{,}" ] } `,
	} {
		frame := `,"jsonrpc":"2.0","id":1,"params":[` + strings.Repeat(element+",", elements-1) + element + `]}`
		usual, err := decode(`{"method":"m"` + frame)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := decode(`{"\u006dethod":"m"` + frame); err != nil || parsed.Memory != usual.Memory {
			t.Errorf("%s counts %d bytes, or %d with an escaped name, %v", element, usual.Memory, parsed.Memory, err)
		}
		before := heap()
		var value any
		if err := protocol.Unmarshal(usual.Params, &value); err != nil {
			t.Fatal(err)
		}
		text := len(element) + 1
		got, want := int(usual.Memory)/elements+text, (heap()-before)/elements+text
		if runtime.KeepAlive(value); got < want/2 || got > want*2 {
			t.Errorf("%s counts %d bytes, and takes %d", element, got, want)
		}
	}
}

// heap returns how many bytes are in use.
func heap() int {
	runtime.GC()
	runtime.GC() // what the first one has put off
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int(now.HeapAlloc)
}
