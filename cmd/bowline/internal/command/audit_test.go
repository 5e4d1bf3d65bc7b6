package command

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

// Each record is printed once, also those of files that are full, and of files that become full while they are followed.
//
// Guarantees: G-0099.9
func TestATrailOfManyFilesIsPrinted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	trail, err := audit.Open(path, audit.Options{Key: []byte(strings.Repeat("k", 32)), Block: true, MaxSize: 2000})
	if err != nil {
		t.Fatal(err)
	}
	const records = 400
	write := func(from int) {
		for i := range records {
			trail.Write(context.Background(), audit.Record{Time: time.Now(), Principal: "ada", Name: fmt.Sprint("tool", from+i)})
		}
	}
	write(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &untilSeen{last: fmt.Sprint("tool", 2*records-1), seen: cancel}
	following := make(chan error, 1)
	go func() { following <- (&auditing{follow: true, user: "ada"}).print(ctx, out, path) }()
	write(records)
	if err := <-following; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
	var whole strings.Builder
	if err := (&auditing{user: "ada"}).print(t.Context(), &whole, path); err != nil {
		t.Error(err)
	}
	for how, text := range map[string]string{"followed": out.text.String(), "printed": whole.String()} {
		if n := strings.Count(text, "tool"); n != 2*records {
			t.Errorf("%s: %d records, want %d", how, n, 2*records)
		}
	}
}

// An untilSeen says when a text was written.
type untilSeen struct {
	last string
	seen func()

	mu   sync.Mutex
	text strings.Builder
}

func (u *untilSeen) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if strings.Contains(string(p), u.last) {
		u.seen()
	}
	return u.text.Write(p)
}
