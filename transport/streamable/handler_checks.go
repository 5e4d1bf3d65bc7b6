package streamable

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// firstModern is the first revision without sessions.
const firstModern = protocol.Version20260728

// admit says whether a request may be looked at, whatever it asks for.
func (h *Handler) admit(r *http.Request) *refusal {
	switch {
	case latch.IsRaised(h.stopped):
		return shuttingDown(jsonrpc.ID{})
	case !h.originAllowed(r):
		return &refusal{status: http.StatusForbidden, text: "origin not allowed"}
	case (isLoopback(r) || len(h.options.AllowedHosts) > 0) && !h.hostAllowed(r.Host):
		return &refusal{status: http.StatusForbidden, text: "host not allowed"}
	default:
		return nil
	}
}

// originAllowed reports whether a request comes from no page, from one of this
// server, or from one that is allowed to send it.
func (h *Handler) originAllowed(r *http.Request) bool {
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return true
	}
	if len(origins) > 1 {
		return false
	}
	same := func(allowed string) bool { return strings.EqualFold(allowed, origins[0]) }
	if slices.ContainsFunc(h.options.AllowedOrigins, same) {
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && h.isOwn(origin, r)
}

// isOwn reports whether an origin is this server's. That a page came from the
// host it asks says so only when the name is known to be the server's, or TLS
// has proved it: else the name may be one that was rebound to its address.
func (h *Handler) isOwn(origin *url.URL, r *http.Request) bool {
	if origin.Host == "" || !strings.EqualFold(origin.Host, r.Host) {
		return false
	}
	if r.TLS != nil {
		return origin.Scheme == "https"
	}
	return origin.Scheme == "http" && h.hostAllowed(r.Host)
}

// isLoopback reports whether the request came in on a loopback address.
func isLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

// hostAllowed reports whether a host is a loopback name or address, or one of
// those that are allowed.
func (h *Handler) hostAllowed(host string) bool {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if address, err := netip.ParseAddr(name); err == nil && address.Unmap().IsLoopback() {
		return true
	}
	return strings.EqualFold(name, "localhost") || slices.ContainsFunc(h.options.AllowedHosts, func(allowed string) bool {
		return strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	})
}

// checkMediaTypes looks at what is POSTed, and what is taken in return.
func checkMediaTypes(header http.Header) *refusal {
	mediaType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch {
	case !strings.EqualFold(strings.TrimSpace(mediaType), typeJSON):
		return &refusal{status: http.StatusUnsupportedMediaType, text: "Content-Type must be " + typeJSON}
	case !accepts(header, typeJSON) || !accepts(header, typeStream):
		return &refusal{status: http.StatusNotAcceptable, text: "Accept must include " + typeJSON + " and " + typeStream}
	default:
		return nil
	}
}

// accepts reports whether a media type is accepted: by name, by a wildcard, or
// because nothing is said.
func accepts(header http.Header, mediaType string) bool {
	said := header["Accept"]
	for _, list := range said {
		for entry := range strings.SplitSeq(list, ",") {
			mediaRange, parameters, _ := strings.Cut(entry, ";")
			if matches(strings.TrimSpace(mediaRange), mediaType) && !excludes(parameters) {
				return true
			}
		}
	}
	return len(said) == 0
}

func matches(mediaRange, mediaType string) bool {
	if mediaRange == "*/*" || strings.EqualFold(mediaRange, mediaType) {
		return true
	}
	kind, isWildcard := strings.CutSuffix(mediaRange, "/*")
	return isWildcard && strings.HasPrefix(mediaType, strings.ToLower(kind)+"/")
}

// excludes reports whether the parameters hold a quality of zero (RFC 9110,
// section 12.4.2).
func excludes(parameters string) bool {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if strings.EqualFold(name, "q") && value != "" && strings.Trim(value, "0.") == "" {
			return true
		}
	}
	return false
}

// namesModern reports whether the version header names a revision without
// sessions.
func namesModern(header http.Header) bool {
	version := header.Get(headerVersion)
	return isDate(version) && version >= firstModern
}

// isDate reports whether a text has the form of a revision: 2026-07-28.
func isDate(s string) bool {
	if len(s) != len(firstModern) {
		return false
	}
	for i := range len(s) {
		if dash := i == 4 || i == 7; dash != (s[i] == '-') || !dash && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}
