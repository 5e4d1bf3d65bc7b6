// Package auditlog sends the audit trail of a gateway to OpenTelemetry as logs, beside the file.
//
//	sender := auditlog.New(exporter, auditlog.Options{})
//	trail, err := audit.Open("audit.jsonl", audit.Options{Key: key, Written: sender.Send})
//	…
//	err = errors.Join(trail.Close(), sender.Close(ctx))
//
// What is sent is a copy: only the file proves anything. Each record has its number in the trail, so who has the logs sees which are missing.
//
// # Goroutines
//
// A Sender has one, which calls the exporter. Send never waits for it. Close does, for as long as its context lets it.
package auditlog
