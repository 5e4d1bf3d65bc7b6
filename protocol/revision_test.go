package protocol_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

// What each revision has is a table, and unknown revisions count as the newest if they are newer.
func TestWhatRevisionsHave(t *testing.T) {
	have := map[string][]protocol.Difference{
		protocol.Version20241105: nil,
		protocol.Version20250326: {protocol.AudioBlocks, protocol.Batches, protocol.CompletionCapability},
		protocol.Version20250618: {protocol.AudioBlocks, protocol.CompletionCapability, protocol.Elicitation, protocol.ResourceLinks},
		protocol.Version20251125: {
			protocol.AudioBlocks, protocol.CompletionCapability, protocol.Elicitation, protocol.ResourceLinks, protocol.ListFields, protocol.URLElicitation,
			protocol.SamplingTools, protocol.SamplingContextCapability, protocol.InvalidArgumentsAsResult, protocol.Tasks, protocol.InitialEventID,
		},
		"":           nil,
		"2025-04-01": {protocol.AudioBlocks, protocol.CompletionCapability},
	}
	have[protocol.Version20260728] = append(have[protocol.Version20251125], protocol.NoSessions)
	have["2099-01-01"] = have[protocol.Version20260728]
	for version, all := range have {
		wanted := map[protocol.Difference]bool{}
		for _, d := range all {
			wanted[d] = true
		}
		for d := protocol.AudioBlocks; d <= protocol.NoSessions; d++ {
			if got := protocol.Has(version, d); got != wanted[d] {
				t.Errorf("%q has difference %d: %v, want %v", version, d, got, wanted[d])
			}
		}
	}
	if got := protocol.Since(protocol.Batches); got != protocol.Version20250326 {
		t.Errorf("batches came with %s", got)
	}
}
