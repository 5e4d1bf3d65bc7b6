package embedded

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// memberVariable makes the test binary join a cluster with memberOptions, as JSON, until its standard
// input ends.
const memberVariable = "BOWLINE_EMBEDDED_MEMBER"

func TestMain(m *testing.M) {
	playRole()
	if options := os.Getenv(memberVariable); options != "" {
		if err := runMember(options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Once()
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m, leftByServers()...)
}

func runMember(options string) error {
	var o memberOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	e, err := Join(context.Background(), Options{
		Folder: o.Folder, Cluster: o.Cluster, Listen: o.Listen, Seeds: o.Seeds, Key: o.Key, Routes: o.Routes,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Println("joined")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	return goleak.Find(leftByServers()...)
}

// leftByServers are goroutines of a stream. A server of NATS that is shut down while it makes a stream has
// collected the streams that it stops before, and nobody can stop this one. A server that was not shut down has
// many other goroutines, so these hide none.
func leftByServers() (all []goleak.Option) {
	const of = "github.com/nats-io/nats-server/v2/server"
	for _, name := range []string{".(*fileStore).flushStreamStateLoop", ".(*stream).internalLoop", ".(*stream).signalConsumersLoop", "/ats.Register.func1"} {
		all = append(all, goleak.IgnoreAnyFunction(of+name))
	}
	return all
}
