// Package sched decides which rows run next.
package sched
