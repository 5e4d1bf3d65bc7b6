package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// server returns a Conn to a peer in memory.
func server() *conn.Conn {
	return conn.New(inmem.New(func(link transport.Link) {
		conn.Accept(link, conn.Options{}).Start(context.Background(), func(error) {})
	}, inmem.Options{}), conn.Options{})
}

// Lookup finds a Conn by its name, until it is unregistered.
func ExampleNew() {
	ctx := context.Background()
	connections := registry.New(registry.Options{})
	weather := server()
	fmt.Println("registered:", connections.Register(ctx, "weather", weather))

	found, ok := connections.Lookup("weather")
	fmt.Println("found:", ok, found == weather)

	fmt.Println("unregistered:", connections.Unregister(ctx, "weather", weather))
	_, ok = connections.Lookup("weather")
	fmt.Println("found:", ok)
	// Output:
	// registered: <nil>
	// found: true true
	// unregistered: <nil>
	// found: false
}

// A name has one Conn at a time.
func ExampleRegistry_Register() {
	ctx := context.Background()
	connections := registry.New(registry.Options{})
	fmt.Println(connections.Register(ctx, "weather", server()))

	err := connections.Register(ctx, "weather", server())
	var taken *registry.TakenError
	fmt.Println(errors.As(err, &taken), err)

	fmt.Println(connections.Register(ctx, "", server()))
	// Output:
	// <nil>
	// true registry: name "weather" is taken by another Conn of this process
	// registry: name "" is empty
}

// A closed Conn is not found. It need not be unregistered.
func ExampleRegistry_Lookup() {
	ctx := context.Background()
	connections := registry.New(registry.Options{})
	weather := server()
	connections.Register(ctx, "weather", weather)

	weather.Stop()
	fmt.Println("ran:", weather.Run(ctx))
	_, ok := connections.Lookup("weather")
	fmt.Println("found:", ok)
	fmt.Println("another:", connections.Register(ctx, "weather", server()))
	// Output:
	// ran: <nil>
	// found: false
	// another: <nil>
}

// All yields the Conns in the order of their names.
func ExampleRegistry_All() {
	ctx := context.Background()
	connections := registry.New(registry.Options{})
	for _, name := range []string{"weather", "files", "search"} {
		connections.Register(ctx, name, server())
	}
	for name, c := range connections.All() {
		fmt.Println(name, c.State())
	}
	// Output:
	// files starting
	// search starting
	// weather starting
}

// A watch yields the names that exist, and then the changes.
func ExampleRegistry_Watch() {
	ctx := context.Background()
	connections := registry.New(registry.Options{})
	weather, search := server(), server()
	connections.Register(ctx, "weather", weather)
	connections.Register(ctx, "search", search)

	for change := range connections.Watch(ctx) {
		fmt.Println(change)
		switch {
		case change.Name == "weather" && change.Kind == registry.Added:
			connections.Unregister(ctx, "search", search)
			connections.Register(ctx, "files", search)
		case change.Name == "files":
			return
		}
	}
	// Output:
	// search added
	// weather added
	// search removed
	// files added
}

// Two processes share a Store. Each finds its own Conns with Lookup. Holders yields who has the other names.
func ExampleRegistry_Holders() {
	ctx := context.Background()
	names := new(registry.Local) // a client of etcd would be another Store
	here := registry.New(registry.Options{Store: names, Holder: "10.0.0.1:8080"})
	there := registry.New(registry.Options{Store: names, Holder: "10.0.0.2:8080"})
	there.Register(ctx, "weather", server())

	fmt.Println(here.Register(ctx, "weather", server()))
	for holding, err := range here.Holders(ctx) {
		fmt.Println(holding.Name, "is at", holding.Holder, err)
		break
	}
	// Output:
	// registry: name "weather" is taken by "10.0.0.2:8080"
	// weather is at 10.0.0.2:8080 <nil>
}
