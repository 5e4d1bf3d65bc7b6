package refusal_test

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/google/go-cmp/cmp"
)

func TestNegotiate(t *testing.T) {
	all := protocol.LegacyVersions()
	for _, version := range all {
		if got := refusal.Negotiate(version, all); got != version {
			t.Errorf("%s: got %s", version, got)
		}
	}
	for _, version := range []string{"", "1.0", "2099-01-01", "2026-07-28"} {
		if got := refusal.Negotiate(version, all); got != protocol.LatestLegacy {
			t.Errorf("%q: got %s", version, got)
		}
	}
}

// The answer is the newest revision of a server, in whatever order it names them.
func TestNegotiateDoesNotDependOnTheOrder(t *testing.T) {
	for _, supported := range [][]string{{"2025-11-25", "2024-11-05", "2025-03-26"}, {"2024-11-05", "2025-11-25", "2025-03-26"}} {
		if got := refusal.Negotiate("1.0", supported); got != "2025-11-25" {
			t.Errorf("%q: got %s", supported, got)
		}
	}
}

func TestNegotiateWithNothingSupported(t *testing.T) {
	if got := refusal.Negotiate(protocol.LatestLegacy, nil); got != "" {
		t.Errorf("got %q", got)
	}
}

// A handshake never agrees on a revision that has no handshake.
func TestNegotiateLeavesOutModernRevisions(t *testing.T) {
	for _, requested := range append(protocol.ModernVersions(), "2099-01-01") {
		if got := refusal.Negotiate(requested, protocol.Versions()); got != protocol.LatestLegacy {
			t.Errorf("%s: got %q", requested, got)
		}
		if got := refusal.Negotiate(requested, protocol.ModernVersions()); got != "" {
			t.Errorf("%s: got %q", requested, got)
		}
	}
}

func TestUnsupportedVersionSaysWhatIs(t *testing.T) {
	err := refusal.Unsupported("2099-01-01", protocol.Versions())
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
	err := refusal.Unsupported("é"+strings.Repeat("x\x00", 1<<20), nil)
	if len(err.Data) > 1000 || len(err.Message) > 100 {
		t.Errorf("%d bytes of data, %d of message", len(err.Data), len(err.Message))
	}
	for _, requested := range []string{strings.Repeat("x", 1<<10), "x" + strings.Repeat("é", 1<<10)} { // the second one is cut within a letter
		err := refusal.Unsupported(requested, nil)
		var data protocol.UnsupportedVersionData
		if failed := protocol.Unmarshal(err.Data, &data); failed != nil || err.Code != protocol.CodeUnsupportedVersion || !strings.HasPrefix(data.Requested, requested[:63]) {
			t.Errorf("%.10s…: got %v with %s, want its beginning", requested, err, err.Data)
		}
	}
}
