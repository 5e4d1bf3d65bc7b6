package mcpjson

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"

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

// timeouts reads the bowline block, and timeout beside it.
func (r *reader) timeouts(s *Server, set map[string]node) {
	unknown := func(m member) {
		r.wrong(m.called(), "unknown: there are only %s here", strings.Join(settingNames[:], ", "))
	}
	own := r.settings(set["bowline"], unknown, settingNames[:]...)
	s.InitTimeout = r.duration(own["initTimeout"])
	s.Timeout = cmp.Or(r.duration(own["requestTimeout"]), r.milliseconds(set["timeout"]))
	s.Settings = Settings{
		MaxTimeout: r.duration(own["maxTimeout"]),
		BackoffMin: r.duration(own["backoffMin"]), BackoffMax: r.duration(own["backoffMax"]),
		Liveness:     r.liveness(own["liveness"]),
		Retries:      r.count(own["retries"], maxRetries),
		WaitForReady: r.choice(own["waitForReady"]), ProgressRestarts: r.choice(own["progressRestarts"]),
		TrustAnnotations: r.choice(own["trustAnnotations"]),
		ToolModes:        r.toolModes(own["toolModes"]),
		Auth:             r.auth(own["auth"]),
	}
	if least, most := s.Settings.BackoffMin, s.Settings.BackoffMax; most > 0 && least > most {
		r.wrong(own["backoffMin"], "it is above backoffMax")
	}
}

// liveness is a duration, or off.
func (r *reader) liveness(n node) time.Duration {
	if text(n) == "off" {
		r.record(n, "off")
		return -1
	}
	return r.duration(n)
}

func (r *reader) count(n node, most int) *int {
	if n.absent() {
		return nil
	}
	if literal, ok := n.value.(hujson.Literal); ok && n.value.Kind() == '0' {
		if count := literal.Float(); count >= 0 && count <= float64(most) && count == math.Trunc(count) {
			r.record(n, string(literal))
			whole := int(count)
			return &whole
		}
	}
	r.wrong(n, "expected a whole number from 0 to %d", most)
	return nil
}

func (r *reader) choice(n node) *bool {
	if n.absent() {
		return nil
	}
	chosen := r.boolean(n, false)
	return &chosen
}

func (r *reader) toolModes(n node) map[string]protocol.ToolMode {
	var modes map[string]protocol.ToolMode
	for _, m := range r.members(n) {
		_, value, ok := r.string(m.node)
		mode := protocol.ToolMode(value)
		if ok && !slices.Contains([]protocol.ToolMode{protocol.Stateless, protocol.Stateful}, mode) {
			r.wrong(m.node, "expected stateless or stateful")
			continue
		}
		if modes == nil {
			modes = make(map[string]protocol.ToolMode)
		}
		modes[m.name] = mode
	}
	return modes
}
