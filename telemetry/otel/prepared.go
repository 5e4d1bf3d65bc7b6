package otel

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// maxSets is the maximum number of sets of attributes of one instrument. Everything beyond
// that is counted as "_OTHER"; see prepared.others.
const maxSets = 1000

// A table is a copy-on-write map. Reads take no lock, because the calls of many goroutines
// meet here; adding an entry copies the map, so keep it below about maxSets entries.
type table[K comparable, V any] struct {
	mu   sync.Mutex // of who adds
	kept atomic.Pointer[map[K]V]
}

// all returns the entries, which nobody changes.
func (t *table[K, V]) all() map[K]V {
	if kept := t.kept.Load(); kept != nil {
		return *kept
	}
	return nil
}

// add adds an entry. It needs the lock.
func (t *table[K, V]) add(key K, value V) {
	next := maps.Clone(t.all())
	if next == nil {
		next = make(map[K]V)
	}
	next[key] = value
	t.kept.Store(&next)
}

// keep adds an entry, unless there are maxSets, or the key has one. It returns the entry that
// the key has then, or this one.
func (t *table[K, V]) keep(key K, value V) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.all()
	if earlier, ok := kept[key]; ok {
		return earlier
	}
	if len(kept) < maxSets {
		t.add(key, value)
	}
	return value
}

// Texts are the values of one set of attributes, in the order of the keys. "" means that the
// attribute is absent.
type texts interface {
	[1]string | [2]string | [5]string | [12]string
}

// prepared keeps sets of attributes, so that a measurement allocates none.
type prepared[T texts] struct {
	keys     []attribute.Key
	few      int                 // how many of the first keys have few values, which stay beyond maxSets
	exceeded metric.Int64Counter // counts the measurements beyond maxSets
	sets     table[T, *set]
}

// A set is one set of attributes, as an option of both kinds of instrument.
type set struct {
	record   []metric.RecordOption
	add      []metric.AddOption
	exceeded metric.Int64Counter // nil: the set has the values of the measurement
}

// counted counts a measurement for which there was no set of its own.
func (s *set) counted() *set {
	if s.exceeded != nil {
		s.exceeded.Add(background, 1)
	}
	return s
}

func prepare[T texts](exceeded metric.Int64Counter, keys ...attribute.Key) *prepared[T] {
	return &prepared[T]{keys: keys, exceeded: exceeded}
}

// of returns the set with these values, for one measurement.
func (p *prepared[T]) of(values T) *set {
	if found := p.sets.all()[values]; found != nil {
		return found
	}
	return p.make(values).counted()
}

func (p *prepared[T]) make(values T) *set {
	p.sets.mu.Lock()
	defer p.sets.mu.Unlock()
	sets, exceeded := p.sets.all(), metric.Int64Counter(nil)
	if len(sets) >= maxSets {
		if others := p.others(values); others != values {
			exceeded, values = p.exceeded, others
		}
	}
	if found := sets[values]; found != nil {
		return found
	}
	var all []attribute.KeyValue
	for i, key := range p.keys {
		if values[i] != "" {
			all = append(all, textOrNumber(key, values[i]))
		}
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	made := &set{[]metric.RecordOption{option}, []metric.AddOption{option}, exceeded}
	p.sets.add(values, made)
	return made
}

// others returns the values to use beyond maxSets. An absent value stays absent: an operation
// that has succeeded gets no error.type.
func (p *prepared[T]) others(values T) T {
	for i := p.few; i < len(p.keys); i++ {
		if values[i] != "" {
			values[i] = other
		}
	}
	return values
}

// A pattern is what all operations with the same key have in common.
type pattern struct {
	key        patternKey
	isTool     bool
	name       string // of their spans
	attributes []attribute.KeyValue
	options    []trace.SpanStartOption

	named    atomic.Uint64 // of names.knows
	answered answeredSets  // for tools and prompts that the server has listed
	unnamed  answeredSets  // for all others
}

// answeredSets are the attributes of operations without a failure, "" of HTTP first, then as
// httpVersions.
type answeredSets [1 + len(httpVersions)]atomic.Pointer[set]

// A patternKey identifies a pattern.
type patternKey struct {
	operation
	conn string // "" if the span does not name it
	kind trace.SpanKind
}

// isKept reports whether the pattern is kept for the next operation. It is not if it contains a
// URI or a long name, because a peer can invent any number of them.
func (k *patternKey) isKept() bool {
	return k.uri == "" && len(k.method) <= maxName && len(k.tool) <= maxName && len(k.prompt) <= maxName
}

// slots is the number of patterns that are found without hashing their key.
const slots = 64

// slot returns the place among these where the pattern may be. Keys that are used by turns should
// have different ones.
func (k *patternKey) slot() uint {
	return (31*(31*mark(k.tool)+mark(k.prompt)+mark(k.conn)) + mark(k.method) + uint(k.kind)) % slots
}

// mark returns a number that depends on the length and the last byte of a text.
func mark(text string) uint {
	if text == "" {
		return 0
	}
	return 7*uint(len(text)) + uint(text[len(text)-1])
}

// patternOf returns the pattern of an operation. Conn is the name of a client's connection, or
// "". It keeps at most maxSets patterns. It returns nil if there are no spans and the pattern is
// not kept.
func (t *Telemetry) patternOf(op *operation, conn string, kind trace.SpanKind) *pattern {
	key := patternKey{*op, conn, kind}
	slot := &t.first[key.slot()]
	if found := slot.Load(); found != nil && found.key == key {
		return found
	}
	if found := t.patterns.all()[key]; found != nil {
		return found
	}
	switch {
	case key.isKept() && len(t.patterns.all()) < maxSets:
		kept := t.patterns.keep(key, t.newPattern(&key))
		slot.CompareAndSwap(nil, kept) // never another one, so that callers do not displace each other's
		return kept
	case t.tracer != nil:
		return t.newPattern(&key)
	default:
		return nil
	}
}

// newPattern makes a pattern, without what belongs to spans if there are none.
func (t *Telemetry) newPattern(op *patternKey) *pattern {
	made := &pattern{key: *op, isTool: op.tool != ""}
	if t.tracer == nil {
		return made
	}
	name, about := shorten(op.method), op.target()
	if about == "" && t.options.ResourceInName {
		about = op.uri
	}
	if about != "" {
		name += " " + shorten(about)
	}
	attributes := make([]attribute.KeyValue, 0, 16)
	add := func(key attribute.Key, text string) {
		if text != "" {
			attributes = append(attributes, textOrNumber(key, shorten(text)))
		}
	}
	add(keyMethod, op.method)
	add(keyTool, op.tool)
	add(keyPrompt, op.prompt)
	add(keyResourceURI, op.uri)
	add(keyProtocolVersion, op.version)
	if op.tool != "" {
		add(keyOperation, executeTool)
	}
	add(keyTransport, op.network.transport)
	add(keyProtocolName, op.network.protocol)
	add(keyProtocolHTTP, op.http)
	add(keyServerAddress, op.network.address)
	add(keyServerPort, op.network.port)
	add(keyConn, op.conn)
	made.name, made.attributes = name, attributes
	made.options = []trace.SpanStartOption{trace.WithSpanKind(op.kind), trace.WithAttributes(attributes...)}
	return made
}
