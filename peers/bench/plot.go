package bench

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// A plot is a picture of one figure over another, both on logarithmic scales.
type plot struct {
	file        string // in the page's folder
	row         string // whose table it stands at
	title       string
	across, up  string // what the axes are
	x, y        unit
	contestants []string
	points      []float64 // on the axis across
	value       func(point float64) figure
}

func plots() []plot {
	known := []string{theFloor, floorByHand, bowlineTyped, bowlineModern, goSDKLegacy, goSDKModern, mcpGoLegacy, mcpGoModern}
	number := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	return []plot{
		{
			file: "latency-memory.svg", row: "memory", title: "Time of an echo in memory, by callers", across: "callers at once", up: "mean time of a call",
			x: number, y: seconds, contestants: known, points: []float64{1, 8, 64, 1000, 4096},
			value: func(n float64) figure { return found("memory", callers(int(n)), mean) },
		},
		{
			file: "latency-stdio.svg", row: "stdio", title: "Time of an echo through a child process, by callers", across: "callers at once", up: "mean time of a call",
			x: number, y: seconds, contestants: known, points: []float64{1, 8, 64, 1000},
			value: func(n float64) figure { return found("stdio", callers(int(n)), mean) },
		},
		{
			file: "latency-http.svg", row: "http", title: "Time of an echo over streamable HTTP, by callers", across: "callers at once", up: "mean time of a call",
			x: number, y: seconds, contestants: known, points: []float64{1, 8, 64},
			value: func(n float64) figure { return found("http", callers(int(n)), mean) },
		},
		{
			file: "payload.svg", row: "payload", title: "Time of an echo in memory, by its text", across: "bytes of text", up: "p50, one caller",
			x: binarySize, y: seconds, contestants: known, points: floats(payloadSizes()),
			value: func(n float64) figure { return found("payload", payload(int(n)), median) },
		},
		{
			file: "memory-connections.svg", row: "connections", title: "Memory of idle connections", across: "connections", up: "heap and stacks",
			x: number, y: size, contestants: append(slices.Clone(known), mcpGoInside), points: floats(connectionNumbers(false)[1:]),
			value: func(n float64) figure { return found("connections", connections(int(n)), held).per(1 / n) },
		},
	}
}

func floats(ints []int) (all []float64) {
	for _, i := range ints {
		all = append(all, float64(i))
	}
	return all
}

// A curve is what is drawn of one contestant.
type curve struct {
	name   string
	class  string
	points [][2]float64
}

