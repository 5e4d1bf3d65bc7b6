package bench

import "fmt"

const noWire = "its transport in process hands Go values over: nothing is encoded, and there is no wire"

const oneClient = "its transport with a wire has one client in a process"

func connectRow() row {
	const name = "connect"
	took := found(name, "", median)
	return row{
		name: name, title: "Connect, initialize and close, in memory",
		about: "A session is opened, as MCP opens one, and closed, again and again. The floor makes one call and sends one notification " +
			"in place of initialize.",
		contestants: []string{theFloor, bowlineTyped, bowlineModern, goSDKLegacy, mcpGoInside},
		lacks:       []lack{{mcpGoInside, noWire}, {mcpGoLegacy, oneClient}},
		measure:     connecting,
		columns: []column{
			{"p50", took, seconds, true},
			{"p99", found(name, "", percentile), seconds, true},
			{"allocations", found(name, "", allocs), count, false},
			{"bytes allocated", found(name, "", allocated), size, false},
			{"processor", found(name, "", processor), seconds, true},
		},
		targets: []target{
			atMost(1.5, times, "time to the floor's, at first", bowlineTyped, took.toFloor()),
			atMost(1.1, times, "time to the floor's", bowlineTyped, took.toFloor()),
		},
	}
}

func connectionsRow() row {
	const name = "connections"
	most := connectionNumbers(false)
	last := connections(most[len(most)-1])
	cost := found(name, last, processor).over(found(name, connections(1), processor))
	columns := []column{
		{"bytes of an idle one of 10,000", found(name, last, held), size, true},
		{"goroutines", found(name, last, goroutines), count, false},
	}
	for _, n := range most {
		columns = append(columns, column{fmt.Sprintf("processor per call, %d open", n), found(name, connections(n), processor), seconds, false})
	}
	return row{
		name: name, title: "Many connections in memory",
		about: "Connections are opened and make one call each. When all are idle they are weighed: heap and stacks of client and server " +
			"together. Then 64 callers call, each time over the next connection, so that with 10,000 of them each is idle between its calls. " +
			"Bowline's clients share a supervisor.",
		contestants: []string{theFloor, bowlineTyped, bowlineModern, goSDKLegacy, mcpGoInside},
		lacks: []lack{
			{mcpGoInside, noWire + ", so its idle connection has neither a reader nor a buffer"},
			{mcpGoLegacy, oneClient},
		},
		rounds:  3,
		measure: manyConnections,
		columns: append(columns, column{"10,000 to 1", cost, times, false}),
		targets: []target{
			atMost(12_000, size, "an idle connection of 10,000", bowlineTyped, found(name, last, held)),
			atMost(2, count, "goroutines of an idle connection", bowlineTyped, found(name, last, goroutines)),
			atMost(1.4, times, "processor time of a call, 10,000 connections to 1", bowlineTyped, cost),
		},
	}
}

func sessionsRow() row {
	const name = "sessions"
	alone, streamed := found(name, withoutStream, held), found(name, withStream, held)
	return row{
		name: name, title: "Idle sessions over HTTP",
		about: "What a server holds for a session whose client is silent, with all that net/http holds for it, and what it holds when the " +
			"client keeps a GET stream open as well. The floor keeps the session's name in a set. Only the legacy revisions have sessions.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		rounds:      3,
		measure:     idleSessions,
		columns: []column{
			{"bytes", alone, size, false},
			{"goroutines", found(name, withoutStream, goroutines), count, false},
			{"bytes, with a GET stream", streamed, size, true},
			{"goroutines, with a GET stream", found(name, withStream, goroutines), count, false},
		},
		targets: []target{
			atMost(1500, size, "an idle session", bowlineTyped, alone),
			atMost(0.01, count, "goroutines of an idle session", bowlineTyped, found(name, withoutStream, goroutines)),
			atMost(1.1, times, "a session with an open GET stream, to the floor's", bowlineTyped, streamed.toFloor()),
		},
	}
}

