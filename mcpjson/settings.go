package mcpjson

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/protocol"
)

// Settings configure the session with a server. The zero value of a field means that the
// file does not set it.
type Settings struct {
	MaxTimeout             time.Duration // the limit for a request whose timeout is extended
	BackoffMin, BackoffMax time.Duration // between attempts to connect
	Liveness               time.Duration // silence before a probe; negative: "off"
	Retries                *int          // how often to retry a call after a loss, if that is safe
	WaitForReady           *bool         // whether calls wait for a server
	ProgressRestarts       *bool         // whether progress restarts the timeout
	TrustAnnotations       *bool         // whether readOnlyHint and idempotentHint are believed
	ToolModes              map[string]protocol.ToolMode
	Auth                   *Auth     // nil: the file has none
	PerUser                bool      // each user of a gateway has a login of his own at the server. Programs with one user do not look at it
	Exchange               *Exchange // by which he gets it; nil: with a browser
}

const maxRetries = 100

// settingNames are the keys of the bowline block.
var settingNames = append([]string{
	"initTimeout", "requestTimeout", "maxTimeout", "backoffMin", "backoffMax", "liveness",
	"retries", "waitForReady", "progressRestarts", "trustAnnotations", "toolModes", "auth", "login",
}, hostingNames[:]...)

// readSettings reads the bowline block, and the key timeout of the entry.
func readSettings(v *values, s *Server, set map[string]node) {
	own := v.settings(set["bowline"], v.unknown(settingNames), settingNames...)
	s.Hosting = readHosting(v, own)
	s.InitTimeout = v.duration(own["initTimeout"])
	if s.Timeout = v.duration(own["requestTimeout"]); own["requestTimeout"].absent() {
		s.Timeout = v.milliseconds(set["timeout"])
	}
	s.Settings = Settings{
		MaxTimeout: v.duration(own["maxTimeout"]),
		BackoffMin: v.duration(own["backoffMin"]), BackoffMax: v.duration(own["backoffMax"]),
		Liveness:     readOptional(v, own["liveness"]),
		Retries:      v.count(own["retries"], 0, maxRetries),
		WaitForReady: v.choice(own["waitForReady"]), ProgressRestarts: v.choice(own["progressRestarts"]),
		TrustAnnotations: v.choice(own["trustAnnotations"]),
		ToolModes:        readToolModes(v, own["toolModes"]),
		Auth:             readAuth(v, own["auth"]),
	}
	if s.Settings.PerUser, s.Settings.Exchange = readPerUser(v, own["login"]); s.Settings.PerUser {
		s.checkPerUser(v, own, set)
	}
	if least, most := s.Settings.BackoffMin, s.Settings.BackoffMax; most > 0 && least > most {
		v.wrong(own["backoffMin"], "it is above backoffMax")
	}
}

// readOptional reads a duration, or "off", which it returns as -1.
func readOptional(v *values, n node) time.Duration {
	if text(n) == "off" {
		v.record(n, "off")
		return -1
	}
	return v.duration(n)
}

func readToolModes(v *values, n node) map[string]protocol.ToolMode {
	return readEach(v, n, func(n node) (protocol.ToolMode, bool) {
		_, value, ok := v.string(n)
		mode := protocol.ToolMode(value)
		if ok && !slices.Contains([]protocol.ToolMode{protocol.Stateless, protocol.Stateful}, mode) {
			v.wrong(n, "expected stateless or stateful")
			return mode, false
		}
		return mode, true
	})
}

// readEach reads an object with a value for each of some names, such as those of tools. Which names there are is known only when a server runs, so no
// name is a mistake. Read reports false for a value that is left out. Nil: the object has none.
func readEach[T any](v *values, n node, read func(node) (T, bool)) map[string]T {
	var all map[string]T
	for _, m := range v.members(n) {
		value, ok := read(m.node)
		if !ok {
			continue
		}
		if all == nil {
			all = make(map[string]T)
		}
		all[m.name] = value
	}
	return all
}

const (
	leastMaxName, mostMaxName = 32, 128
	mostRate                  = 1_000_000 // requests
	maxAddress                = 256
)

// gatewayNames are the keys of the block at the top, and hostingNames those of a server's block that only a gateway reads.
var (
	gatewayNames = [...]string{"http", "admin", "maxName", "prefix", "catalogue", "roots", "start", "idleStop", "maxLife", "rate", "url", "auth", "trustedProxies", "audit", "policy", "personas", "groups", "pins"}
	hostingNames = [...]string{"prefix", "start", "idleStop", "maxLife", "tools", "prompts", "resources", "roots", "concurrency", "toolRates", "share", "instances"}
)

