package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A Conn may have several names. Lookup and All find it under each, and All yields the names in order.
func TestRegister(t *testing.T) {
	r := registry.New(registry.Options{})
	weather, search := open(), open()
	wantFound(t, r, "weather", nil)
	register(t, r, "weather", weather)
	register(t, r, "wetter", weather)
	register(t, r, "search", search)
	register(t, r, "search", search) // again
	wantFound(t, r, "weather", weather)
	wantFound(t, r, "wetter", weather)
	var names []string
	for name, c := range r.All() {
		wantFound(t, r, name, c)
		names = append(names, name)
	}
	for range r.All() {
		names = append(names, "left at once")
		break
	}
	if want := []string{"search", "weather", "wetter", "left at once"}; !slices.Equal(names, want) || r.Len() != 3 {
		t.Errorf("All yields %q, Len is %d; want %q", names, r.Len(), want)
	}
}

// Unregister frees a name only if it belongs to the given Conn. A second call does nothing.
//
// Guarantees: G-0013.2
func TestOnlyTheHolderUnregisters(t *testing.T) {
	r := registry.New(registry.Options{Holder: "here"})
	first, second := open(), open()
	unregister(t, r, "n", first)
	register(t, r, "n", first)
	err := r.Register(t.Context(), "n", second)
	var taken *registry.TakenError
	if !errors.As(err, &taken) || *taken != (registry.TakenError{Name: "n", Holder: "here"}) {
		t.Errorf("Register of a name that is taken returned %v, want a TakenError", err)
	}
	unregister(t, r, "n", second)
	wantFound(t, r, "n", first)
	unregister(t, r, "n", first)
	wantFound(t, r, "n", nil)
	register(t, r, "n", second)
	unregister(t, r, "n", first)
	wantFound(t, r, "n", second)
}

