package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// allowed are the licences that a dependency may have.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// An exception is a licence that one module may have beside the allowed ones, and why.
type exception struct{ module, licence, why string }

var exceptions = []exception{
	{"github.com/modelcontextprotocol/go-sdk", "CC-BY-4.0", "is for its documentation, of which nothing is compiled in"},
	{"pgregory.net/rapid", "MPL-2.0", "is only in `proptest`, which is for tests and is in no program of ours, and is not changed"},
}

// isAllowed reports whether a module may have a licence.
func isAllowed(module, licence string) bool {
	return slices.Contains(allowed, licence) ||
		slices.ContainsFunc(exceptions, func(e exception) bool { return e.module == module && e.licence == licence })
}

// titles are what stands in the first lines of a licence. Other licences may name these further down.
var titles = []struct{ name, text string }{
	{"AGPL", "gnu affero general public license"},
	{"GPL", "gnu general public license"},
	{"LGPL", "gnu lesser general public license"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"EPL", "eclipse public license"},
	{"BUSL", "business source license"},
	{"SSPL", "server side public license"},
}

// words are what the text of a licence says somewhere.
var words = []struct{ name, text string }{
	{"Apache-2.0", "apache license version 2.0"},
	{"CC-BY-4.0", "creative commons attribution 4.0"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose"},
}

// titleLength is how many bytes of a text may be its title.
const titleLength = 200

// licencesIn returns the licences in the folder of a module.
func licencesIn(folder string) (found []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of a module: %w", err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, l := range licencesOf(string(text)) {
			found = appendNew(found, l)
		}
	}
	return found, nil
}

// licencesOf returns the licences in a text. A text in which nothing is known is "unknown".
func licencesOf(text string) (found []string) {
	plain := strings.Join(strings.Fields(strings.ToLower(text)), " ")
	plain = strings.NewReplacer("license, version", "license version", "license (v2.0)", "license version 2.0").Replace(plain)
	for _, title := range titles {
		if strings.Contains(plain[:min(len(plain), titleLength)], title.text) {
			found = appendNew(found, title.name)
		}
	}
	for _, w := range words {
		if strings.Contains(plain, w.text) {
			found = appendNew(found, w.name)
		}
	}
	if strings.Contains(plain, "redistribution and use in source and binary forms") {
		name := "BSD-2-Clause"
		if strings.Contains(plain, "neither the name") || strings.Contains(plain, "the names of its contributors") || strings.Contains(plain, "may not be used to endorse") {
			name = "BSD-3-Clause"
		}
		found = appendNew(found, name)
	}
	if found == nil {
		return []string{"unknown"}
	}
	return found
}

func appendNew(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
