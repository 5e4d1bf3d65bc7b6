package otel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSets is how many sets of attributes one instrument has. What comes beyond that is
// counted under "_OTHER".
const maxSets = 1000

// values are those of the attributes of one set, in the order of their keys; "" for
// one that is absent.
type values [12]string

// prepared holds sets of attributes, so that a measurement allocates none.
type prepared struct {
	keys []attribute.Key

	mu   sync.RWMutex
	sets map[values]*set
}

// A set is one set of attributes, as both kinds of instrument want it.
type set struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func prepare(keys ...attribute.Key) *prepared {
	return &prepared{keys: keys, sets: make(map[values]*set)}
}

// of returns the set of these values.
func (p *prepared) of(v values) *set {
	p.mu.RLock()
	found := p.sets[v]
	p.mu.RUnlock()
	if found != nil {
		return found
	}
	return p.make(v)
}

func (p *prepared) make(v values) *set {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sets) >= maxSets {
		if v = p.others(); p.sets[v] != nil {
			return p.sets[v]
		}
	} else if p.sets[v] != nil {
		return p.sets[v]
	}
	var all []attribute.KeyValue
	for i, key := range p.keys {
		if v[i] != "" {
			all = append(all, textOrNumber(key, v[i]))
		}
	}
	option := metric.WithAttributeSet(attribute.NewSet(all...))
	made := &set{record: []metric.RecordOption{option}, add: []metric.AddOption{option}}
	p.sets[v] = made
	return made
}

// others are the values of all that is too much.
func (p *prepared) others() (v values) {
	for i := range p.keys {
		v[i] = other
	}
	return v
}
