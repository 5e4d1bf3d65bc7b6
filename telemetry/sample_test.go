package telemetry_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Add adds every count and every size, each to its own, and leaves what it adds as it was.
func TestAddOfConnections(t *testing.T) {
	numbers := func(first int) (s telemetry.ConnSample) {
		value := reflect.ValueOf(&s).Elem()
		for i := range value.NumField() {
			switch field := value.Field(i); field.Kind() {
			case reflect.Uint64:
				field.SetUint(uint64(first + i))
			case reflect.Int, reflect.Int64:
				field.SetInt(int64(first + i))
			}
		}
		return s
	}
	sum, one := numbers(1000), numbers(100)
	sum.Outage, one.Outage = time.Minute, time.Second
	sum.Settled = []telemetry.Settled{{"answered", "sent", 1}, {"link lost", "unknown", 2}}
	one.Settled = []telemetry.Settled{{"link lost", "not sent", 10}, {"link lost", "unknown", 20}}
	before := slices.Clone(one.Settled)
	sum.Add(&one)
	sum.Add(&telemetry.ConnSample{Settled: []telemetry.Settled{{"link lost", "not sent", 100}}})
	if want := []telemetry.Settled{{"answered", "sent", 1}, {"link lost", "unknown", 22}, {"link lost", "not sent", 110}}; !slices.Equal(sum.Settled, want) {
		t.Errorf("settled %v, want %v", sum.Settled, want)
	}
	if sum.Outage != time.Minute+time.Second || !slices.Equal(one.Settled, before) {
		t.Errorf("an outage of %v, and what was added is %v", sum.Outage, one.Settled)
	}
	value := reflect.ValueOf(sum)
	for i := range value.NumField() {
		name, of := value.Type().Field(i).Name, 1100+2*i
		switch field := value.Field(i); {
		case name == "Epoch" || name == "Outage": // one is a number, and not an amount
		case field.Kind() == reflect.Uint64 && field.Uint() != uint64(of), field.Kind() == reflect.Int && field.Int() != int64(of):
			t.Errorf("%s is %v, want %d", name, field, of)
		}
	}
}
