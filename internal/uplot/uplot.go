// Package uplot carries uPlot 1.6.32, which draws charts in pages: those of reports and the one that the server shows.
//
// Invariant: what it returns begins with uPlot's licence and has no address in it.
package uplot

import (
	_ "embed"
	"strings"
)

var (
	//go:embed uPlot.iife.min.js
	script string
	//go:embed uPlot.min.css
	style string
	//go:embed LICENSE
	license string
)

// Script defines the global uPlot.
func Script() string {
	_, code, _ := strings.Cut(script, "*/") // its first line is an address
	return header() + code
}

// Style is the style sheet that goes with it.
func Style() string { return header() + style }

func header() string { return "/* uPlot 1.6.32. " + license + " */\n" }
