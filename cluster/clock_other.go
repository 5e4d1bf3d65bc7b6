//go:build !linux

package cluster

import "time"

// suspended returns for how long the machine has been suspended since it started, as far as
// known: this system does not tell. Then a lease that expired during a suspension is noticed
// by the first renewal after it.
func suspended() time.Duration { return 0 }
