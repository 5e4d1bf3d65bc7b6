package gateway

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
)

// set returns a time as it is read after the clock of the machine was set forward by so many seconds, or back.
func set(t *testing.T, at time.Time, seconds int) time.Time {
	t.Helper()
	turned := at
	*(*uint64)(unsafe.Pointer(&turned)) += uint64(seconds) << 30 // where package time has them beside its monotonic reading
	if by := turned.Round(0).Sub(at.Round(0)); turned.Sub(at) != 0 || by != time.Duration(seconds)*time.Second {
		t.Fatalf("%v is not %v set by %d seconds: this test does not know package time", turned, at, seconds)
	}
	return turned
}

// Calls wake a server once in five seconds, whatever happens to the clock meanwhile.
//
// Guarantees: G-0088.12
func TestClockThatIsSetBetweenCalls(t *testing.T) {
	for _, seconds := range []int{-3600, 3600} {
		c, now := new(connection), time.Now()
		for after, want := range map[time.Duration]bool{wakeInterval - 1: false, wakeInterval: true} {
			c.hasAnswered()
			if !c.mayWake(now) {
				t.Fatal("the first call wakes nothing")
			}
			if got := c.mayWake(set(t, now.Add(after), seconds)); got != want {
				t.Errorf("%v later, with a clock set by %d s: woken %t, want %t", after, seconds, got, want)
			}
		}
	}
}

type unreachable struct{}

func (unreachable) Open(ctx context.Context) (transport.Link, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A first list waits no longer if the clock was set back since the file was applied.
//
// Guarantees: G-0088.3
func TestClockThatIsSetBackAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"a":{"command":"/bin/a"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := mcpjson.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g := New(Options{Each: func(s *mcpjson.Server, _ *client.Options) { s.Transport = unreachable{} }})
	defer g.Close(context.Background())
	if _, err := g.Apply(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	until := set(t, g.warmUntil.Load().Add(-warmUp), 3600) // as if five seconds and the change of the clock had passed
	g.warmUntil.Store(&until)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if g.warm(ctx, catalogue.Tools); ctx.Err() != nil {
		t.Error("it waits for the hour by which the clock was set back")
	}
}
