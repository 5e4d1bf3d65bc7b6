package proptest_test

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// served is a transport in memory whose peer serves with a handler.
func served(_ *testing.T, h conn.Handler) transport.Transport {
	return inmem.New(func(link transport.Link) {
		go conn.Accept(link, conn.Options{Handler: h}).Run(context.Background())
	}, inmem.Options{})
}

func TestSoak(t *testing.T) { proptest.Soak(t, served, proptest.Options{}) }