func parkedRow() row {
	const name = "parked"
	most := parked(mostParked(false))
	slowed := found(name, most, median).over(found(name, parked(1), median))
	return row{
		name: name, title: "A call beside calls that wait, in memory",
		about: "10,000 calls wait for an answer that does not come, and one caller calls beside them. The bytes are what each waiting call " +
			"holds, on both sides. Bowline's server is allowed to serve as many at once.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy},
		lacks:       []lack{{mcpGoLegacy, "its server with a wire serves at most 100 calls of tools at once"}},
		rounds:      3,
		measure:     parking,
		columns: []column{
			{"p50 beside 1", found(name, parked(1), median), seconds, true},
			{"p50 beside 10,000", found(name, most, median), seconds, true},
			{"10,000 to 1", slowed, times, false},
			{"bytes of a call that waits", found(name, most, held), size, true},
		},
		targets: []target{
			atMost(1.1, times, "p50 beside 10,000 waiting calls, to p50 beside 1", bowlineTyped, slowed),
			atMost(8000, size, "a call that waits", bowlineTyped, found(name, most, held)),
		},
	}
}

func notificationsRow() row {
	const name = "notifications"
	reached, missed := found(name, "", arrived), found(name, "", lost)
	return row{
		name: name, title: "100,000 notifications in memory",
		about: "The client sends notifications as fast as the connection takes them, or as many as go in four seconds, to a handler that " +
			"does nothing. What the connection does not take yet the client waits for. Lost is what the handler never gets.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		rounds:      3,
		measure:     flooding,
		columns:     []column{{"handled per second", reached, perSecond, true}, {"lost", missed, percent, false}},
		targets: []target{
			atLeast(1.9, times, "notifications per second to the floor's", bowlineTyped, reached.toFloor()),
			atMost(0, percent, "lost", bowlineTyped, missed),
		},
	}
}

func congestionRow() row {
	const name = "congestion"
	held, slowed := found(name, "", peak), found(name, "", median).over(found(name, "", quiet))
	return row{
		name: name, title: "5,000 notifications to a handler that takes a millisecond",
		about: "The server sends log messages faster than the client's handler takes them. The bytes are the most that the heap held after a " +
			"garbage collection, on both sides; the call is the echo of the same client. Bowline's server drops " +
			"log messages that find the connection busy, and mcp-go's those that find 100 waiting. " +
			"Bowline's bound on log messages per second is lifted for this.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		rounds:      3,
		measure:     congestion,
		columns: []column{
			{"bytes held, at most", held, size, false},
			{"a call before, p50", found(name, "", quiet), seconds, false},
			{"a call meanwhile, p50", found(name, "", median), seconds, false},
			{"meanwhile to before", slowed, times, false},
			{"messages handled in 1.5 s", found(name, "", handled), count, false},
		},
		targets: []target{
			atMost(1e6, size, "bytes held", bowlineTyped, held),
			atMost(2, times, "a call meanwhile to one before", bowlineTyped, slowed),
		},
	}
}

func listRow() row {
	const name = "list"
	took, made := found(name, "", median), found(name, "", allocs).per(listedTools)
	return row{
		name: name, title: "List 1000 tools in memory",
		about: "The client lists all tools, page by page where the server has pages by default: 100 to a page with Bowline, 1000 with go-sdk, " +
			"all on one with mcp-go and the floor. Each tool has a description and a schema of four properties, 0.5 kB in all.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		measure:     listing,
		columns: []column{
			{"p50", took, seconds, true},
			{"allocations per tool", made, count, false},
			{"bytes allocated per tool", found(name, "", allocated).per(listedTools), size, false},
			{"processor", found(name, "", processor), seconds, true},
		},
		targets: []target{
			atMost(0.5, times, "time to the floor's", bowlineTyped, took.toFloor()),
			atMost(10, count, "allocations per tool", bowlineTyped, made),
		},
	}
}

func stopsRow() row {
	const name = "stops"
	ends, closes := found(name, "", callEnds), found(name, "", closeEnds)
	return row{
		name: name, title: "A server that stops reading",
		about: "The server is a child that opens a session and then reads nothing more. A call with 1 MiB of arguments, more than a pipe " +
			"holds, has a deadline of 200 ms; then the session is closed. Nobody waits longer than 6 seconds for either.",
		contestants: []string{bowlineTyped, goSDKLegacy, mcpGoLegacy},
		lacks:       []lack{{theFloor, "it has neither deadlines nor an end of its child"}},
		rounds:      2,
		measure:     stopping,
		columns:     []column{{"the call ends after", ends, patience, false}, {"close ends after", closes, patience, false}},
		targets: []target{
			atMost((deadline.Seconds()*1000+10)/1000, patience, "the call ends after", bowlineTyped, ends),
			atMost(5, patience, "close ends within the grace period", bowlineTyped, closes),
		},
	}
}
