package otel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// maxSets is the maximum number of sets of attributes of one instrument. Everything beyond
// that is counted as "_OTHER".
const maxSets = 1000

// values are the values of one set of attributes, in the order of the keys. "" means that
// the attribute is absent.
type values [12]string

// prepared keeps sets of attributes, so that a measurement allocates none.
type prepared struct {
	keys []attribute.Key

	mu   sync.RWMutex
	sets map[values]*set
}

// A set is one set of attributes, as an option of both kinds of instrument.
type set struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func prepare(keys ...attribute.Key) *prepared {
	return &prepared{keys: keys, sets: make(map[values]*set)}
}

// of returns the set with these values.
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

// others returns the values of the set for everything beyond maxSets.
func (p *prepared) others() (v values) {
	for i := range p.keys {
		v[i] = other
	}
	return v
}
