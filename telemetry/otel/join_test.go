package otel_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry/otel"
)

// A program that traces the execution of tools itself may have calls add to its span. Other
// spans, other methods and other programs get a CLIENT span as ever.
//
// Guarantees: G-0060.4
func TestCallsJoinTheSpanOfATool(t *testing.T) {
	execution := trace.WithAttributes(attribute.String("gen_ai.operation.name", "execute_tool"))
	for _, test := range []struct {
		name   string
		joins  bool
		of     trace.SpanStartOption
		tool   string
		joined bool
	}{
		{"joined", true, execution, "add", true},
		{"joined, and failed", true, execution, "fail", true},
		{"not wanted", false, execution, "add", false},
		{"another span", true, trace.WithAttributes(attribute.String("gen_ai.operation.name", "chat")), "add", false},
		{"a prompt", true, execution, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t, "memory", protocol.Latest, otel.Options{JoinToolSpans: test.joins})
			s.spans.Reset()
			ctx, span := s.traces.Tracer("program").Start(t.Context(), "program", test.of)
			if test.tool == "" {
				s.GetPrompt(ctx, &protocol.GetPromptParams{Name: "greet"})
			} else {
				s.CallTool(ctx, &protocol.CallToolParams{Name: test.tool})
			}
			if !span.IsRecording() {
				t.Error("the program's span is ended")
			}
			span.End()
			s.ended()
			calls := 0
			for _, told := range s.spans.GetSpans() {
				switch {
				case told.SpanKind == trace.SpanKindClient:
					calls++
				case told.Name == "program":
					wantError := map[bool]string{true: "tool_error"}[test.joined && test.tool == "fail"]
					if joined := attributeOf(told, "mcp.method.name") == "tools/call" && attributeOf(told, "bowline.delivery") == "sent"; joined != test.joined {
						t.Errorf("the program's span has %v", told.Attributes)
					}
					if got := attributeOf(told, "error.type"); got != wantError || (told.Status.Code == codes.Error) != (got != "") {
						t.Errorf("the program's span has the error %q and the status %v", got, told.Status)
					}
				case told.SpanKind == trace.SpanKindServer && test.joined && told.Parent.SpanID() != span.SpanContext().SpanID():
					t.Errorf("the SERVER span has the parent %v", told.Parent.SpanID())
				}
			}
			if (calls == 0) != test.joined {
				t.Errorf("%d CLIENT spans", calls)
			}
		})
	}
}
