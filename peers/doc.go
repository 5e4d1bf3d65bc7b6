// Package peers holds Bowline against the MCP implementations of others: over
// standard input and output and over streamable HTTP, with real processes and
// sockets, in both roles and in every revision. What it finds is docs/interop.md.
//
//	go test -tags npm .                                      # fails when the page is stale
//	go test -tags npm -count=1 -run TestInterop . -update    # rewrites the page
//
// The tests need only Go, but for those behind the build tag npm, which .ci/run npm runs: they
// need node 20 and npm, and install what they need once into bowline-npm in the folder for
// temporary files.
package peers
