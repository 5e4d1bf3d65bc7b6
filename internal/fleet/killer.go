package main

import (
	"context"
	"math/rand/v2"
	"time"
)

// tellEvery is how often the soak tells how far it has come.
const tellEvery = 10 * time.Second

// killUntil kills random children at random times until the end. A kill that
// comes late does not put off those after it.
func (s *soak) killUntil(ctx context.Context, end time.Time) error {
	random := rand.New(rand.NewPCG(s.seed, 0))
	tellAt := time.Now().Add(tellEvery)
	for at := time.Now(); ; {
		at = at.Add(time.Duration(random.ExpFloat64() / s.options.kills * float64(time.Second)))
		if at.After(end) {
			break
		}
		if err := pause(ctx, time.Until(at)); err != nil {
			return err
		}
		if s.children[random.IntN(len(s.children))].kill() {
			s.kills++
		}
		if time.Now().After(tellAt) {
			s.tell()
			tellAt = tellAt.Add(tellEvery)
		}
	}
	err := pause(ctx, time.Until(end))
	s.tell()
	return err
}

// tell tells how far it has come.
func (s *soak) tell() {
	s.print("   %s calls, %s children killed", count(int(s.ledger.numbers.Load())), count(s.kills))
}
