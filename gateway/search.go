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

func searches(ctx context.Context) bool { return ctx.Value(searchKey{}) != nil }
