package jsonrpc

import (
	"reflect"
	"strings"
	"testing"
)

// sureFrames are frames that decodeSure accepts. It leaves unsureFrames to the other decoder.
var (
	sureFrames = []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1,{"b":"\u00e9\n"}]}}`,
		` {"jsonrpc" : "2.0" , "id":"a\u0062" , "result" : null } `,
		`{"jsonrpc":"2.0","error":{"code":1,"message":"\ud800"}}`,
		`{"jsonrpc":"2.0","method":"m","more":{"a":1,"a":2}}`,
		`{"jsonrpc":"2.0","method":"é"}`,
	}
	unsureFrames = []string{
		`{"jsonrpc":"2.0","\u006dethod":"m"}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m"}}`,
		"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}",
		`{"jsonrpc":"2.0","method":"m","params":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`[{"jsonrpc":"2.0","method":"m"}]`, `{}`, ``, `1`,
	}
)

// Guarantees: G-0056.2
func TestUsualMessagesAreReadInOnePass(t *testing.T) {
	for _, frame := range sureFrames {
		if _, sure := decodeSure([]byte(frame), Limits{}); !sure {
			t.Errorf("decodeSure does not accept %s", frame)
		}
	}
	for _, frame := range unsureFrames {
		if _, sure := decodeSure([]byte(frame), Limits{}); sure {
			t.Errorf("decodeSure accepts %s", frame)
		}
	}
}

// Guarantees: G-0056.2
func FuzzDecodeSure(f *testing.F) {
	for _, frame := range append(sureFrames, unsureFrames...) {
		f.Add([]byte(frame), 0, 0)
		f.Add([]byte(frame), 2, 5)
	}
	f.Fuzz(func(t *testing.T, frame []byte, maxDepth, maxValues int) {
		limits := Limits{MaxDepth: maxDepth, MaxValues: maxValues}
		m, sure := decodeSure(frame, limits)
		if !sure {
			return
		}
		want, err := decodeAny(frame, limits)
		if err != nil || !reflect.DeepEqual(m, want) {
			t.Fatalf("%q with %+v: %+v, want %+v, %v", frame, limits, m, want, err)
		}
	})
}
