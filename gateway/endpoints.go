package gateway

import "context"

type searchKey struct{}

// WithSearch returns the context of a request at the endpoint for search. Instead of the tools of all servers, such requests find four: find_tools,
// describe_tool, call_read_only_tool and call_tool. Everything else is as at the endpoint of the gateway.
//
//	http.Handle("/mcp/search", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//		mcp.ServeHTTP(w, r.WithContext(gateway.WithSearch(r.Context())))
//	}))
func WithSearch(ctx context.Context) context.Context {
	return context.WithValue(ctx, searchKey{}, true)
}

type groupKey struct{}

// WithGroup returns the context of a request at the endpoint of a group of the file. Such a request finds only what the group has. Policies hold there, too;
// a group limits nobody, since whoever reaches one endpoint reaches all. In a group that the file does not have is nothing.
func WithGroup(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, groupKey{}, name)
}

// groupIn returns the name of the group; "": the request came to the endpoint of everything.
func groupIn(ctx context.Context) string {
	name, _ := ctx.Value(groupKey{}).(string)
	return name
}

func searches(ctx context.Context) bool { return ctx.Value(searchKey{}) != nil }
