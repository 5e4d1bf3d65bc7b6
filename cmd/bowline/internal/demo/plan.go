package demo

import (
	"math/rand/v2"
	"time"
)

// A fault is what befalls a server.
type fault string

const (
	killed    fault = "killed"    // SIGKILL, with calls in flight
	garbage   fault = "garbage"   // writes lines that are no messages
	oversized fault = "oversized" // sends a frame above the limit
	stalled   fault = "stalled"   // SIGSTOP
	resumed   fault = "resumed"   // SIGCONT
	leaves    fault = "leaves"    // ends by itself, in good order
)

// losesLink reports whether the fault ends the server's process, so that it
// has to come back.
func (f fault) losesLink() bool { return f == killed || f == oversized || f == leaves }

// An act is one fault at one time.
type act struct {
	at     time.Duration // since the beginning
	server int
	fault  fault
}

// scene is when each fault comes, in parts of the whole, and to which of the
// servers in their shuffled order.
var scene = [...]struct {
	part   float64
	server int
	fault  fault
}{
	{0.10, 0, killed},
	{0.28, 1, garbage},
	{0.36, 1, oversized},
	{0.52, 2, stalled},
	{0.66, 2, resumed},
	{0.72, 0, leaves},
}

// plan draws who suffers what, and when, from a seed: equal seeds give equal
// plans. Times vary by 2 % of the whole either way, which keeps their order.
func plan(seed uint64, servers int, whole time.Duration) []act {
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(servers)
	acts := make([]act, len(scene))
	for i, s := range scene {
		part := s.part + 0.04*random.Float64() - 0.02
		acts[i] = act{time.Duration(part * float64(whole)), order[s.server%servers], s.fault}
	}
	return acts
}
