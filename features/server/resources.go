package server

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/features/internal/folder"
	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/features/server/internal/catalog"
	"github.com/bowline-mcp/bowline/features/server/internal/changes"
	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/yosida95/uritemplate/v3"
)

// resources serves the resources of a server.
// What a URI names is looked up in three places, in a fixed order: see find. A client sees resources and files in one
// list, and templates in another.
type resources struct {
	catalog.Catalog[*resource]
	templates catalog.Catalog[*template]
	server    *Server

	adding  sync.Mutex                       // held while folders changes
	folders atomic.Pointer[[]*folder.Folder] // copied when it changes
	listed  fileList
}

// A resource is a resource that was added, or a file of AddFiles.
type resource struct {
	settings
	definition *protocol.Resource
	run        func(context.Context, *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error)
}

func (r *resource) describe() *protocol.Resource { return r.definition }

func (r *resource) feature() Feature { return Feature{KindResource, r.definition.URI, r.definition} }

// A template is a template that was added.
type template struct {
	settings
	definition *protocol.ResourceTemplate
	variables  []string // the names of its variables
	pattern    *catalog.Pattern
	run        func(context.Context, *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error)
}

func (t *template) feature() Feature {
	return Feature{KindTemplate, t.definition.URITemplate, t.definition}
}

// AddResource offers a resource that a function reads.
//
// If the function returns a string, it is the text of the resource. A []byte is sent
// as text if the MIME type is textual, or if there is no MIME type and the bytes are
// UTF-8; otherwise it is sent as binary. A struct, map, slice or number is sent as
// JSON. A *protocol.ReadResourceResult is sent as it is, but contents without a URI get
// that of the request, and contents of this URI without a MIME type get that of the
// resource. ErrNotFound and fs.ErrNotExist are sent as "not found", with the error code of the client's revision. Other errors
// are sent as internal errors with their text, but a *jsonrpc.Error in the chain is
// sent unchanged.
//
// AddResource replaces a resource with the same URI. It panics if f is nil, the URI
// is not absolute, the name is empty, or Out is not one of these types.
func AddResource[Out any](s *Server, r protocol.Resource, f func(context.Context) (Out, error), o ...FeatureOption) {
	defer prefix("resource", r.URI)
	if f == nil || r.Name == "" {
		panic("a name and a function are needed")
	}
	if parsed, err := url.Parse(r.URI); err != nil || !parsed.IsAbs() {
		panic("the URI is not absolute")
	}
	added := &resource{settings: newSettings(KindResource, o), definition: &r}
	added.checkCompletion(nil)
	// It may set the MIME type of the definition, so it comes before anybody sees that.
	write := resourceOutput[Out](&r.MIMEType)
	added.run = func(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
		out, err := f(ctx)
		if err != nil {
			return nil, err
		}
		return write(params.URI, out)
	}
	s.rounds.check(&added.settings)
	s.resources.Set(r.URI, added)
	s.subscriptions.Tell(changes.Resources())
}

// RemoveResources removes resources. Unknown URIs are ignored.
func (s *Server) RemoveResources(uris ...string) {
	if s.resources.Remove(uris) {
		s.subscriptions.Tell(changes.Resources())
	}
}

