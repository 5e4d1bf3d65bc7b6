package guide

import (
	"fmt"
	"go/constant"
	"path/filepath"
	"strings"
	"time"
)

// A bound is a constant of the gateway that users meet. What they can set has its default on the page of its option instead.
type bound struct {
	what, dir, name string
	of              unit
	then            string // what happens beyond it
}

// A unit is what a bound counts. Sizes and durations are printed as people write them: 4 MiB, 5 s.
type unit int

const (
	number unit = iota
	size
	duration
)

// gatewayBounds are the rows about bowline up, in the order in which its users meet them. They are constants and not options, so the page
// has their values from the code, and not from a comment that could be wrong.
var gatewayBounds = []bound{
	{"an `mcp.json` file", "mcpjson", "maxSize", size, "a larger one is a mistake; the same holds for what variables add to one server"},
	{"a list after the start, or after a reload, waits for servers that were never ready", "gateway", "warmUp", duration, "it has what is known, and clients are told when there is more"},
	{"a call waits for a server that is away", "gateway", "longestWait", duration, "an error result names the server, its state, the reason and the next attempt"},
	{"calls start a server that failed before it was ready, once in", "gateway", "wakeInterval", duration, "they wait for its next attempt"},
	{"calls of a server that is stopped or restarted may finish", "gateway", "actGrace", duration, "they end; whether they may have been executed is said"},
	{"a server with `start: demand` that nobody uses", "gateway/internal/life", "demandIdle", duration, "it is stopped, unless the file sets `idleStop`"},
	{"requests of one client that wait for a server with `concurrency`", "gateway/internal/limits", "mostWaitingOfOne", number, "they are refused: nothing was executed"},
	{"those of all clients", "gateway/internal/limits", "mostWaiting", number, "they are refused: nothing was executed"},
	{"each waits", "gateway/internal/limits", "longestTurn", duration, "it is refused: nothing was executed"},
	{"connections with one server that clients do not all share", "gateway/internal/pool", "Most", number, "an idle one ends, or the request is refused: nothing was executed"},
	{"one of a user without a session waits for the next request", "gateway", "absentIdle", duration, "it ends, unless `idleStop` ends it earlier"},
	{"clients that are known to have called a stateful tool of one server", "gateway", "mostStates", number, "one is forgotten, and is not told if the state is lost"},
	{"clients, or tools of a client, with a rate of their own", "gateway/internal/limits", "mostRated", number, "the others share one"},
	{"the name of a tool or prompt", "gateway/internal/names", "DefaultMax", size, "it is cut, and gets a hash; `maxName` sets another length"},
	{"tools, prompts, resources or templates of one server", "gateway/internal/catalogue", "MaxEntries", number, "the others are not offered, which `ps --json` and the page say"},
	{"these, together", "gateway/internal/catalogue", "MaxBytes", size, "the others are not offered"},
	{"one of them", "gateway/internal/catalogue", "MaxEntry", size, "it is not offered"},
	{"a description", "gateway/internal/catalogue", "MaxDescription", size, "it is cut"},
	{"a page that clients get, if it has several entries", "gateway/internal/catalogue", "MaxPage", size, "the others are on the next page"},
	{"pages of one list of a server", "gateway", "maxPages", number, "the list ends there"},
	{"one page of a server", "gateway", "listTimeout", duration, "the list stays as it was"},
	{"changes of lists are told at most once in", "gateway", "announceInterval", duration, "those between are told together"},
	{"the file of `catalogue`", "gateway/internal/catalogue", "MaxFile", size, "it is neither read nor saved"},
	{"lines of its standard error that are kept of each server", "gateway/admin", "TailLines", number, "the oldest go"},
	{"one of them", "gateway/admin", "TailLine", size, "the rest is cut off"},
	{"records of the audit trail on the page", "gateway/audit", "RecentRecords", number, "the oldest go; `bowline audit` has all"},
	{"a result waits for `gateway.Options.Enrich`, unless `EnrichTime` says how long", "gateway", "enrichTime", duration, "it is as the server has sent it, and that is counted"},
	{"calls of `Enrich` that run at a time", "gateway", "maxEnriching", number, "the same"},
	{"what one of them adds", "gateway", "maxAddition", size, "the same"},
	{"viewers of the page who have logged in, as many others, and as many at the socket", "gateway/admin", "MaxViewers", number, "503"},
}

// boundsOfGateway returns the section of the page. A constant that is renamed is a problem, so that no row goes missing silently. Only constants of the
// package itself are found: one that stands on another package's has no value here.
func boundsOfGateway(root string) (section string, problems []string, err error) {
	var out strings.Builder
	out.WriteString("\n## A gateway\n\nWhat [`bowline up`](guide/up.md) and package `gateway` add to the limits of a client and of a server, which hold on its two sides:\n\n" +
		"| What | Limit | Beyond it |\n| --- | --- | --- |\n")
	parsed := make(map[string]*source)
	for _, b := range gatewayBounds {
		p := parsed[b.dir]
		if p == nil {
			if p, err = parsePackage(filepath.Join(root, filepath.FromSlash(b.dir))); err != nil {
				return "", nil, err
			}
			parsed[b.dir] = p
		}
		// A constant that was renamed, or is no number any more, must not leave a row without a value.
		value, exact := int64(0), false
		if found := p.consts[b.name]; found != nil {
			value, exact = constant.Int64Val(constant.ToInt(p.eval(found)))
		}
		if !exact {
			problems = append(problems, fmt.Sprintf("%s has no number %s", b.dir, b.name))
			continue
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", b.what, b.of.print(value), b.then)
	}
	return out.String(), problems, nil
}

func (u unit) print(value int64) string {
	switch {
	case u == duration:
		return spaced(time.Duration(value))
	case u == size && value >= 1<<20:
		return fmt.Sprintf("%d MiB", value>>20)
	case u == size && value >= 1<<10:
		return fmt.Sprintf("%d KiB", value>>10)
	case u == size:
		return fmt.Sprintf("%d bytes", value)
	default:
		return grouped(value)
	}
}

// spaced writes a duration with a space before its unit, as the pages do. Units are as large as they can be without a fraction.
func spaced(d time.Duration) string {
	switch {
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	case d >= time.Second && d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	default:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
}
