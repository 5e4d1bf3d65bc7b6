// Package shared keeps what the servers of a gateway offer, and to what their tools are pinned, for all gateways of a cluster.
//
//	s := shared.New(store, known, log)
//	s.Begin()
//	s.Pin(ctx, server, list) // before the catalogue learns it
//	known.Learn(server, catalogue.Tools, list)
//	s.Tell(server, catalogue.Tools)
//
// The store has the truth about pins: who lists a tool first pins it, for all, and an approval counts when it is in the store. What a node knows of it is a copy, with
// which it goes on while the store is away; then nothing is pinned, and nothing approved. Of a list a node believes its own connection, and the store while it has none.
//
// Begin starts two goroutines: one follows the store, and one reads and writes what is to be. Close ends both and waits for them. Pin and Approve run on that of
// their caller, for at most two seconds. A nil *Shared is that of a gateway in no cluster: it does nothing.
package shared

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/internal/wait"
)

const (
	patience   = 2 * time.Second // how long the store may take for one thing
	retryEvery = 5 * time.Second
	tryAfter   = 5 * time.Millisecond // when others have changed a value at the same time
)

// A Store is gateway.Shared.
type Store interface {
	Load(ctx context.Context, key string) (value []byte, revision uint64, err error)
	Save(ctx context.Context, key string, value []byte, revision uint64) (saved bool, err error)
	Watch(ctx context.Context, f func(value []byte)) error
}

// A Shared is what a gateway shares. Its methods may be called from any goroutine.
type Shared struct {
	store Store
	known *catalogue.Catalogue
	log   *slog.Logger

	Learned func(catalogue.Kind)     // clients are offered something else
	IsAway  func(server string) bool // this node has no connection with it

	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	kick    chan struct{} // capacity one: there is work

	pinning sync.Mutex
	numbers map[string]uint64 // by key: of the newest pins that are known

	mu   sync.Mutex
	work map[string]*work             // by name of the server
	has  map[string][sha256.Size]byte // by key: the list that the store had last
}

// work is what is to be read of a server, and written.
type work struct {
	of    catalogue.Server
	learn bool                    // what the store has of it
	tell  map[catalogue.Kind]bool // what this node has
}

