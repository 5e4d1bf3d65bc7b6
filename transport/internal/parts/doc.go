// Package parts has the parts that links are built from: the credit of a stream, the receiver
// behind it, a bounded queue of frames, the record of when bytes came in, and what the links of clients
// over HTTP have in common. Only that has goroutines: those that make requests, and one while the link ends,
// which waits for them. Each says whether it may be used concurrently.
package parts

// DefaultMaxFrame is the default maximum size of a message, in bytes, of every transport.
const DefaultMaxFrame = 16 << 20
