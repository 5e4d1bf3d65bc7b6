package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// The link of a session may store what another process needs to continue the session: its log
// level and its subscriptions (transport.Keeper, ADR-0074). It gets them whenever they change.
// The link of that process repeats initialize and "initialized". At the former the server
// restores the log level, at the latter the subscriptions, since the program decides on these.

const (
	keptVersion      = 1        // of keptState
	mostKept         = 16 << 10 // how many bytes an encoded state may have
	mostKeptResource = 256      // how many subscriptions a state may have
)

// A keptState is what a link stores, in JSON.
type keptState struct {
	Version       int               `json:"v"`
	Level         protocol.LogLevel `json:"level,omitempty"`
	Subscriptions []string          `json:"subscriptions,omitempty"`
}

// append adds the encoded state to dst. It leaves out what would make it too long.
func (k *keptState) append(dst []byte) []byte {
	const quotes, end = len(`""`), len(`]}`)
	dst = fmt.Appendf(dst, `{"v":%d`, keptVersion)
	if k.Level != "" {
		dst = append(append(dst, `,"level":`...), quoted(string(k.Level))...)
	}
	opening := `,"subscriptions":[`
	for _, uri := range k.Subscriptions {
		left := mostKept - len(dst) - len(opening) - end
		if len(uri)+quotes > left {
			continue // it is not quoted, since many of these may be long
		}
		one := quoted(uri)
		if len(one) > left {
			continue
		}
		dst = append(append(dst, opening...), one...)
		opening = `,`
	}
	if opening == `,` {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// readKeptState decodes a state that append has encoded, in this process or another. It fails
// if any part of it is not valid. Nil is the empty state.
func readKeptState(raw []byte) (k keptState, err error) {
	if raw == nil {
		return k, nil
	}
	if len(raw) > mostKept {
		return k, fmt.Errorf("it has %d bytes, which is more than %d", len(raw), mostKept)
	}
	if err := protocol.Unmarshal(raw, &k); err != nil {
		return keptState{}, errors.New(refusal.Explain(err))
	}
	switch {
	case k.Version != keptVersion:
		err = fmt.Errorf("its version is %d, want %d", k.Version, keptVersion)
	case k.Level != "" && k.Level.Severity() < 0:
		err = errors.New("its log level is unknown")
	case len(k.Subscriptions) > mostKeptResource:
		err = fmt.Errorf("it has %d subscriptions, which is more than %d", len(k.Subscriptions), mostKeptResource)
	}
	for _, uri := range k.Subscriptions {
		err = cmp.Or(err, catalog.CheckURI("a subscription", uri))
	}
	if err != nil {
		return keptState{}, err
	}
	slices.Sort(k.Subscriptions)
	k.Subscriptions = slices.Compact(k.Subscriptions)
	return k, nil
}

// keeping is what a peer has if its link is a Keeper.
type keeping struct {
	link      transport.Keeper
	continues bool // the link continues a session
	outdated  bool // what the link returned could not be used. Written before "initialized" is served

	mu sync.Mutex // held during Keep, so that the newest state is the one that is kept
}

// newKeeping returns nil if the link is no Keeper.
func newKeeping(link transport.Link) *keeping {
	keeper, ok := transport.As[transport.Keeper](link)
	if !ok {
		return nil
	}
	_, continues := keeper.Kept()
	return &keeping{link: keeper, continues: continues}
}

func (k *keeping) restores() bool { return k != nil && k.continues }

// keep lets the link store the present state, if it is a Keeper. Call it after each change.
func (p *peer) keep() {
	k := p.keeping
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	session := p.session.Load()
	state := keptState{}
	if level := session.level.Load(); level != nil {
		state.Level = *level
	}
	var ended bool
	if state.Subscriptions, ended = p.changes.Subscriptions(mostKeptResource); ended {
		return // the session may go on elsewhere, with what was stored before
	}
	slices.Sort(state.Subscriptions)
	k.link.Keep(state.append(nil))
}

// begun is called at the end of initialize. If the link continues a session, begun restores the
// log level, and prepares the subscriptions for restore: requests for them wait until then.
func (p *peer) begun(session *Session) {
	k := p.keeping
	if !k.restores() {
		p.keep()
		return
	}
	raw, _ := k.link.Kept()
	state, err := readKeptState(raw)
	if err != nil {
		p.server.log().Warn("bowline: the state of a session that is continued cannot be read, so its log level and subscriptions are lost", "error", err)
	}
	// Then the link has nothing, or what nobody can read: restore replaces it, even if no subscription is refused.
	k.outdated = raw == nil || err != nil
	if state.Level != "" {
		session.level.Store(&state.Level)
	}
	p.changes.Await(state.Subscriptions)
}

// restore restores the subscriptions of a session that the link continues, if the client is
// still allowed to have them and there is room. Whatever may have changed while no process served the session is
// announced. The context is that of "initialized", so the Origin is that of the request which
// brought the session here.
func (p *peer) restore(ctx context.Context, from share.Client) {
	k := p.keeping
	if !k.restores() {
		return
	}
	p.server.hub.SetOwner(&p.changes, changes.Owner{Identity: from.Identity, Session: p.session.Load()})
	r := p.server.hub.Restore(ctx, &p.changes, from, func(uri string) error {
		return p.guarded("OnSubscribe", func() error { return p.maySubscribeAgain(ctx, uri) })
	})
	p.unsubscribedLater(ctx, r.Late...)
	if r.Refused > 0 && r.Done {
		p.server.log().Warn("bowline: a session that is continued may not have all its subscriptions any more", "refused", r.Refused)
	}
	if r.Done && (r.Refused > 0 || k.outdated) {
		p.keep()
	}
}

// maySubscribeAgain does what maySubscribe does, if the server still has subscriptions.
func (p *peer) maySubscribeAgain(ctx context.Context, uri string) error {
	if !p.session.Load().offered.Has("resources.subscribe") {
		return ErrNotFound
	}
	return p.server.maySubscribe(ctx, uri)
}

// quoted encodes text that was read from JSON, and so is valid UTF-8.
func quoted[T string | []string](text T) json.RawMessage {
	raw, err := protocol.Marshal(text)
	if err != nil {
		panic(err)
	}
	return raw
}
