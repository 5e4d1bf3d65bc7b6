package client_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// bannerLines is the number of lines that a noisy child prints before it serves.
const bannerLines = 300

// playBanner prints a banner on standard output and then serves there.
func playBanner() {
	for i := range bannerLines {
		fmt.Printf("[info] loading module %d\n", i)
	}
	if err := newServer(server.Options{}).Serve(context.Background(), &stdio.Server{}); err != nil {
		panic(err)
	}
}

// A child that prints a banner or log lines on standard output connects. The lines are
// dropped and counted as malformed.
//
// Guarantees: G-0001.12
func TestServerThatPrintsABannerConnects(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := &stdio.Command{Path: self, Env: []string{roleVariable + "=banner"}}
	session, err := client.New(clientInfo, client.Options{}).Connect(ctx, specification.WatchClient(t, command))
	if err != nil {
		t.Fatal(err)
	}
	if epoch := session.Conn().Status().Epoch; epoch != 1 {
		t.Errorf("it took %d attempts, want 1", epoch)
	}
	if err := session.Ping(ctx); err != nil {
		t.Error(err)
	}
	if dropped := session.Conn().Stats().Malformed; dropped != bannerLines {
		t.Errorf("%d malformed lines were counted, want %d", dropped, bannerLines)
	}
	if err := session.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}
