package revision_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What each revision has is a table, and unknown revisions count as the newest if they are newer.
func TestWhatRevisionsHave(t *testing.T) {
	have := map[string][]revision.Difference{
		protocol.Version20241105: nil,
		protocol.Version20250326: {revision.AudioBlocks, revision.Batches, revision.CompletionCapability},
		protocol.Version20250618: {revision.AudioBlocks, revision.CompletionCapability, revision.Elicitation, revision.ResourceLinks},
		protocol.Version20251125: {
			revision.AudioBlocks, revision.CompletionCapability, revision.Elicitation, revision.ResourceLinks, revision.ListFields, revision.URLElicitation,
			revision.SamplingTools, revision.SamplingContextCapability, revision.InvalidArgumentsAsResult, revision.Tasks, revision.InitialEventID,
		},
		"":           nil,
		"2025-04-01": {revision.AudioBlocks, revision.CompletionCapability},
	}
	have[protocol.Version20260728] = append(have[protocol.Version20251125], revision.NoSessions)
	have["2099-01-01"] = have[protocol.Version20260728]
	for version, all := range have {
		wanted := map[revision.Difference]bool{}
		for _, d := range all {
			wanted[d] = true
		}
		for d := revision.AudioBlocks; d <= revision.NoSessions; d++ {
			if got := revision.Has(version, d); got != wanted[d] {
				t.Errorf("%q has difference %d: %v, want %v", version, d, got, wanted[d])
			}
		}
	}
	if got := revision.Since(revision.Batches); got != protocol.Version20250326 {
		t.Errorf("batches came with %s", got)
	}
}

func TestModernErrorsAreThree(t *testing.T) {
	for code, want := range map[int64]bool{
		-32019: false, protocol.CodeHeaderMismatch: true, protocol.CodeMissingCapability: true,
		protocol.CodeUnsupportedVersion: true, -32023: false, jsonrpc.CodeMethodNotFound: false, 0: false,
	} {
		if revision.IsModernCode(code) != want {
			t.Errorf("%d: want %t", code, want)
		}
	}
}
