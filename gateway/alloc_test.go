//go:build !race

package gateway_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// A call through a gateway makes at most 40 allocations more than the same call without one. The race detector allocates, so the test is
// skipped under it.
//
// Guarantees: G-0088.15
func TestAllocationsOfACall(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		direct := allocationsOf(t, version, echoServer(t), "echo")
		for _, behind := range []string{protocol.LatestLegacy, protocol.Latest} {
			if through := allocationsOf(t, version, benchGateway(t, behind), "a__echo"); through > direct+40 {
				t.Errorf("%s to %s: %v allocations, and %v without the gateway", version, behind, through, direct)
			}
		}
	}
}

// A call that is checked, decided and recorded makes at most 12 allocations more than one that is not.
//
// Guarantees: G-0099.12
func TestAllocationsOfGuards(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		open, guarded := leastOfThree(guardedCall{version: version, open: true}.prepare(t)), leastOfThree(guardedCall{version: version}.prepare(t))
		if guarded > open+12 {
			t.Errorf("%s: %v allocations, and %v without the guards", version, guarded, open)
		}
	}
}

// A policy makes a call no more than two allocations dearer.
//
// Guarantees: G-0098.15
func TestAllocationsOfAPolicy(t *testing.T) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		without := allocationsOf(t, version, benchGateway(t, version), "a__echo")
		if with := allocationsOf(t, version, benchGateway(t, version, allowingAll), "a__echo"); with > without+2 {
			t.Errorf("%s: %v allocations, and %v without a policy", version, with, without)
		}
	}
}

// What a policy hides is refused with the same bytes, and with as many allocations, as what does not exist.
//
// Guarantees: G-0098.1
func TestHiddenIsAsUnknown(t *testing.T) {
	f := withPolicy(t, protocol.Latest, `{"policy": [{"allow": ["a/*"]}]}`, gateway.Options{})
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		session := f.client(version, client.Options{})
		everything(t, session)
		refused := func(tool string) string {
			_, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)})
			return strings.ReplaceAll(err.Error(), tool, "tool")
		}
		if hidden, unknown := refused("b__who"), refused("b__why"); hidden != unknown {
			t.Errorf("%s; unknown: %s", hidden, unknown)
		}
		// In turns, and the least of each: a busy machine makes some calls dearer, and so are the first ones of a session.
		ofHidden, ofUnknown := math.Inf(1), math.Inf(1)
		for range 20 {
			ofHidden = min(ofHidden, allocationsOfMany(func() { refused("b__who") }))
			ofUnknown = min(ofUnknown, allocationsOfMany(func() { refused("b__why") }))
		}
		if math.Abs(ofHidden-ofUnknown) >= 1 {
			t.Errorf("%v allocations; unknown: %v", ofHidden, ofUnknown)
		}
	}
}

// leastOfThree is of rounds of 2,000 calls: a busy machine makes some calls dearer.
func leastOfThree(call func()) float64 {
	return min(testing.AllocsPerRun(2000, call), testing.AllocsPerRun(2000, call), testing.AllocsPerRun(2000, call))
}

// allocationsOfMany is not rounded: two calls that do the same must not come to lie at both sides of a whole number.
func allocationsOfMany(call func()) float64 {
	const calls = 50
	return testing.AllocsPerRun(1, func() {
		for range calls {
			call()
		}
	}) / calls
}

func allocationsOf(t *testing.T, version string, s *server.Server, tool string) float64 {
	session := benchClient(t, version, s)
	params := &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"message":"hello"}`)}
	return testing.AllocsPerRun(1000, func() {
		if _, err := session.CallTool(t.Context(), params); err != nil {
			t.Fatal(err)
		}
	})
}