// A TakenError says who holds the name. An address of another process is quoted.
//
// Guarantees: G-0013.1
func TestTakenErrorNamesTheHolder(t *testing.T) {
	for holder, want := range map[string]string{
		"":                  `registry: name "n" is taken by another Conn of this process`,
		"host:1":            `registry: name "n" is taken by "host:1"`,
		"a\n\x1b[31mpanic:": `registry: name "n" is taken by "a\n\x1b[31mpanic:"`,
	} {
		r := registry.New(registry.Options{Holder: holder})
		register(t, r, "n", open())
		if err := r.Register(t.Context(), "n", open()); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// A closed Conn is not found and cannot be registered. Its names are free for another Conn.
//
// Guarantees: G-0013.3
func TestClosedConnsHaveNoName(t *testing.T) {
	r := registry.New(registry.Options{})
	first, second := open(), open()
	register(t, r, "n", first)
	register(t, r, "m", first)
	finish(t, first)
	wantFound(t, r, "n", nil)
	for name := range r.All() {
		t.Errorf("All yields %q, want nothing", name)
	}
	if r.Len() != 0 {
		t.Errorf("Len is %d, want 0", r.Len())
	}
	if err := r.Register(t.Context(), "k", first); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("Register of a closed Conn returned %v, want ErrClosed", err)
	}
	register(t, r, "n", second)
	wantFound(t, r, "n", second)
	unregister(t, r, "m", first)
	register(t, r, "m", second)
}

// A name must be valid UTF-8 of 1 to 256 bytes, and must print as it is.
//
// Guarantees: G-0013.14
func TestWhichNamesAreValid(t *testing.T) {
	r := registry.New(registry.Options{})
	for _, name := range []string{
		"a", " ", "weather/berlin", "Москва", "日本語", "e\u0301", "😀", strings.Repeat("x", 256), strings.Repeat("é", 128),
	} {
		register(t, r, name, open())
	}
	for _, name := range []string{
		"", "\x00", "a\nb", "a\tb", "\x7f", "\u0085", "\u2028", "\u2029", "a\u202eb", "\u200b", "\ufeff", "\u00a0", "\ue000", "a\xff", "\xed\xa0\x80", strings.Repeat("x", 257), strings.Repeat("é", 128) + "x",
	} {
		var refused *registry.NameError
		if err := r.Register(t.Context(), name, open()); !errors.As(err, &refused) || refused.Name != name || len(err.Error()) > 300 {
			t.Errorf("Register of %q returned %v, want a short NameError", name, err)
		}
	}
	if r.Len() != 9 {
		t.Errorf("Len is %d, want 9", r.Len())
	}
}

// Register panics without a Conn.
func TestRegisterNeedsAConn(t *testing.T) {
	const want = "registry: Register needs a Conn"
	defer func() {
		if value := recover(); value != want {
			t.Errorf("panic: %v, want %s", value, want)
		}
	}()
	registry.New(registry.Options{}).Register(t.Context(), "n", nil)
}

// sharing returns pairs of Registries that share their names: the same one twice, two of one process, and
// two of a cluster.
func sharing() map[string][2]*registry.Registry {
	alone := registry.New(registry.Options{})
	local := registry.Options{Store: new(registry.Local)}
	c := newCluster(1)
	return map[string][2]*registry.Registry{
		"one":     {alone, alone},
		"local":   {registry.New(local), registry.New(local)},
		"cluster": {registry.New(registry.Options{Store: c.member(), Holder: "a"}), registry.New(registry.Options{Store: c.member(), Holder: "b"})},
	}
}

// Many children of several supervisors register the same names: each name has one Conn at a time, and the
// others get an error.
//
// Guarantees: G-0013.1
func TestOneConnHasTheName(t *testing.T) {
	for kind, registries := range sharing() {
		t.Run(kind, func(t *testing.T) {
			rivals := newRivals(registries)
			for n := range 4 {
				s := supervisor.New(supervisor.Options{Name: fmt.Sprint(n)})
				defer s.Stop(context.Background())
				for range 8 {
					spec := supervisor.ChildSpec{Restart: supervisor.Temporary, Run: rivals.run}
					if _, err := s.Start(t.Context(), spec); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 4 * 8 {
				if err := testenv.Receive(t, rivals.results, "a rival has ended"); err != nil {
					t.Error(err)
				}
			}
			for _, r := range registries {
				if r.Len() != 0 {
					t.Errorf("%d names are left, want none", r.Len())
				}
			}
		})
	}
}

// rivals register and unregister the same two names again and again.
type rivals struct {
	registries [2]*registry.Registry
	turns      atomic.Int64
	holding    [2]atomic.Int64
	results    chan error
}

func newRivals(registries [2]*registry.Registry) *rivals {
	return &rivals{registries: registries, results: make(chan error, 32)}
}

func (v *rivals) run(ctx context.Context) error {
	c := open()
	var err error
	for range 50 {
		turn := v.turns.Add(1)
		err = errors.Join(err, v.take(ctx, v.registries[turn%2], int(turn/2%2), c))
	}
	v.results <- err
	return nil
}

// take registers a name, checks that no other rival has it, and unregisters it.
func (v *rivals) take(ctx context.Context, r *registry.Registry, n int, c *conn.Conn) error {
	name := fmt.Sprint("name ", n)
	switch err := r.Register(ctx, name, c); {
	case errors.As(err, new(*registry.TakenError)):
		return nil
	case err != nil:
		return err
	}
	if others := v.holding[n].Add(1) - 1; others != 0 {
		return fmt.Errorf("%s has %d other holders, want none", name, others)
	}
	if found, _ := r.Lookup(name); found != c {
		return fmt.Errorf("Lookup of %s finds another Conn", name)
	}
	v.holding[n].Add(-1)
	return r.Unregister(ctx, name, c)
}

// If many Conns are registered under one name at the same time, exactly one gets it.
//
// Guarantees: G-0013.1
func TestOneOfManyGetsTheName(t *testing.T) {
	for kind, registries := range sharing() {
		t.Run(kind, func(t *testing.T) {
			results := make(chan error)
			for n := range 64 {
				go func() { results <- registries[n%2].Register(t.Context(), "n", open()) }()
			}
			won := 0
			for range 64 {
				switch err := testenv.Receive(t, results, "Register returns"); {
				case err == nil:
					won++
				case !errors.As(err, new(*registry.TakenError)):
					t.Error(err)
				}
			}
			if won != 1 {
				t.Errorf("%d Conns got the name, want 1", won)
			}
		})
	}
}
