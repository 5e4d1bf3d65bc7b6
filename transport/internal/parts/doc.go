// Package parts has the parts that links are built from: the credit of a stream, the receiver
// behind it, a bounded queue of frames, the end of a client's link over HTTP, and the record of
// when bytes came in. None has a goroutine. Each says whether it may be used concurrently.
package parts

// DefaultMaxFrame is the default maximum size of a message, in bytes, of every transport.
const DefaultMaxFrame = 16 << 20
