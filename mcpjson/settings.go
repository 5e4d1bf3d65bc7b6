package mcpjson

import (
	"slices"
	"strings"
	"time"

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
	Auth                   *Auth // nil: the file has none
}

const maxRetries = 100

// settingNames are the keys of the bowline block.
var settingNames = [...]string{
	"initTimeout", "requestTimeout", "maxTimeout", "backoffMin", "backoffMax", "liveness",
	"retries", "waitForReady", "progressRestarts", "trustAnnotations", "toolModes", "auth",
}

// readSettings reads the bowline block, and the key timeout of the entry.
func readSettings(v *values, s *Server, set map[string]node) {
	unknown := func(m member) {
		v.wrong(m.called(), "unknown: there are only %s here", strings.Join(settingNames[:], ", "))
	}
	own := v.settings(set["bowline"], unknown, settingNames[:]...)
	s.InitTimeout = v.duration(own["initTimeout"])
	if s.Timeout = v.duration(own["requestTimeout"]); own["requestTimeout"].absent() {
		s.Timeout = v.milliseconds(set["timeout"])
	}
	s.Settings = Settings{
		MaxTimeout: v.duration(own["maxTimeout"]),
		BackoffMin: v.duration(own["backoffMin"]), BackoffMax: v.duration(own["backoffMax"]),
		Liveness:     readLiveness(v, own["liveness"]),
		Retries:      v.count(own["retries"], maxRetries),
		WaitForReady: v.choice(own["waitForReady"]), ProgressRestarts: v.choice(own["progressRestarts"]),
		TrustAnnotations: v.choice(own["trustAnnotations"]),
		ToolModes:        readToolModes(v, own["toolModes"]),
		Auth:             readAuth(v, own["auth"]),
	}
	if least, most := s.Settings.BackoffMin, s.Settings.BackoffMax; most > 0 && least > most {
		v.wrong(own["backoffMin"], "it is above backoffMax")
	}
}

// readLiveness reads a duration, or "off", which it returns as -1.
func readLiveness(v *values, n node) time.Duration {
	if text(n) == "off" {
		v.record(n, "off")
		return -1
	}
	return v.duration(n)
}

func readToolModes(v *values, n node) map[string]protocol.ToolMode {
	var modes map[string]protocol.ToolMode
	for _, m := range v.members(n) {
		_, value, ok := v.string(m.node)
		mode := protocol.ToolMode(value)
		if ok && !slices.Contains([]protocol.ToolMode{protocol.Stateless, protocol.Stateful}, mode) {
			v.wrong(m.node, "expected stateless or stateful")
			continue
		}
		if modes == nil {
			modes = make(map[string]protocol.ToolMode)
		}
		modes[m.name] = mode
	}
	return modes
}
