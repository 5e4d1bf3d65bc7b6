package mcpjson

import (
	"net/netip"
	"time"
)

// A Gateway is the block bowline at the top of a file: how bowline up offers the servers at one endpoint. Other programs do
// not look at it. The zero value of a field means that the file does not set it.
type Gateway struct {
	HTTP        string  // the address of the endpoint, such as 127.0.0.1:8080
	AdminSocket string  // the path of the socket for bowline ps and the like
	AdminHTTP   string  // the address of the status page
	MaxName     int     // the length of the longest name of a tool, from 32 to 128
	Prefix      *string // "": all servers without a prefix of their own offer bare names
	Catalogue   string  // the path of the file in which the last known lists are kept
	Roots       []string
	Life        Life // of servers that do not say otherwise
	Rate        Rate

	URL            string         // at which clients reach the endpoint, if that is not where it listens, such as https://tools.example.com/mcp
	Login          Login          // who may use the gateway
	TrustedProxies []netip.Prefix // whose clients are those that they name, and who end TLS
	Audit          Audit
	Policy         Policy
	Pins           string // what becomes of a tool that is not as it was approved: one of PinModes; "": the first
}

// An Audit says where the gateway keeps who has asked what; see package gateway/audit.
type Audit struct {
	File        string // its path; "": there is no trail
	Key         string // the path of its key; "": where the program keeps it
	NoArguments bool   // not even digests of arguments are kept
	Block       bool   // requests wait for a trail that cannot be written; else records are dropped and counted
	Sync        bool   // no request is answered before its record is in the file
	Keep        int    // how many files are kept that are full; 0: all
	Show        []Shown
}

// A Shown names members of arguments whose values a record has as they are.
// Of all others it has no more than a digest.
type Shown struct {
	Of      []Pattern // tools and prompts
	Members []string  // by their names; a dot leads into an object
}

// A Login says by which tokens clients show who they are. The zero value means that there are no logins. Tokens and Issuers are never both set.
type Login struct {
	Tokens  string   // the path of a file of package auth/tokens
	Issuers []Issuer // whose tokens are accepted
	Scopes  []string // that a token of an issuer must have
	Groups  string   // the claim that has the groups of a user; "": groups
	Name    string   // the claim by which people know a user, such as email; "": there is none. Nothing is decided by it
	DPoP    string   // one of DPoPModes; "": the first
}

// An Issuer is an OAuth authorization server. In a file, a string is its URL.
type Issuer struct {
	URL        string
	Introspect *Introspect // how it is asked about each token; nil: tokens are signed, and verified with its keys
}

// An Introspect says how a gateway asks an issuer about a token (RFC 7662).
type Introspect struct {
	ClientID     string // of the gateway, which must be registered there
	ClientSecret string
	URL          string // "": as the issuer's metadata say
}

// DPoPModes returns the values that dpop may have in a file, the default first: tokens that are bound to a key of their client (RFC 9449) are
// refused, or accepted beside bearer tokens, or no others are accepted.
func DPoPModes() []string { return []string{"off", "allowed", "required"} }

// A Policy says which users of a gateway may see and call what. What its parts have to say, if they are there, must all allow it.
type Policy struct {
	Rules    []Grant // nil: there are none. The first that allows or denies something decides; what none names is denied
	Personas []Grant // nil: there are none. Who has several may do what one of them allows, and none denies; who has none may do nothing
	Groups   []Grant // each is an endpoint of its own, with what its grant allows
}

// A Grant is one rule, persona or group of a policy.
type Grant struct {
	Place string // such as mcp.json:12:7: bowline.policy[0]
	Name  string // of a persona or a group
	// Who has it, unless it is a group: * stands for everybody, group:NAME for a group, claim:NAME=VALUE for those whose login says so, and everything else for the identity of
	// a user, such as "token ada", which has a space in it. In all of them * stands for any text, and ? for one character.
	Who      []string
	Servers  []string  // to which it is limited; nil: it is not
	Allow    []Pattern // nil: everything in a persona and a group, nothing in a rule
	Deny     []Pattern // wins over Allow
	ReadOnly bool      // of tools only those that say readOnlyHint
	Rate     Rate      // of a persona: what its users may ask in place of Gateway.Rate. Who has several personas has the most that one gives, of each number
}

// A Pattern names tools, prompts and resources: the server as in the file, a slash, and the name or URI that the server uses, or * for all. In both * stands
// for any text, and ? for one character.
type Pattern struct {
	Text  string
	Place string // in the file
}

// MaxGrants is how many rules and personas a policy may have together.
const MaxGrants = 256

// Hosting is the part of a server's block bowline that says how a gateway offers the server. Other programs do not look
// at it, and only Instances counts for Server.Same: to change the others restarts no server.
type Hosting struct {
	Prefix    *string // before the names of its tools and prompts, in place of the server's name; "": bare names
	Life      Life
	Tools     Filter
	Prompts   Filter
	Resources Filter
	Rename    map[string]string // names of single tools, before which the prefix stands, by those that the server uses
	Describe  map[string]string // descriptions of single tools, by the names that the server uses
	Roots     []string          // file URIs; they replace those of the Gateway. Nil: the file has none

	Share     string // who uses one connection with it: one of Shares; "": the gateway decides
	Instances string // at which nodes of a cluster it runs: one of Instances; "" means the first

	Concurrency int            // how many requests may be under way at the server; 0: any number
	ToolRates   map[string]int // how often a client may call a tool in a minute, by the name that the server uses; "*": all others
}

// A Life says when a server runs. In a file, "off" stands for a negative duration.
type Life struct {
	Start    string        // one of Starts; "" means the first
	IdleStop time.Duration // how long nobody must have used it before it is stopped; negative: it is not
	MaxLife  time.Duration // how old it may be before it is started anew, when nobody uses it; negative: as old as it wants
}

// A Rate says how much a client may ask of all servers together. 0: there is no limit.
type Rate struct {
	PerMinute int // requests
	InFlight  int // requests at the same time
}

// A Filter says which tools, prompts or resources are offered, by the names or URIs that the server uses. In a pattern *
// stands for any text, and ? for one character.
type Filter struct {
	Allow []string // nil: everything
	Deny  []string // wins over Allow
}

// Instances returns the values that instances may have in a file: a server at each node of a cluster, or one for all of them.
func Instances() []string { return []string{"each", "one"} }

// Shares returns the values that share may have in a file: one connection for all clients, one for each user, or one for each session of a client.
func Shares() []string { return []string{"all", "user", "client"} }

// PinModes returns the values that pins may have in a file, the default first: people are told of a tool that has changed, or it is kept from clients as
// well, or neither.
func PinModes() []string { return []string{"warn", "block", "off"} }

// Starts returns the values that start may have in a file, the default first.
func Starts() []string { return []string{"eager", "demand"} }
