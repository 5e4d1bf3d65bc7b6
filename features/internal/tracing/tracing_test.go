package tracing_test

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/features/internal/tracing"
	"github.com/bowline-mcp/bowline/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The trace context is added to _meta. Members that are there already are not lost or
// replaced.
//
// Guarantees: G-0047.1
func TestTheTraceContextEntersMeta(t *testing.T) {
	ctx := telemetry.WithTrace(t.Context(), telemetry.Trace{Parent: parent, State: "a=1", Baggage: "b=2"})
	for raw, want := range map[string]string{
		``:                                `{"_meta":{"traceparent":"` + parent + `","tracestate":"a=1","baggage":"b=2"}}`,
		`{"a":1}`:                         `{"_meta":{"traceparent":"` + parent + `","tracestate":"a=1","baggage":"b=2"},"a":1}`,
		`{"_meta":{"b":2}}`:               `{"_meta":{"b":2,"traceparent":"` + parent + `","tracestate":"a=1","baggage":"b=2"}}`,
		`{"_meta":{"traceparent":"own"}}`: `{"_meta":{"traceparent":"own"}}`,
		`[1]`:                             `[1]`,
		`{"_meta":{"tracestate":"own"}}`:  `{"_meta":{"traceparent":"` + parent + `","tracestate":"own","baggage":"b=2"}}`,
	} {
		got := tracing.Inject(ctx, json.RawMessage(raw))
		if !sameJSON(t, string(got), want) {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
	if got := tracing.Inject(t.Context(), json.RawMessage(`{"a":1}`)); string(got) != `{"a":1}` {
		t.Errorf("without a trace: got %s, want %q", got, `{"a":1}`)
	}
}

// The trace context is added to a copy of the text of _meta, because other requests use
// the same text.
//
// Guarantees: G-0047.1
func TestTheTraceContextEntersTheTextOfMeta(t *testing.T) {
	ctx := telemetry.WithTrace(t.Context(), telemetry.Trace{Parent: parent, State: `"=1`, Baggage: "b=\n"})
	const members = `"traceparent":"` + parent + `","tracestate":"\"=1","baggage":"b=\n"`
	for meta, want := range map[string]string{"": `{` + members + `}`, `{}`: `{` + members + `}`, `{"a":{}}`: `{"a":{},` + members + `}`} {
		text := []byte(meta + "!")
		for _, memory := range [][]byte{nil, []byte("too short"), []byte(strings.Repeat("memory", 100))} {
			if got := tracing.AddTo(ctx, &memory, text[:len(meta)]); string(got) != want || string(text) != meta+"!" {
				t.Errorf("%s: got %s and %s, want %s", meta, text, got, want)
			}
		}
	}
	for _, none := range []telemetry.Trace{{}, {State: "a=1"}} {
		if got := tracing.AddTo(telemetry.WithTrace(t.Context(), none), new([]byte), json.RawMessage(`{"a":1}`)); string(got) != `{"a":1}` {
			t.Errorf("without a trace: got %s, want %q", got, `{"a":1}`)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var one, other any
	if err := json.Unmarshal([]byte(a), &one); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &other); err != nil {
		t.Fatal(err)
	}
	first, _ := json.Marshal(one)
	second, _ := json.Marshal(other)
	return string(first) == string(second)
}
