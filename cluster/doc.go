// Package cluster lets several nodes serve one MCP endpoint: each request may arrive at any
// node, and a session goes on at another node when its own has ended.
package cluster
