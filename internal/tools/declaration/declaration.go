// Package declaration says how the project's tools name what a Go file declares.
package declaration

import "go/ast"

// Function is Type.Method, or the name of a function.
func Function(function *ast.FuncDecl) string {
	if of := Receiver(function); of != "" {
		return of + "." + function.Name.Name
	}
	return function.Name.Name
}

// Receiver is the name of the type that has a method, without its type
// parameters, or "" for a function.
func Receiver(function *ast.FuncDecl) string {
	if function.Recv == nil || len(function.Recv.List) == 0 {
		return ""
	}
	of := function.Recv.List[0].Type
	for {
		switch is := of.(type) {
		case *ast.StarExpr:
			of = is.X
		case *ast.ParenExpr:
			of = is.X
		case *ast.IndexExpr:
			of = is.X
		case *ast.IndexListExpr:
			of = is.X
		case *ast.Ident:
			return is.Name
		default:
			return ""
		}
	}
}
