// Command peer plays a role in the interoperation suite:
//
//	peer go-sdk
//	peer mcp-go
//	peer bowline [revision...]
//	peer add bowline|go-sdk|mcp-go
//	peer http bowline|go-sdk|mcp-go [revision...]
//	peer witness <address> <command> [argument...]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bowline-mcp/bowline/peers"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "peer: a role is needed")
		os.Exit(2)
	}
	if err := peers.Play(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}
