package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// freeAddresses returns addresses that nobody uses.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// Servers of several machines prove with certificates who they are. One with a certificate of
// another authority, or with another token, does not become one of them.
//
// Guarantees: G-0078.7
func TestServersProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	trusted, other := newAuthority(t), newAuthority(t)
	seeds := freeAddresses(t, 3)
	options := func(n int, config *tls.Config) Options {
		o := testOptions(t)
		o.Seeds, o.Listen, o.Token, o.TLS = seeds, seeds[n], "a token of the servers", config
		return o
	}
	engines := make([]cluster.Engine, 3)
	var group sync.WaitGroup
	for n := range 2 {
		group.Go(func() { engines[n] = join(t, options(n, trusted.config(t))) })
	}
	group.Wait()
	stranger := options(2, other.config(t))
	impostor := options(2, trusted.config(t))
	impostor.Token = "another token of theirs"
	for what, o := range map[string]Options{"a certificate of another authority": stranger, "another token": impostor} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		e, err := Join(ctx, o)
		cancel()
		if err == nil {
			e.Close()
		}
		if !errors.Is(err, cluster.ErrUnavailable) {
			t.Errorf("with %s Join got %v, want ErrUnavailable", what, err)
		}
	}
	engines[2] = join(t, options(2, trusted.config(t)))
	for n, e := range engines {
		b := must[cluster.Bucket](t)(e.Bucket(within(t), cluster.BucketOptions{Name: "b"}))
		if n == 0 {
			must[uint64](t)(b.Create(within(t), "k", []byte("value"), 0))
		} else if _, err := b.Create(within(t), "k", nil, 0); !errors.Is(err, cluster.ErrExists) {
			t.Errorf("a create of what another server has got %v", err)
		}
	}
}
