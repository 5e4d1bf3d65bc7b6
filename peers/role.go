package peers

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// roles returns what cmd/peer can run, by name.
func roles() map[string]func(ctx context.Context, arguments []string) error {
	return map[string]func(context.Context, []string) error{
		"bowline": serveBowline, // arguments: the revisions to support; none means all
		"go-sdk":  serveGoSDK,
		"mcp-go":  serveMCPGo,
		"add":     serveAdd, // arguments: the name of an SDK
		"http":    handle,   // arguments: a name from handlers, and the revisions
		"witness": witness,  // arguments: an address, and a command to run
	}
}

// Play plays a role until its input ends, or until it is interrupted.
func Play(ctx context.Context, role string, arguments []string) error {
	play, known := roles()[role]
	if !known {
		return fmt.Errorf("role %q is none of %v", role, slices.Sorted(maps.Keys(roles())))
	}
	return play(ctx, arguments)
}
