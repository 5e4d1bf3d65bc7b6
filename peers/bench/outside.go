package bench

// outside is a program of others between Bowline's client and server. It is not installed here: a run measures it if
// it is in PATH.
func outside(program func(host, port string, server []string) []string) implementation {
	return implementation{http: everyEcho, program: program}
}

func npmProxy(host, port string, server []string) []string {
	return append([]string{"mcp-proxy", "--host", host, "--port", port, "--server", "stream", "--"}, server...)
}
