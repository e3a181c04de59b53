package api

import "encoding/json/jsontext"

// piece is what an answer grows by, in the order in which the model wrote it. The calls of an answer follow one another:
// arguments are of the call that was begun last.
type piece struct {
	kind pieceKind
	text string // of a call's beginning: nothing
	call call   // of its beginning: id and name
}

type pieceKind int

const (
	contentPiece pieceKind = iota
	reasoningPiece
	callPiece // a call begins
	argumentsPiece
)

// call is a call of a tool; its arguments are the text of a JSON object, unless the answer was cut off in them. Those of a
// custom tool are its input, which is any text.
type call struct {
	id, name, arguments string
	custom              bool
}

// text is a call's arguments, which clients parse also where there are none.
func (c call) text() string {
	if c.arguments == "" && !c.custom {
		return "{}"
	}
	return c.arguments
}

// object is a call's arguments as an object; false where they are none, having been cut off.
func (c call) object() (jsontext.Value, bool) {
	v := jsontext.Value(c.text())
	return v, v.IsValid() && v.Kind() == '{'
}
