package peers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// An npmPackage is what the suite needs from the npm registry, at one version.
type npmPackage struct {
	name    string
	version string
	short   string   // the name of its folder in the cache, with the version
	with    []string // other packages to install beside it, with their versions
}

var (
	everything         = npmPackage{name: "@modelcontextprotocol/server-everything", version: "2026.8.31", short: "everything"}
	filesystem         = npmPackage{name: "@modelcontextprotocol/server-filesystem", version: "2026.8.31", short: "filesystem"}
	memory             = npmPackage{name: "@modelcontextprotocol/server-memory", version: "2026.8.31", short: "memory"}
	playwright         = npmPackage{name: "@playwright/mcp", version: "0.0.83", short: "playwright"}
	fastMCP            = npmPackage{name: "fastmcp", version: "4.20.16", short: "fastmcp"}
	mcpProxy           = npmPackage{name: "mcp-proxy", version: "6.7.19", short: "mcp-proxy"}
	typeScriptV1       = npmPackage{name: "@modelcontextprotocol/sdk", version: "1.32.2", short: "sdk"}
	typeScriptClientV2 = npmPackage{name: "@modelcontextprotocol/client", version: "2.4.0", short: "client"}
	typeScriptServerV2 = npmPackage{
		name: "@modelcontextprotocol/server", version: "2.4.0", short: "server",
		with: []string{"@modelcontextprotocol/node@2.1.2"}, // the HTTP server of the SDK
	}
)

// title returns the name that the pages show.
func (p npmPackage) title() string { return p.name + " " + p.version }

func npmPackages() []npmPackage {
	return []npmPackage{everything, filesystem, memory, playwright, fastMCP, mcpProxy, typeScriptV1, typeScriptClientV2, typeScriptServerV2}
}

// folder returns the folder of the package in the cache that all runs share.
// .ci/everything uses the same cache.
func (p npmPackage) folder() string {
	return filepath.Join(os.TempDir(), "bowline-npm", p.short+"-"+p.version)
}

// path returns the path of a file of the package.
func (p npmPackage) path(file string) string {
	return filepath.Join(p.folder(), "node_modules", filepath.FromSlash(p.name), filepath.FromSlash(file))
}

func (p npmPackage) installed() bool {
	raw, err := os.ReadFile(p.path("package.json"))
	if err != nil {
		return false
	}
	var manifest struct{ Version string }
	return json.Unmarshal(raw, &manifest) == nil && manifest.Version == p.version
}

// install makes the folder of the package, unless it exists. The folder is
// never incomplete: npm installs into a temporary folder, which is then
// renamed.
func (p npmPackage) install() error {
	if p.installed() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.folder()), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(p.folder()), p.short+"-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	arguments := []string{"install", "--prefix", fresh, "--no-audit", "--no-fund", "--loglevel=error", p.name + "@" + p.version}
	npm := exec.Command("npm", append(arguments, p.with...)...)
	if output, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install %s@%s: %w\n%s", p.name, p.version, err, output)
	}
	if p.installed() { // another run has installed it in the meantime
		return nil
	}
	if err := os.RemoveAll(p.folder()); err != nil { // remove what an interrupted install has left
		return err
	}
	if err := os.Rename(fresh, p.folder()); err != nil && !p.installed() {
		return err
	}
	if !p.installed() {
		return fmt.Errorf("npm left no %s@%s in %s", p.name, p.version, p.folder())
	}
	return nil
}
