// Command refusals measures how long a caller waits for a refusal: a server over HTTP on loopback, on a simulated card
// in real time, is given more than it can do, and the time of every answer 429 is taken while its steps go on.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
)

func main() {
	card := flag.String("card", "rtx3090", "of the sim device")
	model := flag.String("model", "qwen3.5-27b", "served")
	length := flag.Duration("length", 20*time.Second, "of the load")
	rate := flag.Float64("rate", 40, "requests a second")
	flag.Parse()
	quiet := slog.New(slog.DiscardHandler)
	e, err := engine.Open(context.Background(), engine.Options{Device: "sim:" + *card, Models: []engine.ModelSpec{{Name: *model}}, Log: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := api.NewServer(api.New(e, api.Options{Log: quiet}))
	go server.Serve(listener)
	defer server.Close()

	body := []byte(fmt.Sprintf(`{"model": %q, "prompt": %q, "max_tokens": 200, "sla": {"ttft_ms": 2000, "tpot_ms": 60}}`,
		*model, string(bytes.Repeat([]byte("The quick brown fox. "), 60))))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	var refused []time.Duration
	served, other := 0, 0
	for begin := time.Now(); time.Since(begin) < *length; time.Sleep(time.Duration(float64(time.Second) / *rate)) {
		wait.Go(func() {
			start := time.Now()
			r, err := client.Post("http://"+listener.Addr().String()+"/v1/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				log.Fatal(err)
			}
			_, err = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && r.StatusCode == http.StatusTooManyRequests:
				refused = append(refused, took)
			case err == nil && r.StatusCode == http.StatusOK:
				served++
			default:
				other++
			}
		})
	}
	wait.Wait()
	slices.Sort(refused)
	at := func(p float64) time.Duration {
		if len(refused) == 0 {
			return 0
		}
		return refused[min(len(refused)-1, int(p*float64(len(refused))))].Round(time.Microsecond)
	}
	fmt.Printf("%d requests in %v to %s on a simulated %s, in real time over HTTP: %d served, %d refused, %d otherwise.\n",
		served+len(refused)+other, *length, *model, *card, served, len(refused), other)
	fmt.Printf("A refusal took %v (median), %v (p99), %v at most.\n", at(0.5), at(0.99), at(1))
}
