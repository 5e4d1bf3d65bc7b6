package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A completion has at most 100 values, and says how many there are if there are more. An enum proposes what begins as typed; a function of
// the program takes the place of that, and gets what is known already.
//
// Guarantees: G-0029.1
func TestCompletionsOfEveryKind(t *testing.T) {
	s := newServer(server.Options{})
	type arguments struct {
		Color string `json:"color,omitempty" enum:"red,green,grey"`
		Level int    `json:"level,omitempty" enum:"1,10,2"`
		Count string `json:"count,omitempty"`
		Own   string `json:"own,omitempty" enum:"ignored"`
		Plain string `json:"plain,omitempty"`
	}
	var knew map[string]string
	options := []server.FeatureOption{
		server.Completion{Argument: "count", Values: func(_ context.Context, typed string, known map[string]string) ([]string, error) {
			knew = known
			var n int
			if _, err := fmt.Sscan(typed, &n); err != nil {
				return nil, errors.New("no number")
			}
			return slices.Repeat([]string{"v"}, n), nil
		}},
		server.Completion{Argument: "own", Values: func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
			return []string{"own " + typed}, nil
		}},
	}
	server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, arguments) (string, error) { return "", nil }, options...)
	server.AddTemplate(s, protocol.ResourceTemplate{URITemplate: "x://{color}/{level}/{count}/{own}/{plain}", Name: "t"},
		func(context.Context, arguments) (string, error) { return "", nil }, options...)
	server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "", nil })
	w := dial(t, s)
	for _, ref := range []string{`"type":"ref/prompt","name":"p"`, `"type":"ref/resource","uri":"x://{color}/{level}/{count}/{own}/{plain}"`, `"type":"ref/resource","uri":"x://a"`} {
		for typed, want := range map[string]string{
			"color ": "red,green,grey", "color gr": "green,grey", "color grey": "grey", "color greys": "", "color GR": "", "color ey": "",
			"level 1": "1,10", "level ": "1,10,2", "own x": "own x", "plain x": "", "none x": "",
			"count 0": "", "count 99": "99 of 0", "count 100": "100 of 0", "count 101": "100 of 101", "count 250": "100 of 250",
		} {
			name, value, _ := strings.Cut(typed, " ")
			got := result[protocol.CompleteResult](w, "completion/complete",
				`"ref":{`+ref+`},"argument":{"name":"`+name+`","value":"`+value+`"},"context":{"arguments":{"color":"red"}}`).Completion
			said := strings.Join(got.Values, ",")
			if name == "count" && len(got.Values) > 0 {
				var total int64
				if got.Total != nil {
					total = *got.Total
				}
				said = fmt.Sprintf("%d of %d", len(got.Values), total)
				if got.HasMore != (total > 0) {
					t.Errorf("%s, %s: there are more: %t, want %t", ref, typed, got.HasMore, total > 0)
				}
			}
			if strings.Contains(ref, "x://a") {
				want = "" // it has no arguments
			}
			if said != want {
				t.Errorf("%s, %s: got %q, want %q", ref, typed, said, want)
			}
		}
		if !strings.Contains(ref, "x://a") {
			if want := map[string]string{"color": "red"}; !maps.Equal(knew, want) {
				t.Errorf("%s: the program got %v, want %v", ref, knew, want)
			}
			frame := modern(`1`, "completion/complete", `"ref":{`+ref+`},"argument":{"name":"count","value":"x"}`)
			if fault := w.wantFault(jsonrpc.CodeInternalError, frame); !strings.Contains(fault.Message, "no number") || len(knew) != 0 {
				t.Errorf("%s: got %v and %v, want the error of the program, which knows nothing", ref, fault, knew)
			}
		}
	}
}
