package sched

// Dbg is for debugging.
var Dbg func(model string, now float64, o any, ahead, free, taken, with, pace float64)