// AddTemplate offers every resource whose URI matches a template (RFC 6570), and
// reads all of them with one function. In is a struct, or a pointer to one, with a
// field for each variable of the template; see AddTool for tags. In may also be
// map[string]string for all variables, or *protocol.ReadResourceParams for the URI
// itself. A variable that is a list in the URI has the text of the whole list. See
// AddResource for what the function may return. Variables with an enum are completed
// automatically. Use a Completion for others.
//
// A resource of AddResource takes precedence over a template that matches its URI. If
// several templates match, the one whose text sorts first is used. AddTemplate
// replaces a template with the same text. It panics if f is nil, the name is empty,
// the template is invalid, its variables are not the fields of In, a type is not one
// of these, or a Completion names no variable.
func AddTemplate[In, Out any](s *Server, t protocol.ResourceTemplate, f func(context.Context, In) (Out, error), o ...FeatureOption) {
	defer prefix("template", t.URITemplate)
	if f == nil || t.Name == "" {
		panic("a name and a function are needed")
	}
	added := &template{settings: newSettings(KindTemplate, o), definition: &t}
	added.mustParse()
	read := templateInput[In](added)
	added.checkCompletion(added.variables)
	write := resourceOutput[Out](&t.MIMEType)
	added.run = func(ctx context.Context, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
		in, err := read(ctx, params)
		if err != nil {
			return nil, refusal.New(jsonrpc.CodeInvalidParams, "invalid URI: %s", refusal.Explain(err))
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return write(params.URI, out)
	}
	s.rounds.check(&added.settings)
	s.resources.templates.Set(t.URITemplate, added)
	s.completions.note(&added.settings)
	s.subscriptions.Tell(changes.Resources())
}

// mustParse reads the text of the template twice: package uritemplate decides whether it is valid,
// and names its variables.
func (t *template) mustParse() {
	parsed, err := uritemplate.New(t.definition.URITemplate)
	if err != nil {
		panic(err)
	}
	t.variables = parsed.Varnames()
	if t.pattern, err = catalog.NewPattern(t.definition.URITemplate); err != nil {
		panic(err)
	}
}

// RemoveTemplates removes templates, by their text. Unknown ones are ignored.
func (s *Server) RemoveTemplates(texts ...string) {
	if s.resources.templates.Remove(texts) {
		s.subscriptions.Tell(changes.Resources())
	}
}

// templateInput returns a function that decodes the variables of a URI.
func templateInput[In any](t *template) func(context.Context, *protocol.ReadResourceParams) (In, error) {
	if _, raw := any(*new(In)).(*protocol.ReadResourceParams); raw {
		return func(_ context.Context, params *protocol.ReadResourceParams) (In, error) { return any(params).(In), nil }
	}
	s := typed.InferObject(reflect.TypeFor[In](), nil)
	// Both directions are checked: a variable without a field would be lost, and a required field without a variable
	// would refuse each URI.
	for _, name := range t.variables {
		if s.Properties[name] == nil && !s.TakesAny() {
			panic(fmt.Sprintf("there is no field for the variable %q", name))
		}
	}
	for _, name := range s.Required {
		if !slices.Contains(t.variables, name) {
			panic(fmt.Sprintf("there is no variable for the field %q", name))
		}
	}
	t.completeEnums(s)
	decode := textDecoder[In](s)
	return func(ctx context.Context, params *protocol.ReadResourceParams) (In, error) {
		return decode(ctx, t.pattern.Variables(params.URI))
	}
}

// resourceOutput returns a function that converts output to contents. It also sets the
// MIME type, if there is none.
func resourceOutput[Out any](mimeType *string) func(uri string, out Out) (*protocol.ReadResourceResult, error) {
	switch any(*new(Out)).(type) {
	case string:
		return func(uri string, out Out) (*protocol.ReadResourceResult, error) {
			// JSON can have nothing else, and one bad byte must not make the resource unreadable.
			return textContents(uri, *mimeType, strings.ToValidUTF8(any(out).(string), "\uFFFD")), nil
		}
	case []byte:
		return func(uri string, out Out) (*protocol.ReadResourceResult, error) {
			return contents(*mimeType, bytesOf(uri, *mimeType, any(out).([]byte))), nil
		}
	case *protocol.ReadResourceResult:
		return func(uri string, out Out) (*protocol.ReadResourceResult, error) {
			result := any(out).(*protocol.ReadResourceResult)
			if result == nil {
				return nil, ErrNotFound
			}
			return filled(result, uri, *mimeType), nil
		}
	default:
		return jsonContents[Out](mimeType)
	}
}

// jsonContents is resourceOutput for a type whose values are encoded as JSON. Blocks are refused,
// because their JSON is a message of MCP, which nobody who reads a resource expects.
func jsonContents[Out any](mimeType *string) func(uri string, out Out) (*protocol.ReadResourceResult, error) {
	of := reflect.TypeFor[Out]()
	if of.Implements(reflect.TypeFor[protocol.Content]()) || of == reflect.TypeFor[protocol.Contents]() {
		panic("blocks are no contents of a resource")
	}
	typed.Infer(of) // panics if values of the type cannot be encoded
	if *mimeType == "" {
		*mimeType = "application/json"
	}
	return func(uri string, out Out) (*protocol.ReadResourceResult, error) {
		raw, err := typed.Encode(out)
		if err != nil {
			return nil, refusal.New(jsonrpc.CodeInternalError, "the contents cannot be encoded: %s", refusal.Explain(err))
		}
		return textContents(uri, *mimeType, string(raw)), nil
	}
}

// filled returns a result whose contents have a URI, and a MIME type if they are what was asked for. The program may keep
// its result and return it to others, so it is copied before it changes.
func filled(result *protocol.ReadResourceResult, uri, mimeType string) *protocol.ReadResourceResult {
	lacks := func(c protocol.ResourceContents) bool {
		return c.URI == "" || c.URI == uri && c.MIMEType == "" && mimeType != ""
	}
	if !slices.ContainsFunc(result.Contents, lacks) {
		return result
	}
	copied := *result
	copied.Contents = slices.Clone(result.Contents)
	for i := range copied.Contents {
		if c := &copied.Contents[i]; lacks(*c) {
			c.URI, c.MIMEType = uri, cmp.Or(c.MIMEType, mimeType)
		}
	}
	return &copied
}

func textContents(uri, mimeType, text string) *protocol.ReadResourceResult {
	return contents(mimeType, protocol.ResourceContents{URI: uri, Text: &text})
}

func contents(mimeType string, c protocol.ResourceContents) *protocol.ReadResourceResult {
	c.MIMEType = mimeType
	return &protocol.ReadResourceResult{Contents: []protocol.ResourceContents{c}}
}

// bytesOf returns the contents for bytes: as text if they are text.
func bytesOf(uri, mimeType string, raw []byte) protocol.ResourceContents {
	if utf8.Valid(raw) && (mimeType == "" || textual(mimeType)) {
		text := string(raw)
		return protocol.ResourceContents{URI: uri, Text: &text}
	}
	// Nil would mean that there is no blob, and contents need a text or a blob.
	if raw == nil {
		raw = []byte{}
	}
	return protocol.ResourceContents{URI: uri, Blob: raw}
}

func textual(mimeType string) bool {
	kind, _, err := mime.ParseMediaType(mimeType)
	if err != nil {
		return false
	}
	switch _, subtype, _ := strings.Cut(kind, "/"); {
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(subtype, "+json"), strings.HasSuffix(subtype, "+xml"):
		return true
	default:
		return slices.Contains([]string{"json", "xml", "javascript", "yaml", "x-yaml", "toml", "x-sh", "sql", "graphql"}, subtype)
	}
}

// list serves resources/list.
func (rs *resources) list(ctx context.Context, c *call, params *protocol.ListResourcesParams) (*protocol.ListResourcesResult, error) {
	all := &rs.Catalog
	if folders := rs.folders.Load(); folders != nil {
		merged, err := rs.withFiles(folders)
		if err != nil {
			return nil, err
		}
		all = merged
	}
	page, err := listPage(ctx, c, all, params.Cursor, (*resource).describe)
	if err != nil {
		return nil, err
	}
	return &protocol.ListResourcesResult{CacheableResult: page.CacheableResult, Resources: page.entries, NextCursor: page.next}, nil
}

// listTemplates serves resources/templates/list.
func (rs *resources) listTemplates(ctx context.Context, c *call, params *protocol.ListResourceTemplatesParams) (*protocol.ListResourceTemplatesResult, error) {
	page, err := listPage(ctx, c, &rs.templates, params.Cursor, func(t *template) *protocol.ResourceTemplate { return t.definition })
	if err != nil {
		return nil, err
	}
	return &protocol.ListResourceTemplatesResult{CacheableResult: page.CacheableResult, ResourceTemplates: page.entries, NextCursor: page.next}, nil
}

// read serves resources/read.
func (rs *resources) read(ctx context.Context, c *call, params *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error) {
	if err := c.readProgressToken(&params.RequestParams); err != nil {
		return nil, err
	}
	if err := catalog.CheckURI(protocol.MethodReadResource, params.URI); err != nil {
		return nil, err
	}
	of, run, err := rs.find(ctx, params.URI)
	if err != nil {
		return nil, c.resourceFault(params.URI, err)
	}
	// What the client presents later must be for this URI; arguments there are none.
	about := asking.Subject{Method: c.Method, Name: params.URI, Identity: c.Origin.Identity}
	handler := func(ctx context.Context) (*protocol.ReadResourceResult, error) { return run(ctx, params) }
	result, required, err := converse(ctx, c, invocation[*protocol.ReadResourceResult]{of, &params.InputParams, about, handler})
	if required != nil {
		return &protocol.ReadResourceResult{InputRequired: required}, nil
	}
	if err != nil {
		return nil, c.resourceFault(params.URI, err)
	}
	return result, nil
}

type reader = func(context.Context, *protocol.ReadResourceParams) (*protocol.ReadResourceResult, error)

// find finds the resource, file or template that reads a URI.
// What a client may not see is passed over, so a template may serve the URI instead. Whoever finds nothing does not
// learn whether there is something hidden.
func (rs *resources) find(ctx context.Context, uri string) (*settings, reader, error) {
	if r, ok := rs.Get(uri); ok && rs.server.sees(ctx, r.feature()) {
		return &r.settings, r.run, nil
	}
	if folders := rs.folders.Load(); folders != nil {
		for _, f := range *folders {
			name, file, ok := f.Find(uri)
			if !ok {
				continue
			}
			if r := fileResource(f, name, file); rs.server.sees(ctx, r.feature()) {
				return &r.settings, r.run, nil
			}
		}
	}
	for _, t := range rs.templates.All() {
		if t.pattern.Matches(uri) && rs.server.sees(ctx, t.feature()) {
			return &t.settings, t.run, nil
		}
	}
	return nil, nil, ErrNotFound
}
