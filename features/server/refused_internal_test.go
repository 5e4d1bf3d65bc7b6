package server

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// What an endpoint has refused before it came here has the outcome that its status says.
func TestOutcomesOfWhatAnEndpointRefused(t *testing.T) {
	var got Record
	s := New(protocol.Implementation{Name: "s", Version: "1"}, Options{Audit: func(_ context.Context, r Record) { got = r }})
	defer s.Close(t.Context())
	for status, want := range map[int]Outcome{
		400: OutcomeInvalid, 404: OutcomeRefused, 406: OutcomeInvalid, 413: OutcomeRefused, 415: OutcomeInvalid, 499: OutcomeInvalid,
		500: OutcomeRefused, 503: OutcomeRefused,
	} {
		s.Refused(transport.Refusal{Origin: new(transport.Origin), Status: status})
		if got.Outcome != want || got.Status != status {
			t.Errorf("the outcome of status %d is %q, want %q", status, got.Outcome, want)
		}
		s.Refused(transport.Refusal{Origin: new(transport.Origin), Status: status, Denied: true})
		if got.Outcome != OutcomeDenied {
			t.Errorf("the outcome of status %d of somebody who may not is %q, want %q", status, got.Outcome, OutcomeDenied)
		}
	}
}
