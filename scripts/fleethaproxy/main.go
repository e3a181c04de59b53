// Command fleethaproxy compares pooled and dedicated nodes in real time, each fleet behind a HAProxy of its own: processes of
// the real program with simulated cards, on this machine. Arguments behind -- are those of "openinfer bench fleet".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/openinfer-go/openinfer/bench/fleet"
	"github.com/openinfer-go/openinfer/deploy/haproxy"
	"github.com/openinfer-go/openinfer/deploy/localfleet"
)

func main() {
	log.SetFlags(0)
	binary := flag.String("binary", "", "openinfer")
	preset := flag.String("preset", "six", "whose models and nodes: six or four")
	card := flag.String("card", "a6000", "simulated card of every node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *preset, *card, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, binary, preset, card string, args []string) error {
	s, err := fleet.Preset(preset)
	if err != nil {
		return err
	}
	var models []string
	for _, d := range s.Demands {
		models = append(models, d.Model)
	}
	args = append([]string{"bench", "fleet", "--preset", preset, "--card", card}, args...)
	for _, name := range []string{"pooled", "dedicated"} {
		var nodes []*localfleet.Node
		for i := range s.Nodes {
			n := &localfleet.Node{Name: fmt.Sprintf("node%d", i+1), Models: models, Args: []string{"--device", "sim:" + card, "--kv-cache-dtype", "fp8-e4m3"}}
			if name == "dedicated" {
				n.Models = models[i%len(models):][:1]
			}
			nodes = append(nodes, n)
		}
		dir, err := os.MkdirTemp("", "fleethaproxy-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		f, err := localfleet.Start(context.WithoutCancel(ctx), binary, dir, haproxy.Fleet{Models: models}, nodes) // Ctrl-C is the benchmark's to answer
		if err != nil {
			return err
		}
		defer f.Stop()
		var urls []string
		for _, n := range f.Nodes {
			urls = append(urls, n.URL)
		}
		args = append(args, "--fleet", name+"="+f.URL, "--nodes", name+"="+strings.Join(urls, ","))
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		_ = cmd.Process.Signal(os.Interrupt)
		err = errors.Join(ctx.Err(), <-done)
	}
	return err
}