// New returns a Shared over a store.
func New(store Store, known *catalogue.Catalogue, log *slog.Logger) *Shared {
	s := &Shared{store: store, known: known, log: log, kick: make(chan struct{}, 1), numbers: make(map[string]uint64), work: make(map[string]*work), has: make(map[string][sha256.Size]byte)}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Begin begins to follow the store. Learned and IsAway are set by then.
func (s *Shared) Begin() {
	if s == nil {
		return
	}
	s.running.Go(s.follow)
	s.running.Go(s.serve)
}

// Close ends what Begin has begun, and waits for that.
func (s *Shared) Close() {
	if s == nil {
		return
	}
	s.end()
	s.running.Wait()
}

// Pin pins the tools of a list that no gateway has pinned yet, and takes over to what all of them are pinned. If the store cannot say so, that is done later.
func (s *Shared) Pin(ctx context.Context, of catalogue.Server, list catalogue.List) {
	if s == nil {
		return
	}
	if err := s.pin(ctx, of, catalogue.Seen(list), nil); err != nil {
		s.log.Warn("bowline: the cluster could not be asked for the pins of a server; tools that it has not pinned count as changed", "server", of.Name, "error", err)
		s.Learn(of)
	}
}

// Approve pins tools for all gateways to what they are. When it fails, it may have done so all the same, as after a write whose answer is lost: the list of pins tells.
func (s *Shared) Approve(ctx context.Context, of catalogue.Server, sums map[string]string) error {
	err := s.pin(ctx, of, nil, sums)
	if err != nil {
		return fmt.Errorf("the other gateways of the cluster cannot be told, so it is not known to be approved: see bowline pins, and approve it again: %w", err)
	}
	return nil
}

// Learn has what the store knows of servers taken over soon: their pins, and lists that this node does not know.
func (s *Shared) Learn(servers ...catalogue.Server) {
	for _, of := range servers {
		s.add(of, func(w *work) { w.learn = true })
	}
}

// Tell has a list of a server told to the other gateways soon.
func (s *Shared) Tell(of catalogue.Server, kind catalogue.Kind) {
	s.add(of, func(w *work) { w.tell[kind] = true })
}

func (s *Shared) add(of catalogue.Server, what func(*work)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	w := s.work[of.Name]
	if w == nil || w.of.Identity != of.Identity {
		w = &work{of: of, tell: make(map[catalogue.Kind]bool)}
		s.work[of.Name] = w
	}
	what(w)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// follow takes over what other gateways write.
func (s *Shared) follow() {
	for said := false; ; said = true {
		err := s.store.Watch(s.ctx, s.heard)
		if err != nil && !said && s.ctx.Err() == nil {
			s.log.Warn("bowline: what the gateways of the cluster share cannot be read yet", "error", err)
		}
		if wait.Sleep(s.ctx, retryEvery) != nil {
			return
		}
	}
}

// heard takes over a value of the store. With nil, all that there is was shown: what is not among it may be lost, and is written again.
func (s *Shared) heard(value []byte) {
	if value == nil {
		s.mu.Lock()
		clear(s.has)
		s.mu.Unlock()
		s.renew()
		return
	}
	d, err := decode(value)
	switch of := (catalogue.Server{Name: d.Server, Identity: d.Identity}); {
	case err != nil:
		s.log.Warn("bowline: a value that the gateways of the cluster share cannot be read", "error", err)
	case !s.known.Snapshot().IsThere(of):
	case d.Kind == "":
		s.pinned(of, d)
	case !s.hasPins(of): // each tool would count as changed until they come; then learn reads the list
		s.Learn(of)
	default:
		s.listed(of, d)
	}
}

// hasPins reports whether it is known to what the tools of a server are pinned.
func (s *Shared) hasPins(of catalogue.Server) bool {
	s.pinning.Lock()
	defer s.pinning.Unlock()
	own := document{Server: of.Name, Identity: of.Identity}
	return s.numbers[own.key()] > 0
}

func (s *Shared) renew() {
	for _, of := range s.known.Snapshot().Servers() {
		s.add(of, func(w *work) {
			w.learn = true
			for _, kind := range catalogue.Kinds() {
				w.tell[kind] = true
			}
		})
	}
}

// pinned takes over the pins of a server, unless newer ones are known.
func (s *Shared) pinned(of catalogue.Server, d document) {
	s.pinning.Lock()
	defer s.pinning.Unlock()
	if d.Number < s.numbers[d.key()] {
		return
	}
	s.numbers[d.key()] = d.Number
	if s.known.Pin(of, d.Pins) {
		s.Learned(catalogue.Tools)
	}
}

// listed takes over a list that another gateway has of a server. This node believes its own connection more.
func (s *Shared) listed(of catalogue.Server, d document) {
	s.note(d)
	list := catalogue.List{Entries: d.Entries, At: d.At, TTL: max(d.TTL, 0), Private: d.Private}
	isAway := s.IsAway(of.Name)
	if s.known.LearnFromOther(of, d.Kind, list, func(own catalogue.List) bool { return isAway && d.At.After(own.At) }) {
		s.Learned(d.Kind)
	}
}

// note notes what the store has.
func (s *Shared) note(d document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has[d.key()] = d.digest()
}

// serve does what is to be done, and again what has failed, until Close.
func (s *Shared) serve() {
	timer := time.NewTimer(retryEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
		case <-timer.C:
		}
		if !s.doAll() {
			timer.Reset(retryEvery)
		}
	}
}

// doAll does what is to be done about each server now. It reports false if some of it is to be done again.
func (s *Shared) doAll() (done bool) {
	s.mu.Lock()
	all := s.work
	s.work = make(map[string]*work)
	s.mu.Unlock()
	done = true
	for _, w := range all {
		done = s.do(w) && done
	}
	return done
}

// do does what is to be done about a server. What fails is to be done again.
func (s *Shared) do(w *work) (done bool) {
	learn := w.learn && s.learn(w.of) != nil
	var kinds []catalogue.Kind
	for kind := range w.tell {
		if err := s.tell(w.of, kind); err != nil && !errors.Is(err, errTooLarge) {
			kinds = append(kinds, kind)
		}
	}
	if s.ctx.Err() != nil || !learn && len(kinds) == 0 {
		return true
	}
	s.again(w.of, learn, kinds)
	return false
}

// again notes what has failed, unless there is more to do about another server of that name by now.
func (s *Shared) again(of catalogue.Server, learn bool, tell []catalogue.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.work[of.Name] == nil {
		s.work[of.Name] = &work{of: of, tell: make(map[catalogue.Kind]bool)}
	}
	if again := s.work[of.Name]; again.of.Identity == of.Identity {
		again.learn = again.learn || learn
		for _, kind := range tell {
			again.tell[kind] = true
		}
	}
}

// learn takes over what the store knows of a server.
func (s *Shared) learn(of catalogue.Server) error {
	now := s.known.Snapshot()
	if !now.IsThere(of) {
		return nil // it is not there any more
	}
	if err := s.pin(s.ctx, of, nil, nil); err != nil {
		return err
	}
	for _, kind := range catalogue.Kinds() {
		if _, isKnown := now.ListOf(of, kind); isKnown {
			continue
		}
		d, _, err := s.load(s.ctx, document{Server: of.Name, Identity: of.Identity, Kind: kind})
		if err != nil {
			return err
		}
		if d.Version != 0 {
			s.listed(of, d)
		}
	}
	return nil
}

// replace puts a list of this node in the place of that in the store, unless they are the same, or a node that has the server now has told it later.
func (s *Shared) replace(d *document, own document) bool {
	if d.Version != 0 && d.digest() == own.digest() || d.At.After(own.At) && s.IsAway(own.Server) {
		return false
	}
	d.At, d.TTL, d.Private, d.Entries = own.At, own.TTL, own.Private, own.Entries
	return true
}

// tell writes a list of this node, unless the store has it.
func (s *Shared) tell(of catalogue.Server, kind catalogue.Kind) error {
	list, isKnown := s.known.Snapshot().ListOf(of, kind)
	if !isKnown {
		return nil
	}
	own := document{Server: of.Name, Identity: of.Identity, Kind: kind, At: list.At, TTL: list.TTL, Private: list.Private, Entries: list.Entries}
	s.mu.Lock()
	has := s.has[own.key()]
	s.mu.Unlock()
	if has == own.digest() {
		return nil
	}
	d, err := s.update(s.ctx, own, func(d *document) bool { return s.replace(d, own) })
	if errors.Is(err, errTooLarge) {
		s.log.Warn("bowline: a list is too long for the other gateways of the cluster", "server", of.Name, "list", kind, "error", err)
	}
	if err == nil {
		s.note(d)
	}
	return err
}
