package stores

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A sessionModel knows what a SessionStore should know.
type sessionModel struct {
	*sessions
	kept  map[string]*keptSession
	begun int // how many sessions there were
	saved int // how many records there were
}

// A keptSession is what should be known of a session.
type keptSession struct {
	owner string       // the node that owns it; "": it is free
	by    *sessionNode // the node that has used it last; nil: it was killed
	ended bool         // its owner has forgotten it

	// possible are the records that a Take may return, oldest first; nil stands for none.
	// More than one is possible after a kill, or while what was done has not settled.
	possible []*streamable.SessionRecord
}

func identityOf(session string) string { return "identity of " + session }

// run does things at random, and compares what the stores return.
func (m *sessionModel) run(rt *rapid.T) {
	m.kept = make(map[string]*keptSession)
	m.start("a")
	rt.Repeat(map[string]func(*rapid.T){
		"begin": func(rt *rapid.T) {
			node := m.drawNode(rt)
			m.begun++
			session := fmt.Sprintf("%s~%04d", node.name, m.begun)
			m.kept[session] = &keptSession{owner: node.name, by: node, possible: []*streamable.SessionRecord{nil}}
			m.save(node, session)
		},
		"save": func(rt *rapid.T) { m.withOwner(rt, m.save) },
		"free": func(rt *rapid.T) {
			m.withOwner(rt, func(node *sessionNode, session string) {
				node.Free(session)
				m.kept[session].owner = ""
			})
		},
		"forget": func(rt *rapid.T) {
			m.withOwner(rt, func(node *sessionNode, session string) {
				node.Forget(session)
				m.kept[session].ended = true
				m.kept[session].possible = append(m.kept[session].possible, nil)
			})
		},
		"take": func(rt *rapid.T) {
			m.settle()
			if session, any := draw(rt, "session", m.kept, func(*keptSession) bool { return true }); any {
				m.take(rt, m.drawNode(rt), session)
			}
		},
		"take another's": func(rt *rapid.T) {
			m.settle()
			if session, any := draw(rt, "session", m.kept, func(*keptSession) bool { return true }); any {
				m.wantNone(m.drawNode(rt), session, "somebody else")
			}
		},
		"settle": func(*rapid.T) { m.settle() },
		"kill": func(rt *rapid.T) {
			m.kill(m.drawNode(rt))
			if len(m.running) == 0 {
				m.start(rapid.SampledFrom(m.names()).Draw(rt, "started"))
			}
		},
		"start": func(rt *rapid.T) {
			if name := rapid.SampledFrom(m.names()).Draw(rt, "started"); m.running[name] == nil {
				m.start(name)
			}
		},
	})
	m.settle()
	for _, session := range slices.Sorted(maps.Keys(m.kept)) {
		m.take(rt, m.drawNode(rt), session)
	}
}

func (m *sessionModel) drawNode(rt *rapid.T) *sessionNode {
	return m.running[rapid.SampledFrom(slices.Sorted(maps.Keys(m.running))).Draw(rt, "node")]
}

// draw draws the key of a value.
func draw[V any](rt *rapid.T, what string, from map[string]V, fits func(V) bool) (string, bool) {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if fits(from[key]) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return "", false
	}
	return rapid.SampledFrom(keys).Draw(rt, what), true
}

// withOwner draws a session that has a living owner.
func (m *sessionModel) withOwner(rt *rapid.T, do func(*sessionNode, string)) {
	session, any := draw(rt, "session", m.kept, func(k *keptSession) bool { return k.owner != "" && !k.ended })
	if any {
		do(m.running[m.kept[session].owner], session)
	}
}

func (m *sessionModel) save(node *sessionNode, session string) {
	m.saved++
	r := recordOf(identityOf(session), m.saved)
	node.Save(session, r)
	m.kept[session].possible = append(m.kept[session].possible, &r)
}

// kill makes the sessions of a node free. What the node has done since it settled may be
// lost, or a part of it.
func (m *sessionModel) kill(node *sessionNode) {
	m.sessions.kill(node)
	for _, k := range m.kept {
		if k.by == node {
			k.owner, k.by, k.ended = "", nil, false
		}
	}
}

// settle settles all running nodes. Of a session that one of them has used last, one record is
// possible then.
func (m *sessionModel) settle() {
	for name := range m.running {
		m.Settle(name)
	}
	for session, k := range m.kept {
		if k.by == nil {
			continue
		}
		if k.possible = k.possible[len(k.possible)-1:]; k.possible[0] == nil {
			delete(m.kept, session)
		}
	}
}

// take takes a session, and checks what it gets.
func (m *sessionModel) take(rt *rapid.T, node *sessionNode, session string) {
	k := m.kept[session]
	if k.owner != "" {
		m.wantOwned(node, session, identityOf(session), k.owner)
		return
	}
	got, err := node.Take(m.ctx, session, identityOf(session))
	switch {
	case errors.Is(err, streamable.ErrNoSession):
		if !slices.Contains(k.possible, nil) {
			rt.Fatalf("session %s can be taken, and a Take at node %s got %v", session, node.name, err)
		}
		delete(m.kept, session)
		return
	case err != nil:
		rt.Fatalf("session %s has no owner, and a Take at node %s got %v", session, node.name, err)
	}
	possible := slices.ContainsFunc(k.possible, func(r *streamable.SessionRecord) bool { return r != nil && sameRecord(*r, got) })
	if !possible {
		rt.Fatalf("a Take of session %s got %s, which is not its newest record", session, textOf(got))
	}
	k.owner, k.by, k.possible = node.name, node, []*streamable.SessionRecord{&got}
}
