package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"iter"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Registry returns a store for the names of a registry.Registry, shared by all nodes. A claim
// that cannot be renewed is lost after 17 s. A name is free again 20 s after the end of its
// process.
func (n *Node) Registry() registry.Store { return names{n} }

type names struct{ node *Node }

// A nameRecord is the value of a claim of a name.
type nameRecord struct {
	Name   string `json:"name"`
	Holder string `json:"holder"`
}

const registryPrefix = "name."

// nameKey is the key of a name. Keys are short, and have few characters.
func nameKey(name string) string { return registryPrefix + encodeName(name) }

// encodeName makes a part of a key of any string: its base32 form, or the hash of a long one.
func encodeName(name string) string {
	encoding := base32.StdEncoding.WithPadding(base32.NoPadding)
	if len(name) <= maxEncoded {
		return encoding.EncodeToString([]byte(name))
	}
	hash := sha256.Sum256([]byte(name))
	return "=" + encoding.EncodeToString(hash[:])
}

// maxEncoded is the length of the longest name that a key contains, in bytes.
const maxEncoded = 128

// Claim implements registry.Store.
func (s names) Claim(ctx context.Context, c registry.Claim) (registry.Release, error) {
	key := nameKey(c.Name)
	release, err := s.node.claim(ctx, key, encode(nameRecord{c.Name, c.Holder}), c.Lost)
	if errors.Is(err, ErrExists) {
		return nil, s.taken(ctx, c.Name)
	}
	if err != nil {
		return nil, err
	}
	return release, nil
}

func (s names) taken(ctx context.Context, name string) error {
	got, err := s.node.leases.Get(ctx, nameKey(name))
	if err != nil {
		return &registry.TakenError{Name: name}
	}
	r, err := s.read(got)
	if err != nil {
		return &registry.TakenError{Name: name}
	}
	return &registry.TakenError{Name: name, Holder: r.Holder}
}

func (s names) read(e Entry) (nameRecord, error) {
	var r nameRecord
	claim, err := s.node.openClaim(e.Key, e.Value)
	if err == nil {
		err = json.Unmarshal(claim.Data, &r)
	}
	return r, err
}

// Watch implements registry.Store.
func (s names) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	return func(yield func(map[string]string, error) bool) {
		byKey, changed, current := map[string]string{}, map[string]string{}, false
		for e := range s.node.leases.Watch(ctx, registryPrefix) {
			switch r, err := s.read(e); {
			case e.Current:
				current = true
			case e.Deleted:
				if name, known := byKey[e.Key]; known {
					changed[name] = ""
					delete(byKey, e.Key)
				}
			case err == nil:
				byKey[e.Key], changed[r.Name] = r.Name, r.Holder
			}
			if current && (e.Current || len(changed) > 0) {
				if !yield(changed, nil) {
					return
				}
				changed = map[string]string{}
			}
		}
	}
}
