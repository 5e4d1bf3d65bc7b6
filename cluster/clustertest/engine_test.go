package clustertest

import (
	"testing"

	"github.com/bowline-mcp/bowline/cluster"
)

func contractHarness(s *Service) Harness {
	return Harness{
		Engine: func(*testing.T) cluster.Engine { return s.Engine() },
		Cut: func(e cluster.Engine) func() {
			e.(*Engine).Cut()
			return e.(*Engine).Heal
		},
		Wipe: s.Wipe,
	}
}

func TestEngineContract(t *testing.T) {
	EngineContract(t, func(*testing.T) Harness { return contractHarness(New(Options{})) })
}
