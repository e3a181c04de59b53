// Package importgraph holds the test that keeps this module's imports pointing one way.
package importgraph
