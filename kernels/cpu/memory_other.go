//go:build cgo && !linux

package cpu

func hugePages([]byte) {}
