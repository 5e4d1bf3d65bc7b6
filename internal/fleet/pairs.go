package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
)

type pairsOptions struct {
	pairs    int           // how many
	starting int           // of them, at once
	killed   float64       // percent
	lost     int           // how many lose their server at once
	backoff  time.Duration // before the first attempt after a loss
	profile  int           // bytes between sampled allocations; 0: none
}

// unhurried is how long a call may take on a machine that is busy with ten
// thousand others: nothing here is to fail for want of speed.
const unhurried = 2 * time.Minute

// A fleet is many sessions of one client, under one supervisor, with one server.
type fleet struct {
	options    pairsOptions
	out        io.Writer
	random     *rand.Rand
	before     weight // of the process without pairs
	books      *books
	tools      *tools
	server     *server.Server
	supervisor *supervisor.Supervisor
	client     *client.Client
	pairs      []*pair
	killed     []*pair // those of the kill phase
}

func newFleet(out io.Writer, seed uint64, o pairsOptions) *fleet {
	f := &fleet{
		options: o, out: out, random: rand.New(rand.NewPCG(seed, 0)),
		before: weigh(), books: newBooks(), tools: newTools(),
		supervisor: supervisor.New(supervisor.Options{Name: "fleet"}),
	}
	f.server = f.tools.server()
	f.client = client.New(protocol.Implementation{Name: "fleet", Version: "1"}, client.Options{
		Supervisor: f.supervisor,
		Conn: conn.Options{
			BackoffMin: o.backoff, RequestTimeout: unhurried, InitTimeout: unhurried,
			Hooks: f.books.hooks(),
		},
	})
	f.pairs = make([]*pair, o.pairs)
	for i := range f.pairs {
		f.pairs[i] = &pair{fleet: f}
	}
	return f
}

// runPairs runs the phases, until one fails. Whatever happens, what was started
// is drained, and the books are closed.
func runPairs(ctx context.Context, out io.Writer, seed uint64, o pairsOptions) error {
	if o.pairs < 10 || o.starting < 1 || o.lost < 1 || o.killed <= 0 || o.killed > 50 {
		return errors.New("at least ten -pairs, one -starting and one -lost, and -killed up to 50")
	}
	f := newFleet(out, seed, o)
	began := time.Now()
	f.print("%s pairs of a client session and a server's, under one supervisor (seed %d)", count(o.pairs), seed)
	err := f.phases(ctx)
	err = errors.Join(err, f.drainAll(ctx), f.nothingLeft())
	f.print("\n%v in all; at most %s MB from the operating system", round(time.Since(began)), count(int(weigh().system>>20)))
	return err
}

func (f *fleet) phases(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{f.start, f.callEach, f.idle, f.kill, f.loseServer} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// print prints one line.
func (f *fleet) print(format string, args ...any) { fmt.Fprintf(f.out, format+"\n", args...) }
