//bowline:pure

// Package search finds tools by what a person or a model says that it wants to do (BM25). ADR-0101 says why, and how well it does on the tools of
// real servers.
package search

import (
	"cmp"
	"math"
	"slices"
)

// What of a tool counts how much: a word in its name as much as four in its description.
const (
	nameWeight        = 4
	titleWeight       = 2
	parameterWeight   = 1
	descriptionWeight = 1
)

const (
	saturation = 1.2  // k1 of BM25: how soon a word that is repeated counts no more
	shortness  = 0.75 // b: how much a long text counts against a tool
)

// A Document is a tool as it is searched for.
type Document struct {
	Name, Title, Description string
	Parameters               []string // names
}

// An Index finds Documents by their words. It does not change.
type Index struct {
	found   map[string][]occurrence // by words
	words   []string                // sorted: a query may have the beginning of one
	lengths []float64               // of the documents, in weighted words
	average float64
}

// An occurrence is how often a document has a word.
type occurrence struct {
	document int
	weight   float64
}

// New indexes documents. Its cost grows with their text, of which a bounded part of each counts.
func New(all []Document) *Index {
	x := &Index{found: make(map[string][]occurrence), lengths: make([]float64, len(all))}
	total := 0.0
	for i, d := range all {
		weights := weigh(d)
		for word, weight := range weights {
			x.found[word] = append(x.found[word], occurrence{i, weight})
			x.lengths[i] += weight
		}
		total += x.lengths[i]
	}
	x.average = total / float64(max(len(all), 1))
	for word := range x.found {
		x.words = append(x.words, word)
	}
	slices.Sort(x.words)
	return x
}

func weigh(d Document) map[string]float64 {
	weights := make(map[string]float64)
	add := func(text string, weight float64) {
		for _, word := range wordsOf(text) {
			weights[word] += weight
		}
	}
	add(d.Name, nameWeight)
	add(d.Title, titleWeight)
	add(d.Description, descriptionWeight)
	for _, name := range d.Parameters[:min(len(d.Parameters), mostParameters)] {
		add(name, parameterWeight)
	}
	return weights
}

// Find returns the documents that have words of a query, the best first, and of equal ones the first: so many at most. It leaves out those that
// are hidden from whoever asks.
func (x *Index) Find(query string, most int, hidden func(document int) bool) []int {
	scores := make(map[int]float64)
	for i, word := range wordsOf(query) {
		if i == mostQueryWords {
			break
		}
		for _, known := range x.known(word) {
			x.add(scores, x.found[known])
		}
	}
	var best []int
	for document := range scores {
		if !hidden(document) {
			best = append(best, document)
		}
	}
	slices.SortFunc(best, func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	})
	return best[:min(len(best), most)]
}

// known returns the words that a word of a query stands for: itself, or if no document has it, those that begin with it.
func (x *Index) known(word string) []string {
	if _, ok := x.found[word]; ok {
		return []string{word}
	}
	from, _ := slices.BinarySearch(x.words, word)
	to := from
	for to < len(x.words) && to < from+mostCompletions && hasPrefix(x.words[to], word) {
		to++
	}
	return x.words[from:to]
}

// add adds to the scores of the documents that have a word. A word that few have counts more.
func (x *Index) add(scores map[int]float64, in []occurrence) {
	n, have := float64(len(x.lengths)), float64(len(in))
	rarity := math.Log(1 + (n-have+0.5)/(have+0.5))
	for _, o := range in {
		norm := saturation * (1 - shortness + shortness*x.lengths[o.document]/x.average)
		scores[o.document] += rarity * o.weight * (saturation + 1) / (o.weight + norm)
	}
}
