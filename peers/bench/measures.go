package bench

import "context"

// measures are what the rows of rows.txt measure, by their names.
func measures() map[string]func(context.Context, *measurement) error {
	return map[string]func(context.Context, *measurement) error{
		"memory":        echoCalls(memoryCalls, 1, 3, 8, 17, 64, 200, 1000, 4096),
		"stdio":         echoCalls((*measurement).overStdio, 1, 3, 8, 17, 64, 200, 1000),
		"http":          echoCalls((*measurement).overHTTP, 1, 3, 8, 17, 64, 200),
		"payload":       payloadCalls,
		"connections":   manyConnections,
		"sessions":      idleSessions,
		"parked":        parking,
		"notifications": flooding,
		"congestion":    congestion,
		"list":          listing,
		"growth":        growing,
		"waiting":       waitingCalls,
		"memory awake":  echoCalls(memoryCalls, 1, 64),
		"stdio awake":   echoCalls((*measurement).overStdio, 1, 64),
		"http awake":    echoCalls((*measurement).overHTTP, 1, 64),
		"stops":         stopping,
		"agent":         agentWork,
		"telemetry":     telemetryCalls,
		"cluster":       clusterCalls,
		"hop":           hopCalls,
		"gateway":       gatewayWork,
		"moving":        movingSessions,
		"connect":       connecting, "connect awake": connecting, "program": agentProgram, "start": starting,
	}
}
