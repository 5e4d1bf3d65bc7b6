// Package peers holds Bowline against the MCP implementations of others: over
// standard input and output and over streamable HTTP, with real processes and
// sockets, in both roles and in every revision. What it finds is docs/interop.md.
//
//	go test ./...                                   # fails when the page is stale
//	go test -count=1 -run TestInterop . -update     # rewrites the page
//
// The tests need go, node 20 and npm. What they need from npm is installed once
// into bowline-npm in the folder for temporary files.
package peers
