package command

import (
	"regexp"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/monitor"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	prometheusexporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// TestThePageIsThatOfTheExporter compares the page of all metrics with that of OpenTelemetry's own
// exporter, byte by byte.
func TestThePageIsThatOfTheExporter(t *testing.T) {
	registry := prometheus.NewRegistry()
	exporter, err := prometheusexporter.New(prometheusexporter.WithRegisterer(registry), prometheusexporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "a \"name\"\nof \\ two lines"), attribute.Int("n", 7),
		// Users set these with OTEL_RESOURCE_ATTRIBUTES: names that are equal on the page, or no names there.
		attribute.String("a.b", "z"), attribute.String("a_b", "y"), attribute.String("a..b", "x"), attribute.String("1x", "3"),
		attribute.String(".2", "5"), attribute.String("é__x.", "6"))
	page, meters := monitor.NewPage(about, sdkmetric.WithReader(exporter))
	pages := pagesOf(t, meters, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), page)
	for i, text := range pages { // this time runs on from page to page
		pages[i] = regexp.MustCompile(`(?m)^(bowline_auth_expires_seconds\{.*\}) 3[0-9.]+$`).ReplaceAllString(text, "$1 3600")
	}
	if diff := cmp.Diff(pages[0], pages[1]); diff != "" || len(pages[1]) < 10_000 {
		t.Errorf("%d bytes (-exporter +page):\n%s", len(pages[1]), diff)
	}
}
