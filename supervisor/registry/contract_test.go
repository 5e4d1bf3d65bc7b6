package registry_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

func TestLocalContract(t *testing.T) {
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		names := new(registry.Local)
		return proptest.Stores{A: names, B: names}
	})
}

// A store that is slow and whose answers and watches break off keeps the
// contract as well, if it is made for it.
func TestClusterContract(t *testing.T) {
	seed := uint64(0)
	proptest.StoreContract(t, func(*testing.T) proptest.Stores {
		seed++
		c := newCluster(seed)
		return proptest.Stores{A: c.member(), B: c.member(), Lose: c.expire}
	})
}
