//bowline:pure

package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A page of metrics is in the text format of Prometheus. It says what a Report says, so it costs a call nothing.
type metrics struct{ strings.Builder }

// metricsOf returns the page of a report.
func metricsOf(r Report) string {
	var m metrics
	m.whole(r)
	m.states(r.Servers)
	m.each(r.Servers, "server_restarts_total", "counter", "Connections after the first one.", func(s ServerReport) float64 { return float64(s.Restarts) })
	m.requests(r.Servers)
	m.durations(r.Servers)
	m.called(r.Called)
	m.each(r.Servers, "tools", "gauge", "Tools that a server has listed.", func(s ServerReport) float64 { return float64(s.Tools) })
	m.each(r.Servers, "listed_timestamp_seconds", "gauge", "When a server has listed its tools last.", func(s ServerReport) float64 { return seconds(s.Known) })
	return m.String()
}

// whole is about the gateway itself.
func (m *metrics) whole(r Report) {
	m.one("ready", "gauge", "New calls are welcome.", truth(r.Ready))
	m.one("applied_timestamp_seconds", "gauge", "When the file was applied.", seconds(r.Applied))
	m.one("clients", "gauge", "Clients that have a session.", float64(len(r.Clients)))
	m.one("questions_waiting", "gauge", "Questions that wait for a client.", float64(len(r.Questions)))
	m.refused(r.Refused)
	m.one("tools_not_offered_total", "counter", "Requests for tools that their clients are not offered, whether there are such tools or not.", float64(r.NotOffered))
	m.one("audit_lost_total", "counter", "Records of the audit trail that could not be written.", float64(r.AuditLost))
	m.one("audit_unsent_total", "counter", "Records of the audit trail that were written, and could not be sent.", float64(r.AuditUnsent))
	m.one("results_not_enriched_total", "counter", "Results to which nothing could be added.", float64(r.NotEnriched))
	m.denied(r.Denied)
	m.one("request_states_refused_total", "counter", "Requests whose requestState the gateway has refused, such as one that was changed, is of another user, was used, has expired, or is of a call that a restart has ended.", float64(r.StatesRefused))
	m.one("login_pages_refused_total", "counter", "Requests at the pages for logins of users that were refused.", float64(r.PagesRefused))
}

// refused has each reason in any case, as denied has each status.
func (m *metrics) refused(by map[string]int64) {
	m.head("questions_refused_total", "counter", "Questions of servers that no client could be asked.")
	for _, why := range RefusalReasons() {
		m.line("questions_refused_total", float64(by[why]), "reason", why)
	}
}

// called has no tool for those who must not see what servers have written.
func (m *metrics) called(calls []ToolCalls) {
	m.head("tool_calls_total", "counter", "Calls of tools that have ended, by how, and by whether the server has had them.")
	for _, c := range calls {
		labels := []string{"server", c.Server, "tool", c.Tool, "outcome", c.Outcome, "delivery", c.Delivery}
		if c.Tool == "" {
			labels = slices.Delete(labels, 2, 4)
		}
		m.line("tool_calls_total", float64(c.Count), labels...)
	}
}

// denied has the two statuses of a login in any case, so that the first denial is an increase.
func (m *metrics) denied(by map[int]uint64) {
	m.head("denied_total", "counter", "Requests of clients whose sender may not make them, such as those without a valid token.")
	all := map[int]uint64{401: 0, 403: 0}
	maps.Copy(all, by)
	for _, status := range slices.Sorted(maps.Keys(all)) {
		m.line("denied_total", float64(all[status]), "status", strconv.Itoa(status))
	}
}

func (m *metrics) head(name, kind, help string) {
	fmt.Fprintf(m, "# HELP bowline_gateway_%s %s\n# TYPE bowline_gateway_%s %s\n", name, help, name, kind)
}

// line writes a value. The names of servers and tools are the only labels that somebody else has written.
func (m *metrics) line(name string, value float64, labels ...string) {
	m.WriteString("bowline_gateway_" + name)
	open := "{"
	for i := 0; i < len(labels); i += 2 {
		text := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))
		m.WriteString(open + labels[i] + `="` + text + `"`)
		open = ","
	}
	if open == "," {
		m.WriteByte('}')
	}
	m.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

func (m *metrics) one(name, kind, help string, value float64) {
	m.head(name, kind, help)
	m.line(name, value)
}

func (m *metrics) each(servers []ServerReport, name, kind, help string, value func(ServerReport) float64) {
	m.head(name, kind, help)
	for _, s := range servers {
		m.line(name, value(s), "server", s.Name)
	}
}

// states has a series for each state that a server can have, so that a query for one of them finds zeros, too.
func (m *metrics) states(servers []ServerReport) {
	m.head("server_state", "gauge", "1 for the state that a server is in.")
	for _, s := range servers {
		for _, state := range []State{Starting, Ready, Backoff, Stopped, Misconfigured} {
			m.line("server_state", truth(s.State == state), "server", s.Name, "state", string(state))
		}
	}
}

// requests are those of clients.
func (m *metrics) requests(servers []ServerReport) {
	m.each(servers, "requests_in_flight", "gauge", "Requests of clients that a server has not answered yet.", func(s ServerReport) float64 { return float64(s.Calls) })
	m.each(servers, "requests_unanswered_total", "counter", "Requests of clients that a server has not answered.", func(s ServerReport) float64 { return float64(s.Unanswered) })
	m.each(servers, "requests_limited_total", "counter", "Requests of clients that were refused since they were beyond a limit of the file.", func(s ServerReport) float64 { return float64(s.Limited) })
	m.each(servers, "requests_queued", "gauge", "Requests of clients that wait for a place at a server.", func(s ServerReport) float64 { return float64(s.Queued) })
}

// durations is a summary: its quantiles are of the last answers only, its sum and count of all.
func (m *metrics) durations(servers []ServerReport) {
	m.head("request_duration_seconds", "summary", "How long clients have waited for answers of a server.")
	for _, s := range servers {
		m.line("request_duration_seconds", s.P50/1000, "server", s.Name, "quantile", "0.5")
		m.line("request_duration_seconds", s.P99/1000, "server", s.Name, "quantile", "0.99")
		m.line("request_duration_seconds_sum", s.Waited, "server", s.Name)
		m.line("request_duration_seconds_count", float64(s.Answered), "server", s.Name)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds is 0 for a time that has not come.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
