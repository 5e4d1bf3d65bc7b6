package search

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A word counts more in a name than in a title, and in a title more than in a description, where it counts as much as in a parameter.
//
// Guarantees: G-0101.1
func TestWhereAWordCounts(t *testing.T) {
	index := New([]Document{
		{Name: "a", Title: "x y", Description: "lion"},
		{Name: "b", Title: "x y", Description: "z", Parameters: []string{"lion"}},
		{Name: "c", Title: "lion y", Description: "z"},
		{Name: "lion", Title: "x y", Description: "z"},
		{Name: "d", Title: "x y", Description: "z"},
	})
	if got := fmt.Sprint(index.Find("lion", 10, everything)); got != "[3 2 0 1]" && got != "[3 2 1 0]" {
		t.Errorf("got %s, want the name, the title, and then the others", got)
	}
	rare := New([]Document{{Name: "a", Description: "common rare"}, {Name: "b", Description: "common common"}, {Name: "c", Description: "common"}, {Name: "d", Description: "common"}})
	if got := rare.Find("common rare", 1, everything); !slices.Equal(got, []int{0}) {
		t.Errorf("got %v, want the one with the rare word", got)
	}
	long := New([]Document{{Name: "a", Description: "lion " + strings.Repeat("word ", 100)}, {Name: "b", Description: "lion word"}, {Name: "c", Description: "word"}})
	if got := long.Find("lion", 2, everything); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("got %v, want the short one first", got)
	}
}

// The beginning of a word, three letters at least, finds sixteen words that begin with it, and not those that only follow in the alphabet.
//
// Guarantees: G-0101.1, G-0101.3
func TestBeginningsOfWords(t *testing.T) {
	var all []Document
	for i := range 40 {
		all = append(all, Document{Name: "pre" + strings.Repeat(string(rune('a'+i%26)), 1+i/26) + "q"})
	}
	all = append(all, Document{Name: "prf"}, Document{Name: "aaa"}, Document{Name: "zzz"}, Document{Name: "äöü"})
	index := New(all)
	found := index.Find("pre", 100, everything)
	if len(found) != mostCompletions {
		t.Errorf("got %d, want %d", len(found), mostCompletions)
	}
	for _, i := range found {
		if !strings.HasPrefix(all[i].Name, "pre") {
			t.Errorf("%s is found", all[i].Name)
		}
	}
	for query, want := range map[string]int{"pr": 0, "prebq": 1, "prebb": 1, "zz": 0, "zzz": 1, "zzzz": 0, "aa": 0, "äö": 0, "äöü": 1} {
		if found := index.Find(query, 100, everything); len(found) < want || len(found) > 2*want {
			t.Errorf("%q: got %d, want %d", query, len(found), want)
		}
	}
}

// What is within a bound counts, up to the last of it.
//
// Guarantees: G-0101.3
func TestWhatIsWithinTheBounds(t *testing.T) {
	var parameters []string
	for i := range mostParameters + 1 {
		parameters = append(parameters, "p"+strings.Repeat(string(rune('a'+i%26)), 3+i/26))
	}
	index := New([]Document{{Name: "a", Description: strings.Repeat("x ", (longestText-len("needle"))/2) + "needle", Parameters: parameters}, {Name: "b"}})
	last := parameters[mostParameters-1]
	for query, want := range map[string]int{"needle": 1, last: 1, parameters[mostParameters]: 0, strings.Repeat("x ", mostQueryWords-1) + "b": 2} {
		if found := index.Find(query, 10, everything); len(found) != want {
			t.Errorf("%.40q: got %v, want %d", query, found, want)
		}
	}
	of := definition{}
	of.InputSchema.Properties = map[string]json.RawMessage{}
	for _, name := range parameters {
		of.InputSchema.Properties[name] = nil
	}
	if got := of.parameters(); len(got) != mostParameters || !slices.IsSorted(got) {
		t.Errorf("a tool is listed with %d parameters, want %d in order", len(got), mostParameters)
	}
}

// Short words keep their endings, and so do those that end with ss.
func TestEndingsThatStay(t *testing.T) {
	for text, want := range map[string]string{"bus gas": "bus gas", "need": "need", "king": "king", "ties": "tie", "access": "access", "tree": "tre", "be see": "see"} {
		if got := strings.Join(wordsOf(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
