// Package bench measures Bowline beside other MCP implementations in Go, and
// beside the least that the same work can cost. What it finds is
// docs/benchmarks.md, which says how.
//
//	go run ./cmd/bench -write ../docs/benchmarks.md   # from the folder peers: the whole page
//	go run ./cmd/bench -quick                         # to see that it works
//	go run ./cmd/bench -rows '^http$' -rounds 3
package bench
