package protocol_test

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/go-cmp/cmp"
)

func TestModernErrorsAreThree(t *testing.T) {
	for code, want := range map[int64]bool{
		-32019: false, protocol.CodeHeaderMismatch: true, protocol.CodeMissingCapability: true,
		protocol.CodeUnsupportedVersion: true, -32023: false, jsonrpc.CodeMethodNotFound: false, 0: false,
	} {
		if protocol.IsModernError(code) != want {
			t.Errorf("%d: want %t", code, want)
		}
	}
}

func TestUnsupportedVersionSaysWhatIs(t *testing.T) {
	err := protocol.UnsupportedVersion("2099-01-01", protocol.Versions())
	var data protocol.UnsupportedVersionData
	if failed := protocol.Unmarshal(err.Data, &data); failed != nil || err.Code != protocol.CodeUnsupportedVersion {
		t.Fatalf("got %v, %v", err, failed)
	}
	want := protocol.UnsupportedVersionData{Supported: protocol.Versions(), Requested: "2099-01-01"}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Error(diff)
	}
}

// An error that repeats data of the peer has a bounded length.
func TestUnsupportedVersionIsShort(t *testing.T) {
	err := protocol.UnsupportedVersion("é"+strings.Repeat("x\x00", 1<<20), nil)
	if len(err.Data) > 1000 || len(err.Message) > 100 {
		t.Errorf("%d bytes of data, %d of message", len(err.Data), len(err.Message))
	}
}
