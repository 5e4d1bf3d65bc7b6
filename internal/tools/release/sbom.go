package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// A source is what a release was built from.
type source struct {
	version string
	commit  string
	time    time.Time // of the commit, so that a second build says the same
}

// An artifact is a built file.
type artifact struct {
	name, target, sum string // sum is SHA-256 in hexadecimal digits
	size              int64
	build             *debug.BuildInfo
}

// inspect reads back what was built: nothing that is said of an artifact is taken from what was asked for.
func inspect(folder, name string) (artifact, error) {
	at := filepath.Join(folder, name)
	text, err := os.ReadFile(at)
	if err != nil {
		return artifact{}, fmt.Errorf("reading an artifact: %w", err)
	}
	build, err := buildinfo.ReadFile(at)
	if err != nil {
		return artifact{}, fmt.Errorf("reading an artifact: %w", err)
	}
	sum := sha256.Sum256(text)
	return artifact{name: name, target: setting(build, "GOOS") + "/" + setting(build, "GOARCH"), sum: hex.EncodeToString(sum[:]), size: int64(len(text)), build: build}, nil
}

func setting(build *debug.BuildInfo, key string) string {
	for _, s := range build.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// The fields of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/) that a list of Go modules has.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID            string          `json:"SPDXID"`
		Name          string          `json:"name"`
		Version       string          `json:"versionInfo,omitzero"`
		Download      string          `json:"downloadLocation"`
		FilesAnalyzed bool            `json:"filesAnalyzed"`
		Concluded     string          `json:"licenseConcluded"`
		Declared      string          `json:"licenseDeclared"`
		Copyright     string          `json:"copyrightText"`
		Checksums     []spdxChecksum  `json:"checksums,omitzero"`
		References    []spdxReference `json:"externalRefs,omitzero"`
		Comment       string          `json:"comment,omitzero"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// sbom lists the modules that are in an artifact, as its build recorded them, in SPDX 2.3. Licenses are not looked up.
func sbom(a artifact, from source) ([]byte, error) {
	const none, artifactID = "NOASSERTION", "SPDXRef-artifact"
	document := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: a.name,
		Namespace: "https://" + prefix + "/sbom/" + from.version + "/" + a.name + "/" + a.sum,
		Creation:  spdxCreation{Created: from.time.UTC().Format(time.RFC3339), Creators: []string{"Tool: " + prefix + "/internal/tools/release"}},
		Packages: []spdxPackage{{ID: artifactID, Name: a.name, Version: from.version, Download: none, Concluded: none, Declared: "Apache-2.0",
			Copyright: none, Checksums: []spdxChecksum{{Algorithm: "SHA256", Value: a.sum}}, Comment: "built with " + a.build.GoVersion}},
		Relationships: []spdxRelationship{{From: "SPDXRef-DOCUMENT", Type: "DESCRIBES", To: artifactID}},
	}
	modules := append([]*debug.Module{&a.build.Main, {Path: "stdlib", Version: strings.TrimPrefix(a.build.GoVersion, "go")}}, a.build.Deps...)
	for i, m := range modules {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s has %s from %s, want no replaced module in a release", a.name, m.Path, m.Replace.Path)
		}
		id := fmt.Sprintf("SPDXRef-module-%d", i)
		p := spdxPackage{ID: id, Name: m.Path, Version: m.Version, Download: none, Concluded: none, Declared: none, Copyright: none,
			References: []spdxReference{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: "pkg:golang/" + m.Path + "@" + m.Version}}}
		if m.Sum != "" {
			// A sum of go.sum is one over the files of a module, and not over its zip: it is no checksum of what one downloads.
			if _, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err != nil {
				return nil, fmt.Errorf("the sum of %s is %q: %w", m.Path, m.Sum, err)
			}
			p.Comment = "go.sum " + m.Sum
		}
		document.Packages = append(document.Packages, p)
		document.Relationships = append(document.Relationships, spdxRelationship{From: artifactID, Type: "CONTAINS", To: id})
	}
	return json.MarshalIndent(document, "", "  ")
}

// provenance says of what and how artifacts were built: an in-toto statement with a predicate of SLSA 1.0. Nobody has
// signed it, so it proves nothing by itself, and says so.
func provenance(artifacts []artifact, from source) ([]byte, error) {
	type digests map[string]string
	type resource struct {
		Name   string  `json:"name,omitzero"`
		URI    string  `json:"uri,omitzero"`
		Digest digests `json:"digest"`
	}
	var subjects []resource
	targets := []string{}
	for _, a := range artifacts {
		subjects = append(subjects, resource{Name: a.name, Digest: digests{"sha256": a.sum}})
		targets = append(targets, a.target)
	}
	return json.MarshalIndent(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":            "https://" + prefix + "/blob/" + from.version + "/RELEASING.md",
				"externalParameters":   map[string]any{"version": from.version, "targets": targets},
				"internalParameters":   map[string]any{"go": artifacts[0].build.GoVersion, "signed": "no: this statement is unsigned; build it again and compare the sums"},
				"resolvedDependencies": []resource{{URI: "git+https://" + prefix + "@refs/tags/" + from.version, Digest: digests{"gitCommit": from.commit}}},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": "https://" + prefix + "/internal/tools/release"}},
		},
	}, "", "  ")
}
