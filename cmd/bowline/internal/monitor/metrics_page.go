package monitor

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

const maxScrapes = 4 // how many requests for metrics are answered at the same time

// A Page is OpenTelemetry's metrics in the text format of Prometheus. OpenTelemetry's own
// exporter, with which a test compares it, would bring Protocol Buffers and Prometheus's library into
// every build of the command.
type Page struct {
	reader  *sdkmetric.ManualReader
	scrapes chan struct{} // holds a value for each request that is being answered
}

// NewPage returns a page, and the provider of the instruments that it shows.
func NewPage(about *resource.Resource, more ...sdkmetric.Option) (*Page, *sdkmetric.MeterProvider) {
	p := &Page{reader: sdkmetric.NewManualReader(), scrapes: make(chan struct{}, maxScrapes)}
	return p, sdkmetric.NewMeterProvider(append(more, sdkmetric.WithReader(p.reader), sdkmetric.WithResource(about))...)
}

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case p.scrapes <- struct{}{}:
		defer func() { <-p.scrapes }()
	default:
		respond(w, http.StatusServiceUnavailable, fmt.Sprintf("%d others are reading the metrics: try again\n", maxScrapes))
		return
	}
	text, err := p.text(r.Context())
	if err != nil {
		respond(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // the client may have disconnected
}

// text returns the page: metrics by name, and the series of each by the values of its labels.
func (p *Page) text(ctx context.Context) ([]byte, error) {
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(ctx, &all); err != nil {
		return nil, fmt.Errorf("collect metrics: %w", err)
	}
	families := []family{{name: "target_info", help: "Target metadata", kind: "gauge", series: []series{{labels: labelsOf(all.Resource.Set()), value: 1}}}}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			f, err := familyOf(m)
			if err != nil {
				return nil, err
			}
			families = append(families, f)
		}
	}
	slices.SortFunc(families, func(a, b family) int { return strings.Compare(a.name, b.name) })
	page := new(bytes.Buffer)
	for _, f := range families {
		f.write(page)
	}
	return page.Bytes(), nil
}

// A family is one metric of the page.
type family struct {
	name, help, kind string
	series           []series
}

// A series has either a value or a histogram.
type series struct {
	labels    []label
	value     float64
	histogram *metricdata.HistogramDataPoint[float64]
}

type label struct{ name, value string }

// familyOf translates a metric. Neither telemetry/otel nor this command has other types than these.
func familyOf(m metricdata.Metrics) (family, error) {
	f := family{name: promName(m.Name, m.Unit), help: m.Description}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		f.sum(data.IsMonotonic, valuesOf(data.DataPoints))
	case metricdata.Sum[float64]:
		f.sum(data.IsMonotonic, valuesOf(data.DataPoints))
	case metricdata.Gauge[float64]:
		f.kind, f.series = "gauge", valuesOf(data.DataPoints)
	case metricdata.Histogram[float64]:
		f.kind = "histogram"
		for i := range data.DataPoints {
			f.series = append(f.series, series{labels: labelsOf(&data.DataPoints[i].Attributes), histogram: &data.DataPoints[i]})
		}
	default:
		return family{}, fmt.Errorf("metric %s is a %T, which the page cannot show", m.Name, m.Data)
	}
	slices.SortFunc(f.series, func(a, b series) int {
		return cmp.Or(len(a.labels)-len(b.labels), slices.CompareFunc(a.labels, b.labels, func(a, b label) int { return strings.Compare(a.value, b.value) }))
	})
	return f, nil
}

func (f *family) sum(monotonic bool, all []series) {
	f.kind, f.series = "gauge", all
	if monotonic {
		f.kind, f.name = "counter", strings.TrimSuffix(f.name, "_total")+"_total"
	}
}

func valuesOf[N int64 | float64](points []metricdata.DataPoint[N]) (all []series) {
	for _, p := range points {
		all = append(all, series{labels: labelsOf(&p.Attributes), value: float64(p.Value)})
	}
	return all
}

// labelsOf joins the values of names that are equal on the page: Prometheus refuses a page that has a
// label twice. Attributes of the resource are a user's words, in OTEL_RESOURCE_ATTRIBUTES.
func labelsOf(set *attribute.Set) (all []label) {
	values := map[string][]string{}
	for _, a := range set.ToSlice() {
		name := underscored(string(a.Key))
		if strings.IndexAny(name, "0123456789") == 0 {
			name = "key_" + name
		}
		values[name] = append(values[name], a.Value.String())
	}
	for name, equal := range values {
		slices.Sort(equal)
		all = append(all, label{name, strings.Join(equal, ";")})
	}
	slices.SortFunc(all, func(a, b label) int { return strings.Compare(a.name, b.name) })
	return all
}

// promName returns the name that OpenTelemetry's rules for Prometheus give to a metric.
func promName(name, unit string) string {
	added := map[string]string{"s": "seconds", "By": "bytes"}[unit] // a {call} and its like add none
	name = underscored(name)
	if added == "" || slices.Contains(strings.Split(name, "_"), added) {
		return name
	}
	return name + "_" + added
}

// underscored replaces each run of what no name may have by one underscore. So no name begins with two,
// which Prometheus keeps for itself.
func underscored(name string) string {
	last := rune(0)
	return strings.Map(func(r rune) rune {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9') {
			if last == '_' {
				return -1
			}
			r = '_'
		}
		last = r
		return r
	}, name)
}

func (f *family) write(page *bytes.Buffer) {
	if len(f.series) == 0 {
		return
	}
	fmt.Fprintf(page, "# HELP %s %s\n# TYPE %s %s\n", f.name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(f.help), f.name, f.kind)
	for _, s := range f.series {
		if s.histogram == nil {
			writeSeries(page, f.name, s.labels, s.value)
			continue
		}
		below := uint64(0)
		for i, bound := range append(slices.Clone(s.histogram.Bounds), math.Inf(1)) {
			below += s.histogram.BucketCounts[i]
			writeSeries(page, f.name+"_bucket", append(slices.Clone(s.labels), label{"le", number(bound)}), float64(below))
		}
		writeSeries(page, f.name+"_sum", s.labels, s.histogram.Sum)
		writeSeries(page, f.name+"_count", s.labels, float64(s.histogram.Count))
	}
}

// writeSeries escapes the values of labels, which may be a peer's words.
func writeSeries(page *bytes.Buffer, name string, labels []label, value float64) {
	page.WriteString(name)
	escaped := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	open := "{"
	for _, l := range labels {
		fmt.Fprintf(page, `%s%s="%s"`, open, l.name, escaped.Replace(strings.ToValidUTF8(l.value, "\uFFFD")))
		open = ","
	}
	if open == "," {
		page.WriteByte('}')
	}
	page.WriteString(" " + number(value) + "\n")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