// curves are of those contestants that have figures.
func (p plot) curves(r *Results) (all []curve) {
	for _, name := range p.contestants {
		c := curve{name: name, class: classOf(name)}
		for _, x := range p.points {
			if values := p.value(x)(r, name); len(values) > 0 && middle(values) > 0 {
				c.points = append(c.points, [2]float64{x, middle(values)})
			}
		}
		if len(c.points) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// classOf is how a curve looks: a colour for each implementation, and a dashed
// line for the modern revision.
func classOf(contestant string) string {
	implementation, variant, _ := strings.Cut(contestant, ", ")
	class := implementation
	if contestant == floorByHand {
		class = "hand"
	}
	if variant == modern {
		class += " dashed"
	}
	return strings.ToLower(class)
}

// The picture, in pixels. Right of the axes stand the names of the curves.
const (
	width, height          = 760, 420
	left, right, top, base = 74, 560, 48, 366
	lineHeight             = 16
)

// svg draws a plot. It is empty when there is nothing to draw.
func (p plot) svg(r *Results) string {
	curves := p.curves(r)
	if len(curves) == 0 {
		return ""
	}
	var ys []float64
	for _, c := range curves {
		for _, point := range c.points {
			ys = append(ys, point[1])
		}
	}
	across := scale{p.points[0], p.points[len(p.points)-1], left + 14, right - 14}
	ticks := decades(slices.Min(ys), slices.Max(ys))
	up := scale{ticks[0], ticks[len(ticks)-1], base, top}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(p.title))
	s.WriteString(style)
	fmt.Fprintf(&s, `<rect class="paper" width="%d" height="%d"/>`+"\n", width, height)
	fmt.Fprintf(&s, `<text class="title" x="%d" y="24">%s</text>`+"\n", left, html.EscapeString(p.title))
	for _, tick := range ticks {
		y := up.at(tick)
		fmt.Fprintf(&s, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="label" text-anchor="end" x="%d" y="%.1f">%s</text>`+"\n",
			left, right, y, y, left-8, y+4, html.EscapeString(p.y(tick)))
	}
	for _, tick := range p.points {
		x := across.at(tick)
		fmt.Fprintf(&s, `<line class="axis" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="label" text-anchor="middle" x="%.1f" y="%d">%s</text>`+"\n",
			x, x, base, base+5, x, base+20, html.EscapeString(p.x(tick)))
	}
	fmt.Fprintf(&s, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%d"/>`+"\n", left, right, base, base)
	fmt.Fprintf(&s, `<text class="label" text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", (left+right)/2, base+40, html.EscapeString(p.across))
	fmt.Fprintf(&s, `<text class="label" x="%d" y="%d">%s</text>`+"\n", left, top-8, html.EscapeString(p.up))
	for _, c := range curves {
		var path strings.Builder
		for i, point := range c.points {
			fmt.Fprintf(&path, "%s%.1f %.1f", [2]string{"L", "M"}[max(0, 1-i)], across.at(point[0]), up.at(point[1]))
		}
		fmt.Fprintf(&s, `<g class="%s"><path d="%s"/>`, c.class, path.String())
		for _, point := range c.points {
			fmt.Fprintf(&s, `<circle cx="%.1f" cy="%.1f" r="3"/>`, across.at(point[0]), up.at(point[1]))
		}
		s.WriteString("</g>\n")
	}
	s.WriteString(names(curves, across, up))
	s.WriteString("</svg>\n")
	return s.String()
}

// names stand where their curves end, or as near as there is room.
func names(curves []curve, across, up scale) string {
	end := func(c curve) float64 { return up.at(c.points[len(c.points)-1][1]) }
	sorted := slices.SortedStableFunc(slices.Values(curves), func(a, b curve) int { return cmp.Compare(end(a), end(b)) })
	places := make([]float64, len(sorted))
	for i, c := range sorted {
		places[i] = end(c)
		if i > 0 {
			places[i] = max(places[i], places[i-1]+lineHeight)
		}
	}
	lowest := float64(base)
	for i := len(places) - 1; i >= 0; i-- {
		places[i] = min(places[i], lowest)
		lowest = places[i] - lineHeight
	}
	var s strings.Builder
	for i, c := range sorted {
		fmt.Fprintf(&s, `<g class="%s"><path class="leader" d="M%.1f %.1fL%d %.1f"/><text class="name" x="%d" y="%.1f">%s</text></g>`+"\n",
			c.class, across.at(c.points[len(c.points)-1][0])+5, end(c), right+6, places[i], right+10, places[i]+4, html.EscapeString(c.name))
	}
	return s.String()
}

// A scale places values on an axis by their logarithms.
type scale struct{ from, to, start, end float64 }

func (s scale) at(v float64) float64 {
	return s.start + (s.end-s.start)*math.Log(v/s.from)/math.Log(s.to/s.from)
}

// decades are the powers of ten around what is drawn; at least two.
func decades(least, most float64) (ticks []float64) {
	from, to := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	for e := from; e <= max(to, from+1); e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	return ticks
}

// The paper is drawn, so that the picture can be read on any page.
const style = `<style>
.paper { fill: #ffffff }
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.label { fill: #59636e }
.grid { stroke: #d1d9e0 }
.axis { stroke: #59636e }
path { fill: none; stroke-width: 2; stroke: var(--colour) }
path.leader { stroke-width: 1; opacity: 0.5; stroke-dasharray: none }
circle, .name { fill: var(--colour) }
.dashed path { stroke-dasharray: 6 4 }
.floor { --colour: #6e7781 }
.hand { --colour: #afb8c1 }
.bowline { --colour: #0969da }
.go-sdk { --colour: #bc4c00 }
.mcp-go { --colour: #1a7f37 }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 }
text { fill: #f0f6fc }
.label { fill: #9198a1 }
.grid { stroke: #3d444d }
.axis { stroke: #9198a1 }
.floor { --colour: #9198a1 }
.hand { --colour: #656c76 }
.bowline { --colour: #4493f8 }
.go-sdk { --colour: #db6d28 }
.mcp-go { --colour: #3fb950 }
circle, .name { fill: var(--colour) }
}
</style>
`
