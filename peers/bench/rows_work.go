package bench

import "fmt"

const noWire = "its in-process transport passes Go values and encodes nothing"

const oneClient = "its transport that encodes messages allows one client in a process"

func connectRow() row {
	const name = "connect"
	took := found(name, "", median)
	return row{
		name: name, title: "Connect, initialize and close, in memory",
		about: "The client opens an MCP session and closes it, again and again. The floor makes one call and sends one notification " +
			"instead of initialize.",
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
			atMost(1.5, times, "time to the floor's, at first", bowlineTyped, took.toFloor()).from(5),
			atMost(1.1, times, "time to the floor's", bowlineTyped, took.toFloor()).from(5).because("the measurements vary between 1 and 1.3. A third of the time is garbage collection of 11 kB for each session."),
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
		about: "Each connection is opened and makes one call. When all connections are idle, their size is measured: heap and stacks of client and server " +
			"together. Then 64 callers make calls, each time over the next connection, so with 10,000 connections each is idle between its calls. " +
			"Bowline's clients share a supervisor.",
		contestants: []string{theFloor, bowlineTyped, bowlineModern, goSDKLegacy, mcpGoInside},
		lacks: []lack{
			{mcpGoInside, noWire + ", so an idle connection has neither a reader nor a buffer"},
			{mcpGoLegacy, oneClient},
		},
		rounds:  3,
		measure: manyConnections,
		columns: append(columns, column{"10,000 to 1", cost, times, false}),
		targets: []target{
			atMost(12_000, size, "an idle connection of 10,000", bowlineTyped, found(name, last, held)).from(16_900),
			atMost(2, count, "goroutines of an idle connection", bowlineTyped, found(name, last, goroutines)),
			atMost(1.4, times, "processor time of a call, 10,000 connections to 1", bowlineTyped, cost).from(2.08).because("each of 10,000 connections is idle for 100 ms between its calls, so it parks, which takes 3 µs, and its memory is not in the processor's cache any more. In absolute time a call costs about as much as the floor's. To park later would hold more memory."),
		},
	}
}

func sessionsRow() row {
	const name = "sessions"
	alone, streamed := found(name, withoutStream, held), found(name, withStream, held)
	return row{
		name: name, title: "Idle sessions over HTTP",
		about: "The memory of a server for a session whose client is silent, including that of net/http, without and with an open GET stream. " +
			"The floor stores the session's name in a set. Only the legacy revisions have sessions.",
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
			atMost(1500, size, "an idle session", bowlineTyped, alone).from(6300).because("the state machine, its loop and its handle take 1.3 kB. [IDLE.md](design/IDLE.md) lists every object. The next step would be to store parked sessions in a smaller form, and to make all three objects again for the next message."),
			atMost(0.01, count, "goroutines of an idle session", bowlineTyped, found(name, withoutStream, goroutines)),
			atMost(1.1, times, "a session with an open GET stream, to the floor's", bowlineTyped, streamed.toFloor()).because("the session comes on top of what net/http takes, which is as much as the floor's."),
		},
	}
}

func parkedRow() row {
	const name = "parked"
	most := parked(mostParked(false))
	slowed := found(name, most, median).over(found(name, parked(1), median))
	return row{
		name: name, title: "A call beside calls that wait, in memory",
		about: "10,000 calls wait for an answer that does not come, while one caller makes calls. The bytes are the memory of each waiting call " +
			"on both sides. Bowline's server is configured to serve that many calls at the same time.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy},
		lacks:       []lack{{mcpGoLegacy, "its server, if messages are encoded, serves at most 100 tool calls at the same time"}},
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
			atMost(8000, size, "a call that waits", bowlineTyped, found(name, most, held)).because("caller and handler rest on stacks of 8 kB each, which Go makes smaller only if less than 1.2 kB is in use."),
		},
	}
}

func notificationsRow() row {
	const name = "notifications"
	reached, missed := found(name, "", arrived), found(name, "", lost)
	return row{
		name: name, title: "100,000 notifications in memory",
		about: "The client sends notifications as fast as the connection accepts them, for at most four seconds, to a handler that " +
			"does nothing. If the connection is busy, the client waits. *lost* counts notifications that the handler never gets.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		rounds:      3,
		measure:     flooding,
		columns:     []column{{"handled per second", reached, perSecond, true}, {"lost", missed, percent, false}},
		targets: []target{
			atLeast(1.9, times, "notifications per second to the floor's", bowlineTyped, reached.toFloor()).from(1.4).because("the goroutine of the sender does nine tenths of the work: it encodes, and runs the loop of its own connection and mostly that of the peer. The next step would be to move the peer's loop to another goroutine while notifications flood it."),
			atMost(0, percent, "lost", bowlineTyped, missed).from(0.02),
		},
	}
}

func congestionRow() row {
	const name = "congestion"
	held, slowed := found(name, "", peak), found(name, "", median).over(found(name, "", quiet))
	return row{
		name: name, title: "5,000 notifications to a handler that takes a millisecond",
		about: "The server sends log messages faster than the client's handler processes them. The bytes are the maximum size of the heap after a " +
			"garbage collection, on both sides. The call is the echo of the same client. Bowline's server drops " +
			"log messages while the connection is busy, and mcp-go's server drops them while 100 wait. " +
			"Bowline's limit on log messages per second is switched off here.",
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
			atMost(1e6, size, "bytes held", bowlineTyped, held).from(3.1e6),
			atMost(2, times, "a call meanwhile to one before", bowlineTyped, slowed),
		},
	}
}

func listRow() row {
	const name = "list"
	took, made := found(name, "", median), found(name, "", allocs).per(listedTools)
	return row{
		name: name, title: "List 1000 tools in memory",
		about: "The client lists all tools, in pages of the server's default size: 100 tools with Bowline, 1000 with go-sdk, " +
			"and all on one page with mcp-go and the floor. Each tool has a description and a schema of four properties, 0.5 kB in total.",
		contestants: []string{theFloor, bowlineTyped, goSDKLegacy, mcpGoLegacy},
		measure:     listing,
		columns: []column{
			{"p50", took, seconds, true},
			{"allocations per tool", made, count, false},
			{"bytes allocated per tool", found(name, "", allocated).per(listedTools), size, false},
			{"processor", found(name, "", processor), seconds, true},
		},
		targets: []target{
			atMost(0.5, times, "time to the floor's", bowlineTyped, took.toFloor()).from(0.87),
			atMost(10, count, "allocations per tool", bowlineTyped, made),
		},
	}
}

func stopsRow() row {
	const name = "stops"
	ends, closes := found(name, "", callEnds), found(name, "", closeEnds)
	return row{
		name: name, title: "A server that stops reading",
		about: "The server is a child that opens a session and then stops reading. The client makes a call with 1 MiB of arguments, which is more than a pipe " +
			"holds, and a deadline of 200 ms. Then it closes the session. Each step is given up after 6 seconds.",
		contestants: []string{bowlineTyped, goSDKLegacy, mcpGoLegacy},
		lacks:       []lack{{theFloor, "it has no deadlines and does not end its child"}},
		rounds:      2,
		measure:     stopping,
		columns:     []column{{"the call ends after", ends, patience, false}, {"close ends after", closes, patience, false}},
		targets: []target{
			atMost((deadline.Seconds()*1000+10)/1000, patience, "the call ends after", bowlineTyped, ends),
			atMost(5, patience, "close ends within the grace period", bowlineTyped, closes),
		},
	}
}
