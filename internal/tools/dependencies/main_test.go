package main

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write "+page)

// The page names the modules that are compiled in now, and each has a licence that is allowed.
func TestThePageOfDependenciesIsFresh(t *testing.T) {
	if err := run("../../..", *update); err != nil {
		t.Error(err)
	}
}

// A licence is known by its own words, also if another one is named in it. What is not known is not allowed.
func TestLicencesAreKnownByTheirWords(t *testing.T) {
	const redistribution = "Redistribution and use in source\nand binary forms, with or without modification, are permitted"
	for text, want := range map[string][]string{
		"Permission is hereby granted, free of\ncharge, to any person obtaining a copy of this software": {"MIT"},
		"   Apache License\n   Version 2.0, January 2004":                                                {"Apache-2.0"},
		redistribution: {"BSD-2-Clause"},
		redistribution + "\nNeither the name of X may be used":                                                   {"BSD-3-Clause"},
		"Mozilla Public License Version 2.0\n" + strings.Repeat("text ", 100) + "the GNU General Public License": {"MPL-2.0"},
		"GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3":                                                           {"AGPL"},
		"All rights reserved.": {"unknown"},
		"":                     {"unknown"},
	} {
		if got := licencesOf(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: got %q, want %q", text, got, want)
		}
	}
}

// A module without a licence, or with one that is not allowed, is named.
func TestRefusedLicencesAreNamed(t *testing.T) {
	all := []*dependency{
		{path: "example.com/a", version: "v1", licences: []string{"MIT", "Apache-2.0"}},
		{path: "example.com/b", version: "v2"},
		{path: "example.com/c", version: "v3", licences: []string{"MIT", "AGPL"}},
		{path: "example.com/d", version: "v4", licences: []string{"MPL-2.0"}},
		{path: "pgregory.net/rapid", version: "v5", licences: []string{"MPL-2.0"}},
	}
	err := refused(all)
	if err == nil {
		t.Fatal("got nil, want an error")
	}
	for _, named := range []string{"example.com/b v2: no licence", "example.com/c v3: the licence AGPL", "example.com/d v4: the licence MPL-2.0"} {
		if !strings.Contains(err.Error(), named) {
			t.Errorf("got %v, want %q in it", err, named)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 3 {
		t.Errorf("got %d errors, want 3: %v", lines, err)
	}
}
