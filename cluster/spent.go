package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/server"
)

const (
	// spentPatience is how long a request waits for an Engine that cannot be reached, before
	// it is refused.
	spentPatience = 3 * time.Second

	// spentAttempt is how long one attempt takes: an answer may be lost.
	spentAttempt = time.Second

	// spentSkew is for how much longer than asked for the Engine remembers, because its clock
	// may be ahead.
	spentSkew = time.Minute
)

// Spent returns a server.Spent that all nodes share: a state of a call can be used once in the
// cluster. While the Engine cannot be reached, states are refused after three seconds.
func (n *Node) Spent() server.Spent { return spentStates{n.spent()} }

// Proofs returns a resource.Proofs that all nodes share: a DPoP proof is accepted once in the
// cluster. While the Engine cannot be reached, proofs are refused after three seconds.
func (n *Node) Proofs() resource.Proofs { return spentProofs{n.spent()} }

func (n *Node) spent() *spent {
	return &spent{n, n.lateBucket(BucketOptions{Name: "spent", OwnTTL: true, MaxValue: 1 << 10})}
}

type spentStates struct{ *spent }

// Spend implements server.Spent.
func (s spentStates) Spend(ctx context.Context, state [16]byte, until time.Time) (first bool, err error) {
	return s.first(ctx, "state."+s.node.hashed(string(state[:])), until)
}

type spentProofs struct{ *spent }

// Take implements resource.Proofs.
func (s spentProofs) Take(ctx context.Context, proof resource.ProofID, until time.Time) (fresh bool, err error) {
	return s.first(ctx, "proof."+s.node.hashed(string(proof[:])), until)
}

// A spent remembers what was used, by keys that expire.
type spent struct {
	node   *Node
	bucket *lateBucket
}

// first reports whether a key is used for the first time. After a write whose outcome is
// unknown, the key may be there because of that write: a mark tells.
func (s *spent) first(ctx context.Context, key string, until time.Time) (first bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, spentPatience)
	defer cancel()
	mark := []byte(rand.Text())
	doubtful := false
	err = s.node.persist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, spentAttempt)
		defer cancel()
		bucket, err := s.bucket.open(ctx)
		if err != nil {
			return err
		}
		_, err = bucket.Create(ctx, key, mark, max(time.Until(until), 0)+spentSkew)
		switch {
		case err == nil:
			first = true
		case !errors.Is(err, ErrExists):
			doubtful = true
			return err
		case doubtful:
			entry, err := bucket.Get(ctx, key)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			first = err == nil && bytes.Equal(entry.Value, mark)
		}
		return nil
	})
	return first, err
}
