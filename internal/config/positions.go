package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// positions finds where in a YAML document a value stands.
type positions struct{ file *ast.File }

func newPositions(data []byte) positions {
	f, err := parser.ParseBytes(data, 0)
	if err != nil { // it was decoded before: whatever this is, errors do without a position
		return positions{}
	}
	return positions{f}
}

// of is "line:column:" of the first path that is there, such as $.models[1].name; "" if none is.
func (p positions) of(paths ...string) string {
	if p.file == nil {
		return ""
	}
	for _, text := range paths {
		path, err := yaml.PathString(text)
		if err != nil {
			continue
		}
		if node, err := path.FilterFile(p.file); err == nil && node != nil && node.GetToken() != nil {
			at := node.GetToken().Position
			if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 { // its token is the first colon
				at = m.Values[0].Key.GetToken().Position
			} else if m, ok := node.(*ast.MappingValueNode); ok {
				at = m.Key.GetToken().Position
			}
			return fmt.Sprintf("%d:%d:", at.Line, at.Column)
		}
	}
	return ""
}

// yamlFault is an error of the decoder as "line:column: what", without the text around it.
func yamlFault(err error) string {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return " " + strings.Join(strings.Fields(yaml.FormatError(err, false, false)), " ")
	}
	p := at.GetToken().Position
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, strings.Join(strings.Fields(at.GetMessage()), " "))
}
