package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Connect and Start fail immediately if the transport could never open.
func TestTransportThatCanNeverBeOpened(t *testing.T) {
	for name, test := range map[string]struct {
		transport transport.Transport
		want      any
	}{
		"no command":      {&stdio.Command{}, new(*transport.StartError)},
		"no URL":          {&streamable.Client{}, new(*transport.URLError)},
		"no scheme":       {&streamable.Client{URL: "localhost:80"}, new(*transport.URLError)},
		"no URL's syntax": {&streamable.Client{URL: "http://[::1"}, new(*transport.URLError)},
	} {
		t.Run(name, func(t *testing.T) {
			guard, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, why := client.New(clientInfo, client.Options{}), conn.Reason{}
			if _, err := c.Connect(guard, test.transport); !errors.As(err, test.want) || errors.As(err, &why) {
				t.Errorf("Connect: %v", err)
			}
			if _, err := c.Start(guard, "search", test.transport); !errors.As(err, test.want) {
				t.Errorf("Start: %v", err)
			}
		})
	}
}

// Connect does not wait for a transport that hides a missing command.
func TestConnectToNoCommand(t *testing.T) {
	guard, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	why := conn.Reason{}
	_, err := client.New(clientInfo, client.Options{}).Connect(guard, openFunc(new(stdio.Command).Open))
	if !errors.As(err, &why) || why.Kind != conn.ExecutableMissing {
		t.Errorf("Connect: %v", err)
	}
}
