package monitor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
)

// TestMetricsOfOtherAddressesHaveAnyHost checks that Prometheus may use any name for an address
// that is not a loopback address.
func TestMetricsOfOtherAddressesHaveAnyHost(t *testing.T) {
	served := checkHost(http.NotFoundHandler())
	for address, want := range map[string]int{"192.0.2.1": http.StatusNotFound, "127.0.0.1": http.StatusForbidden, "::ffff:127.0.0.1": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "http://tools.test:9090/metrics", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(address)})))
		w := httptest.NewRecorder()
		if served.ServeHTTP(w, r); w.Code != want {
			t.Errorf("at %s the status is %d, want %d", address, w.Code, want)
		}
	}
}

// Where the exporter has no page at all, because it refuses such names, ours has names that Prometheus
// accepts and does not use itself.
func TestNamesThatPrometheusKeepsForItself(t *testing.T) {
	set := attribute.NewSet(attribute.String("__name__", "x"), attribute.String("__", "y"), attribute.String("é", "z"))
	want := []label{{"_", "y;z"}, {"_name_", "x"}}
	if got := labelsOf(&set); !slices.Equal(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}
