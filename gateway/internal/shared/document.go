package shared

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A document is a value of the store: the pins of a server, or one of its lists. Servers that run something else, as another file says, are other servers.
type document struct {
	Version  int    `json:"v"`
	Server   string `json:"server"`
	Identity string `json:"identity"`

	Pins   map[string]string `json:"pins,omitzero"` // what tools are, as sums, by their names
	Number uint64            `json:"n,omitzero"`    // grows with each change of the pins, also over a store that has lost them

	Kind    catalogue.Kind    `json:"kind,omitzero"` // "": these are pins
	At      time.Time         `json:"at,omitzero"`
	TTL     time.Duration     `json:"ttl,omitzero"`
	Private bool              `json:"private,omitzero"`
	Entries []json.RawMessage `json:"entries,omitzero"`
}

const (
	version    = 1
	maxValue   = 255 << 10 // as it is kept
	maxDecoded = 2*catalogue.MaxBytes + maxValue
)

var errTooLarge = errors.New("it is above the limit of what gateways share")

func (d *document) key() string { return fmt.Sprintf("%q %q %q", d.Kind, d.Identity, d.Server) }

// digest tells lists apart.
func (d *document) digest() (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, entry := range d.Entries {
		hash.Write(binary.AppendUvarint(nil, uint64(len(entry))))
		hash.Write(entry)
	}
	fmt.Fprintf(hash, "%v %t", d.TTL, d.Private)
	hash.Sum(sum[:0])
	return sum
}

// encode returns a document, compressed: lists are mostly text.
func (d *document) encode() ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var small bytes.Buffer
	w, err := flate.NewWriter(&small, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if small.Len() > maxValue {
		return nil, fmt.Errorf("%w: %d bytes, and %d are the most", errTooLarge, small.Len(), maxValue)
	}
	return small.Bytes(), nil
}

// decode reads a document. What a list has is checked again when the catalogue learns it.
func decode(value []byte) (d document, err error) {
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(value)), maxDecoded+1))
	if err != nil {
		return d, err
	}
	if len(text) > maxDecoded {
		return d, errTooLarge
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, err
	}
	if d.Version != version {
		return d, fmt.Errorf("it has version %d, and only %d is known", d.Version, version)
	}
	return d, nil
}

// load reads what the store has in the place of a document. Version 0: nothing.
func (s *Shared) load(ctx context.Context, of document) (d document, revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	value, revision, err := s.store.Load(ctx, of.key())
	if err == nil && value != nil {
		d, err = decode(value)
	}
	return d, revision, err
}

// update changes what the store has in the place of a document, unless change says that nothing is to be changed, and returns what it has then. Others may change it at the same
// time: nothing that they have written is lost.
func (s *Shared) update(ctx context.Context, of document, change func(*document) bool) (d document, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Duration(0); ; pause = tryAfter {
		if err := wait.Sleep(ctx, pause); err != nil {
			return d, err
		}
		if d, done, err := s.tryUpdate(ctx, of, change); done || err != nil {
			return d, err
		}
	}
}

// tryUpdate does what update does, once. It is not done if somebody else has changed the document meanwhile.
func (s *Shared) tryUpdate(ctx context.Context, of document, change func(*document) bool) (d document, done bool, err error) {
	d, revision, err := s.load(ctx, of)
	if err != nil {
		return d, false, err
	}
	if d.Version == 0 {
		d = document{Server: of.Server, Identity: of.Identity, Kind: of.Kind}
	}
	if !change(&d) {
		return d, true, nil
	}
	d.Version = version
	value, err := d.encode()
	if err != nil {
		return d, false, err
	}
	done, err = s.store.Save(ctx, of.key(), value, revision)
	return d, done, err
}

// pin pins what the store has not pinned yet, as this node had it or else as it was seen, and what is approved, for all gateways, and takes over what the pins are then. If the store
// has older ones than this node, it has lost the newer ones, or the view of it is late: a write shows which.
func (s *Shared) pin(ctx context.Context, of catalogue.Server, seen, approved map[string]string) error {
	sums := make(map[string]string)
	maps.Copy(sums, seen)
	maps.Copy(sums, s.known.Snapshot().Sums(of))
	own := document{Server: of.Name, Identity: of.Identity}
	d, err := s.update(ctx, own, func(d *document) bool {
		s.pinning.Lock()
		known := s.numbers[own.key()]
		s.pinning.Unlock()
		if changed := d.pin(sums, approved); !changed && d.Number >= known && d.Version != 0 {
			return false
		}
		d.Number = max(d.Number, known) + 1
		return true
	})
	if err == nil {
		s.pinned(of, d)
	}
	return err
}

// pin adds what is not pinned, replaces what is approved, and reports whether that changes anything.
func (d *document) pin(sums, approved map[string]string) (changed bool) {
	if d.Pins == nil {
		d.Pins = make(map[string]string)
	}
	for tool, sum := range sums {
		if _, pinned := d.Pins[tool]; !pinned && len(d.Pins) < catalogue.MaxEntries {
			d.Pins[tool], changed = sum, true
		}
	}
	for tool, sum := range approved {
		if d.Pins[tool] != sum {
			d.Pins[tool], changed = sum, true
		}
	}
	return changed
}