func readGateway(v *values, n node) *Gateway {
	own := v.settings(n, v.unknown(gatewayNames[:]), gatewayNames[:]...)
	g := &Gateway{
		HTTP: readAddress(v, own["http"]), Prefix: readPrefix(v, own["prefix"]),
		Catalogue: v.path(own["catalogue"]), Roots: readRoots(v, own["roots"]), Life: readLife(v, own), Rate: readRate(v, own["rate"]),
	}
	if g.Prefix != nil && *g.Prefix != "" {
		v.wrong(own["prefix"], `only "" is possible here, for bare names: a prefix belongs to one server`)
	}
	if longest := v.count(own["maxName"], leastMaxName, mostMaxName); longest != nil {
		g.MaxName = *longest
	}
	_, g.URL, _ = v.string(own["url"])
	g.Login, g.TrustedProxies = readLogin(v, own["auth"]), readProxies(v, own["trustedProxies"])
	g.Audit, g.Policy = readAudit(v, own["audit"]), readPolicy(v, own, g.Login)
	g.Pins = readOneOf(v, own["pins"], PinModes())
	adminNames := []string{"socket", "http"}
	admin := v.settings(own["admin"], v.unknown(adminNames), adminNames...)
	g.AdminSocket, g.AdminHTTP = v.path(admin["socket"]), readAddress(v, admin["http"])
	return g
}

// readAudit reads where the trail is. The words say what happens, and the first of each is the default.
func readAudit(v *values, n node) Audit {
	names := []string{"file", "key", "arguments", "onFull", "sync", "keep", "show"}
	own := v.settings(n, v.unknown(names), names...)
	a := Audit{File: v.path(own["file"]), Key: v.path(own["key"]), NoArguments: readWord(v, own["arguments"], "digest", "none"), Block: readWord(v, own["onFull"], "drop", "block")}
	if sync := v.choice(own["sync"]); sync != nil {
		a.Sync = *sync
	}
	a.Show = readShown(v, own["show"])
	if a.Keep = readLimit(v, own["keep"]); a.File == "" && !n.absent() {
		v.wrong(n, "it names no file")
	}
	return a
}

// maxShown is how many members a record may show.
const maxShown = 16

// readShown reads what a record has as it is. A member whose name says that it is a secret is a
// mistake, and so is a list that names nothing: whoever writes one expects something of it.
func readShown(v *values, n node) (all []Shown) {
	for _, element := range v.elements(n, "an array of objects") {
		names := []string{"of", "members"}
		own := v.settings(element, v.unknown(names), names...)
		shown := Shown{v.patterns(own["of"]), v.strings(own["members"])}
		switch {
		case len(shown.Of) == 0 || len(shown.Members) == 0 || len(shown.Members) > maxShown:
			v.wrong(element, "it needs tools in of, and 1 to %d names in members", maxShown)
		case slices.ContainsFunc(shown.Members, secretName.MatchString):
			v.wrong(own["members"], "one of these is the name of a secret, which no record may show")
		}
		all = append(all, shown)
	}
	return all
}

// secretName matches names that only secrets have. What has another name is for the author of the
// file to judge.
var secretName = regexp.MustCompile(`(?i)passw(or)?d|passphrase|secret|token|credential|authorization|cookie|api_?-?key|private_?-?key`)

// readWord reports whether the file has the other of two words, of which the first is the default.
func readWord(v *values, n node, byDefault, other string) bool {
	_, word, ok := v.string(n)
	if ok && word != byDefault && word != other {
		v.wrong(n, "expected %s or %s", byDefault, other)
	}
	return word == other
}

// readProxies reads addresses, and prefixes such as 10.0.0.0/8.
func readProxies(v *values, n node) (all []netip.Prefix) {
	for i, text := range v.strings(n) {
		prefix, err := network.ParseProxy(text)
		if err != nil {
			v.wrong(n, "number %d is neither an address nor a prefix such as 10.0.0.0/8", i+1)
			continue
		}
		all = append(all, prefix)
	}
	return all
}

// readHosting reads what of a server's block only a gateway uses.
func readHosting(v *values, own map[string]node) Hosting {
	instances := readOneOf(v, own["instances"], Instances()) // it says how the server is reached
	before := v.read                                         // what Same compares
	defer func() { v.read = before }()
	names := []string{"allow", "deny", "rename", "describe"}
	tools := v.settings(own["tools"], v.unknown(names), names...)
	return Hosting{
		Rename: readTexts(v, tools["rename"]), Describe: readTexts(v, tools["describe"]), Prefix: readPrefix(v, own["prefix"]), Life: readLife(v, own), Roots: readRoots(v, own["roots"]),
		Tools: filterOf(v, tools), Prompts: readFilter(v, own["prompts"]), Resources: readFilter(v, own["resources"]),
		Concurrency: readLimit(v, own["concurrency"]), ToolRates: readRates(v, own["toolRates"]),
		Share: readOneOf(v, own["share"], Shares()), Instances: instances,
	}
}

// readRate reads what a client may ask of a gateway. An object without a number limits nothing, as if it were not there.
func readRate(v *values, n node) Rate {
	names := []string{"perMinute", "inFlight"}
	own := v.settings(n, v.unknown(names), names...)
	return Rate{readLimit(v, own["perMinute"]), readLimit(v, own["inFlight"])}
}

