// Package cache keeps what a server has answered for as long as the server and the program allow
// (ADR-0035): lists, and the contents of resources.
//
// A Cache owns the encoded results of one session, their total size, and the counts of the changes
// that the server has reported. It does not own how a result is decoded or which requests may be
// kept: the client decides that. The counts are what keeps an old answer out: a caller takes them
// by Begin before its request, and Keep refuses the answer if one has grown.
//
// The package starts no goroutine. Its functions run on the goroutines of callers, and on the one that
// handles the notifications of the server, and never wait for anything but the lock of the cache.
// A notification costs one look at it, and one search in it for each kept result.
package cache
