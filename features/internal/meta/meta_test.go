package meta

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

const knownMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// with returns knownMeta with more members at its end.
func with(members string) string { return strings.TrimSuffix(knownMeta, "}") + members + "}" }

// Guarantees: G-0049.1
func TestKnownMetaIsNotReadAgain(t *testing.T) {
	known := Remember([]byte(knownMeta))
	for params, rest := range map[string]string{
		`{"_meta":` + knownMeta + `,"name":"a"}`:                                     `"name":"a"}`,
		`{"_meta":` + knownMeta + `}`:                                                `}`,
		`{"_meta":` + knownMeta + `,"\u005fmeta":{}}`:                                "",
		`{"_meta":` + knownMeta + `,"_meta":{}}`:                                     "",
		`{"name":"a","_meta":` + knownMeta + `}`:                                     "",
		`{"_meta":` + with(`,"traceparent":"a"`) + `,"name":"a"}`:                    `"name":"a"}`,
		`{"_meta":` + with(`,"traceparent":"a","baggage":"\u0061"`) + `,"name":"a"}`: "",
		`{"_meta":` + with(`,"traceparent":"a","other":1`) + `,"name":"a"}`:          "",
		`{"_meta":{},"name":"a"}`:                                                    "",
		`{"_meta":` + knownMeta + string(make([]byte, longestRest+1)):                "",
		`{}`: "",
	} {
		if got := known.Cut([]byte(params)).Rest; string(got) != rest {
			t.Errorf("what follows in %.200s is %q, want %q", params, got, rest)
		}
	}
}

// A _meta is the known one if only the trace context at its end differs.
func TestOnlyTheTraceContextMayDiffer(t *testing.T) {
	known := Remember([]byte(with(`,"traceparent":"first"`)))
	for text, want := range map[string]bool{
		knownMeta:                        true,
		with(`,"traceparent":"a"`):       true,
		with(`,"baggage":"c=d"`):         true,
		with(`,"other":1`):               false,
		with(`,"traceparent":7`):         false,
		knownMeta + ` `:                  false,
		`{}`:                             false,
		``:                               false,
		strings.ToUpper(knownMeta):       false,
		with(`,"traceparent":"a\u0062"`): false,
		with(`,"traceparent":"a","traceparent":"b"`): false,
	} {
		if got := known.Is([]byte(text)); got != want {
			t.Errorf("%s is known: %t, want %t", text, got, want)
		}
	}
}

// A trace context that is not at the end of a _meta belongs to what is known, which is a copy.
func TestATraceContextAmongOtherMembersIsKnown(t *testing.T) {
	own := with(`,"traceparent":"a","other":1`)
	text := []byte(own)
	known := Remember(text)
	clear(text)
	for text, want := range map[string]bool{
		own:                                  true,
		knownMeta:                            false,
		with(`,"traceparent":"b","other":1`): false,
		strings.TrimSuffix(own, "}") + `,"traceparent":"b"}`: false,
		strings.TrimSuffix(own, "}") + `,"baggage":"b"}`:     true,
	} {
		if got := known.Is([]byte(text)); got != want {
			t.Errorf("%s is known: %t, want %t", text, got, want)
		}
	}
}

// A _meta that differs from request to request, or takes much memory, is not remembered.
func TestWhatIsNotRemembered(t *testing.T) {
	for text, want := range map[string]bool{
		knownMeta:                  true,
		with(`,"progressToken":7`): false,
		with(`,"long":"` + strings.Repeat("a", longest) + `"`): false,
		`{"broken`: false,
	} {
		if got := Remember([]byte(text)) != nil; got != want {
			t.Errorf("%.200s is remembered: %t, want %t", text, got, want)
		}
	}
}

// What was cut off is added to the params again, also after the frame of the request was used for something else.
func TestWhatWasCutIsAdded(t *testing.T) {
	frame := []byte(`{"_meta":` + with(`,"traceparent":"a","tracestate":"b=1","baggage":"c=d"`) + `,"name":"x"}`)
	cut := Remember([]byte(knownMeta)).Cut(frame)
	cut.Keep()
	clear(frame)
	var params protocol.CallToolParams
	cut.AddTo(&params)
	got := params.Meta
	if len(got) != 5 || string(got[protocol.MetaBaggage]) != `"c=d"` || string(got[protocol.MetaTraceparent]) != `"a"` || string(got[protocol.MetaTracestate]) != `"b=1"` || string(got[protocol.MetaProtocolVersion]) != `"2026-07-28"` {
		t.Errorf("the params have %v", got)
	}
	if cut.Rest != nil {
		t.Errorf("%q of the frame is kept", cut.Rest)
	}
}