// readLimit returns 0 if the file sets none.
func readLimit(v *values, n node) int {
	if limit := v.count(n, 1, mostRate); limit != nil {
		return *limit
	}
	return 0
}

func readRates(v *values, n node) map[string]int {
	return readEach(v, n, func(n node) (int, bool) {
		rate := readLimit(v, n)
		return rate, rate > 0
	})
}

// readLife reads when a server runs. The names of the ways are those of Starts, for whoever lists them.
func readLife(v *values, own map[string]node) Life {
	return Life{Start: readOneOf(v, own["start"], Starts()), IdleStop: readSpan(v, own["idleStop"]), MaxLife: readSpan(v, own["maxLife"])}
}

// readOneOf reads one of some words.
func readOneOf(v *values, n node, words []string) string {
	_, word, _ := v.string(n)
	if !n.absent() && !slices.Contains(words, word) {
		v.wrong(n, "expected one of %s", strings.Join(words, ", "))
	}
	return word
}

// readSpan reads a duration, or "off". A shorter one would start and stop a server all the time.
func readSpan(v *values, n node) time.Duration {
	d := readOptional(v, n)
	if d > 0 && d < time.Second {
		v.wrong(n, "%v is below 1s", d)
	}
	return d
}

// readFilter reads which of a list are offered. An empty allow offers nothing: who writes it means that.
func readFilter(v *values, n node) Filter {
	names := []string{"allow", "deny"}
	return filterOf(v, v.settings(n, v.unknown(names), names...))
}

// filterOf returns a filter of what was read. An allow that is there and empty allows nothing.
func filterOf(v *values, own map[string]node) Filter {
	f := Filter{Allow: v.strings(own["allow"]), Deny: v.strings(own["deny"])}
	if f.Allow == nil && !own["allow"].absent() {
		f.Allow = []string{} // which allows nothing
	}
	return f
}

// readTexts reads an object of texts, none of which may be empty.
func readTexts(v *values, n node) map[string]string {
	return readEach(v, n, func(n node) (string, bool) {
		_, text, ok := v.string(n)
		if ok && text == "" {
			v.wrong(n, "it is empty")
		}
		return text, ok && text != ""
	})
}

// readHiddenTools adds what the user has hidden in the host to what a gateway does not offer: a tool that was switched off there must
// not appear because another program reads the file. The block bowline may allow more than includeTools does, but shows nothing that is excluded.
// The tools of GitHub Copilot CLI are an array; those of any other form are of a host that is not known here.
func readHiddenTools(v *values, offered *Filter, set map[string]node) {
	before := v.read // of what Same compares, this is no part, as Hosting is not
	defer func() { v.read = before }()
	include := set["includeTools"]
	if tools := set["tools"]; tools.absent() || tools.value.Kind() != '[' {
		ignoreUnused(v, set, "tools")
	} else if include.absent() {
		include = tools
	}
	if !include.absent() && offered.Allow == nil {
		offered.Allow = append([]string{}, v.strings(include)...) // not nil: an empty list offers nothing
	}
	offered.Deny = append(append(offered.Deny, v.strings(set["excludeTools"])...), v.strings(set["disabledTools"])...)
}

func readPrefix(v *values, n node) *string {
	if _, prefix, ok := v.string(n); ok {
		return &prefix
	}
	return nil
}

// readAddress reads an address to listen at.
func readAddress(v *values, n node) string {
	written, address, ok := v.string(n)
	if !ok {
		return ""
	}
	_, port, err := net.SplitHostPort(address)
	if number, failed := strconv.ParseUint(port, 10, 16); err != nil || failed != nil || number > maxPort || len(address) > maxAddress {
		v.wrong(n, "%s is no address with a port, such as 127.0.0.1:8080", quote(written))
	}
	return address
}

// readRoots reads folders, as paths or file URIs, and returns them as file URIs.
func readRoots(v *values, n node) []string {
	var roots []string
	for i, root := range v.strings(n) {
		scheme, _, isURI := strings.Cut(root, "://")
		switch {
		case isURI && scheme != "file":
			v.wrong(n, "number %d is neither a path nor a URI that begins with file://", i+1) // it may hold what a variable stands for
			continue
		case !isURI:
			if root = filepath.FromSlash(root); !filepath.IsAbs(root) {
				root = filepath.Join(v.file.folder(), root)
			}
			absolute, err := filepath.Abs(root)
			if err != nil {
				v.wrong(n, "%v", err)
				continue
			}
			root = (&url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(absolute), "/")}).String()
		}
		roots = append(roots, root)
	}
	if roots == nil && !n.absent() {
		return []string{}
	}
	return roots
}

// unknown returns a function that reports a key as a mistake.
func (v *values) unknown(known []string) func(member) {
	return func(m member) { v.wrong(m.called(), "unknown: there are only %s here", strings.Join(known, ", ")) }
}
