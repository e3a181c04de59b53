package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openinfer-go/openinfer/bench/load/loadtest"
)

const msec = time.Millisecond

// inBubble runs f in virtual time with a Client of s.
func inBubble(t *testing.T, s *loadtest.Stub, o ClientOptions, f func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		transport, url, stop := loadtest.Serve(s)
		defer stop()
		o.URL, o.Transport, o.Model = url, transport, "stub"
		c, err := NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		f(t, c)
	})
}

// same is a load of equal requests.
func same(tokens int) iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for i := 0; yield(&Request{Messages: User(fmt.Sprint("prompt ", i)), MaxTokens: tokens}); i++ {
		}
	}
}

func TestOpenLoopDoesNotSlowDown(t *testing.T) {
	// One answer takes ten seconds; requests come every 100 ms.
	s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer {
		return loadtest.Answer{First: time.Second, Gap: func(int) time.Duration { return time.Second }}
	}}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		result := Run(t.Context(), c, First(50, At(same(10), Fixed(10))), Options{})
		if len(result.Records) != 50 {
			t.Fatalf("%d records of 50", len(result.Records))
		}
		for i, r := range result.Records {
			due := time.Duration(i) * 100 * msec
			if r.Outcome != OK || r.Index != i || r.Due != due || r.Ready != due || r.Sent != due || r.FirstByte != due || r.First() != due+time.Second ||
				r.Last() != due+10*time.Second || r.End != r.Last() || r.Tokens != 10 || len(r.Chunks) != 10 || r.TPOT() != time.Second || r.PromptTokens != 2 {
				t.Fatalf("request %d: %+v", i, r)
			}
		}
		if most := slices.MaxFunc(result.Series(time.Second), func(a, b Point) int { return a.Most - b.Most }).Most; most != 50 {
			t.Errorf("at most %d ran at once, not all 50", most)
		}
	})
}

// TestPercentilesOfKnownDelays: the delays of 300 streams are drawn, and what is measured of them is exactly that.
func TestPercentilesOfKnownDelays(t *testing.T) {
	const n, tokens = 300, 20
	draw := func(i int) (first time.Duration, gaps []time.Duration) {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		delay := func(median time.Duration) time.Duration {
			return time.Duration(float64(median) * math.Exp(0.6*r.NormFloat64()))
		}
		first = delay(400 * msec)
		for range tokens - 1 {
			gaps = append(gaps, delay(100*msec))
		}
		return first, gaps
	}
	var ttft, itl []time.Duration
	for i := range n {
		first, gaps := draw(i)
		ttft, itl = append(ttft, first), append(itl, gaps...)
	}
	s := &loadtest.Stub{Usage: 2, Answer: func(i int, _ loadtest.Request) loadtest.Answer {
		first, gaps := draw(i)
		return loadtest.Answer{First: first, Gap: func(k int) time.Duration { return gaps[k-1] }}
	}}
	inBubble(t, s, ClientOptions{Endpoint: ChatCompletions}, func(t *testing.T, c *Client) {
		result := Run(t.Context(), c, First(n, At(same(tokens), Poisson(1, 200))), Options{})
		got := Summarize(result.Records)
		if !slices.Equal(got.TTFT, NewDistribution(ttft)) || !slices.Equal(got.ITL, NewDistribution(itl)) {
			t.Errorf("TTFT p50 %v, p99 %v; ITL p50 %v, p99 %v; want %v, %v; %v, %v", got.TTFT.Percentile(50), got.TTFT.Percentile(99), got.ITL.Percentile(50), got.ITL.Percentile(99),
				Distribution(ttft).Percentile(50), Distribution(ttft).Percentile(99), Distribution(itl).Percentile(50), Distribution(itl).Percentile(99))
		}
		if g := result.Generator; g.Late.Max() != 0 || g.Wake.Max() != 0 || g.Doubt != "" {
			t.Errorf("the generator was late in virtual time: %v", g)
		}
	})
}

func TestMaxConcurrencyQueuesAndCountsFromTheDueTime(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer { return loadtest.Answer{First: time.Second} }}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		live := new(Live)
		result := Run(t.Context(), c, First(6, At(same(3), Fixed(2))), Options{MaxConcurrency: 1, Live: live})
		for i, r := range result.Records {
			due, sent := time.Duration(i)*500*msec, time.Duration(i)*time.Second
			if r.Due != due || r.Ready != sent || r.Sent != sent || r.TTFT() != sent-due+time.Second || r.Queue() != sent-due || r.Late() != 0 {
				t.Errorf("request %d: %+v", i, r)
			}
		}
		if live.OK.Load() != 6 || live.Running.Load() != 0 || live.Tokens.Load() != 18 || live.Begun.Load() != 6 {
			t.Errorf("live: %d done, %d running, %d tokens", live.OK.Load(), live.Running.Load(), live.Tokens.Load())
		}
		s := Summarize(result.Records)
		if s.TTFT.Percentile(50) != 2250*msec || s.SentTTFT.Percentile(50) != time.Second || s.Queue.Max() != 2500*msec {
			t.Errorf("TTFT %v, from when it was sent %v, queue at most %v", s.TTFT, s.SentTTFT, s.Queue)
		}
	})
}

func TestClosedLoopKeepsSoManyRunning(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, Answer: func(i int, _ loadtest.Request) loadtest.Answer {
		return loadtest.Answer{First: time.Duration(1+i%3) * time.Second}
	}}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		result := Run(t.Context(), c, same(2), Options{Concurrency: 3, Length: 10500 * msec, Cut: true})
		cancelled, last := 0, result.Records[len(result.Records)-1]
		for _, r := range result.Records {
			if r.Outcome == Cancelled {
				cancelled++
			} else if r.Outcome != OK || r.TTFT() < time.Second || r.Due != r.Sent {
				t.Errorf("%+v", r)
			}
		}
		if cancelled != 3 || last.End != 10500*msec || result.Length != 10500*msec {
			t.Errorf("%d cancelled at the end, the last ended at %v", cancelled, last.End)
		}
		for _, p := range result.Series(time.Second)[:10] {
			if p.Running != 3 || p.Most != 3 {
				t.Errorf("at %v %v ran on average, %d at most", p.At, p.Running, p.Most)
			}
		}
	})
}

func TestRampSpreadsTheBeginning(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer { return loadtest.Answer{First: 10 * time.Second} }}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		for i, r := range Run(t.Context(), c, First(8, same(2)), Options{Concurrency: 4, Ramp: 4 * time.Second}).Records {
			if want := time.Duration(i%4)*time.Second + time.Duration(i/4)*10*time.Second; r.Due != want || r.Sent != want || r.Wrote != want || r.TTFT() != 10*time.Second {
				t.Errorf("request %d: %+v, want it at %v", i, r, want)
			}
		}
	})
}

func TestLengthLetsRunningOnesEnd(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer { return loadtest.Answer{First: 4 * time.Second} }}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		result := Run(t.Context(), c, At(same(2), Fixed(1)), Options{Length: 2500 * msec})
		if len(result.Records) != 3 || Summarize(result.Records).OK != 3 || result.Length != 6*time.Second {
			t.Errorf("%d records, %v", len(result.Records), result.Length)
		}
	})
}

func TestEndOfARunKeepsWhatIsDone(t *testing.T) {
	s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer {
		return loadtest.Answer{Gap: func(int) time.Duration { return time.Second }}
	}}
	inBubble(t, s, ClientOptions{}, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3500*msec, cancel)
		result := Run(ctx, c, At(same(3), Fixed(1)), Options{MaxConcurrency: 2})
		s := Summarize(result.Records)
		if s.OK != 2 || s.Cancelled != 2 || s.Failed != 0 || s.Tokens != 6 || s.CutTokens != 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestConversationsGoOnAfterTheAnswer(t *testing.T) {
	for _, endpoint := range []string{ChatCompletions, Completions} {
		s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer { return loadtest.Answer{First: time.Second} }}
		inBubble(t, s, ClientOptions{Endpoint: endpoint}, func(t *testing.T, c *Client) {
			third := &Request{Messages: User("and then?"), MaxTokens: 1, Think: time.Second}
			second := &Request{Messages: User("go on"), MaxTokens: 2, Think: 2 * time.Second, Then: third}
			first := &Request{Messages: User("begin"), MaxTokens: 2, Then: second}
			result := Run(t.Context(), c, slices.Values([]*Request{first}), Options{Concurrency: 1})
			if len(result.Records) != 3 {
				t.Fatalf("%d records", len(result.Records))
			}
			for i, due := range []time.Duration{0, 3 * time.Second, 5 * time.Second} {
				if r := result.Records[i]; r.Turn != i || r.Due != due || r.Outcome != OK {
					t.Errorf("turn %d: %+v", i, r)
				}
			}
			last := s.Seen()[2]
			got := string(last.Prompt)
			for _, m := range last.Messages {
				got += m.Role + ":" + m.Content + "|"
			}
			want := `user:begin|assistant:word "0" word "1" |user:go on|assistant:word "0" word "1" |user:and then?|`
			if endpoint == Completions {
				want = `"beginword \"0\" word \"1\" go onword \"0\" word \"1\" and then?"`
			}
			if got != want {
				t.Errorf("%s: the third turn is %s", endpoint, got)
			}
		})
	}
}

// TestOutcomes: each kind of end has one outcome and says why.
func TestOutcomes(t *testing.T) {
	cases := []struct {
		name    string
		answer  loadtest.Answer
		outcome Outcome
		reason  string
		tokens  int // of chunks
	}{
		{"a whole answer", loadtest.Answer{}, OK, "", 3},
		{"429", loadtest.Answer{Status: 429, Header: map[string]string{"Retry-After": "7"}, Body: `{"error":{"message":"full"}}`}, Refused, "status 429: full", 0},
		{"503", loadtest.Answer{Status: 503, Body: "no server"}, Refused, "status 503: no server", 0},
		{"500", loadtest.Answer{Status: 500, Body: `{"error":"broken"}`}, Failed, "status 500: broken", 0},
		{"400 of llama-server's form", loadtest.Answer{Status: 400, Body: `{"message":"too long"}`}, Failed, "status 400: too long", 0},
		{"404 with nothing", loadtest.Answer{Status: 404}, Failed, "status 404", 0},
		{"an error event", loadtest.Answer{Event: "data: {\"error\":{\"message\":\"step failed\",\"code\":500}}\n\n"}, Failed, "error event: ", 3},
		{"llama-server's error line", loadtest.Answer{Event: "error: {\"message\":\"slot\"}\n\n"}, Failed, "error event: ", 3},
		{"no JSON", loadtest.Answer{Event: "data: {\"choices\":[\n\n"}, Failed, "not a JSON object", 3},
		{"cut", loadtest.Answer{Cut: true}, Failed, "unexpected EOF", 3},
		{"no final event", loadtest.Answer{NoEnd: true}, Failed, "without a final event", 3},
		{"only [DONE]", loadtest.Answer{Event: "data: [DONE]\n\n"}, OK, "", 3},
		{"finish without [DONE] or empty line", loadtest.Answer{Event: `data: {"choices":[{"finish_reason":"stop"}]}`}, OK, "", 3},
		{"an end of CRLF, comments and other fields", loadtest.Answer{Event: ": ping\r\n\r\nevent: x\r\nid: 3\r\ndata:[DONE]\r\n\r\n"}, OK, "", 3},
		{"an event of two lines", loadtest.Answer{Event: "data: {\"choices\":\ndata: [{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"}, OK, "", 4},
		{"silence", loadtest.Answer{Hang: true}, Failed, "timed out after 1m0s", 3},
		{"not streamed", loadtest.Answer{Header: map[string]string{"Content-Type": "application/json"}, First: time.Second,
			Body: `{"choices":[{"text":"a b c","finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":3}}`}, OK, "", 3},
		{"no token", loadtest.Answer{Event: "data: [DONE]\n\n", Chunks: -1}, Failed, "without a token", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &loadtest.Stub{Usage: 2, Answer: func(int, loadtest.Request) loadtest.Answer { return c.answer }}
			inBubble(t, s, ClientOptions{Timeout: time.Minute}, func(t *testing.T, client *Client) {
				r := Run(t.Context(), client, First(1, same(3)), Options{}).Records[0]
				got := 0
				for _, chunk := range r.Chunks {
					got += int(chunk.Tokens)
				}
				if r.Outcome != c.outcome || !strings.Contains(r.Reason, c.reason) || (c.reason == "") != (r.Reason == "") || got != c.tokens {
					t.Errorf("%v, %q, %d tokens in chunks: %+v", r.Outcome, r.Reason, got, r)
				}
				if want := c.answer.Header["Retry-After"]; want != "" && r.RetryAfter != 7*time.Second {
					t.Errorf("Retry-After %v", r.RetryAfter)
				}
			})
		})
	}
}

// TestTokensAreTheServersCount: chunks of several tokens, whatever the server tells of them.
func TestTokensAreTheServersCount(t *testing.T) {
	for usage := range 3 {
		for _, endpoint := range []string{ChatCompletions, Completions} {
			s := &loadtest.Stub{Usage: usage, Answer: func(int, loadtest.Request) loadtest.Answer {
				return loadtest.Answer{Chunks: 4, Reasoning: 2, Tokens: func(i int) int { return []int{1, 3, 1, 2}[i] }}
			}}
			inBubble(t, s, ClientOptions{Endpoint: endpoint}, func(t *testing.T, c *Client) {
				if _, err := c.Probe(t.Context(), &Request{Messages: User("a"), MaxTokens: 1}); err != nil {
					t.Fatal(err)
				}
				r := Run(t.Context(), c, First(1, same(7)), Options{}).Records[0]
				var got []int32
				for _, c := range r.Chunks {
					got = append(got, c.Tokens)
				}
				want, tokens := [][]int32{{1, 1, 1, 1}, {1, 2, 2, 2}, {1, 3, 1, 2}}[usage], []int{4, 7, 7}[usage]
				if !slices.Equal(got, want) || r.Tokens != tokens || r.Counted != (usage > 0) {
					t.Errorf("%s, usage %d: chunks %v, %d tokens, counted %v", endpoint, usage, got, r.Tokens, r.Counted)
				}
			})
		}
	}
}

// TestAClosedConnectionIsNoFailure: the server closes connections after each answer without saying so; who meets one goes
// to another. A server that hangs up on a new connection fails the request.
func TestAClosedConnectionIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := loadtest.NewNetwork()
		hangUp := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := network.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					for i := range 2 {
						q, err := http.ReadRequest(bufio.NewReader(conn))
						if err != nil || hangUp || i == 1 {
							return
						}
						io.Copy(io.Discard, q.Body)
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 64\r\n\r\n"+
							fmt.Sprintf("%-64s", "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n"))
					}
				}()
			}
		}()
		transport := network.Transport()
		c, err := NewClient(ClientOptions{URL: "http://memory", Model: "m", Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		s := Summarize(Run(t.Context(), c, First(5, same(1)), Options{Concurrency: 1}).Records)
		if s.OK != 5 || s.Resent != 4 {
			t.Errorf("%d answered, %d sent again: %v", s.OK, s.Resent, s.Reasons)
		}
		transport.CloseIdleConnections()
		hangUp = true
		if s := Summarize(Run(t.Context(), c, First(1, same(1)), Options{}).Records); s.Failed != 1 || s.Resent != 0 {
			t.Errorf("hung up on: %+v", s)
		}
		transport.CloseIdleConnections()
		network.Close()
		<-done
	})
}

func TestArrivals(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		name      string
		times     iter.Seq[time.Duration]
		mean, dev float64 // of the gaps, in seconds
	}{
		{"fixed", Fixed(50), 0.02, 0},
		{"poisson", Poisson(1, 50), 0.02, 0.02},
		{"gamma 0.25", Gamma(1, 50, 0.25), 0.02, 0.04},
		{"gamma 4", Gamma(1, 50, 4), 0.02, 0.01},
		{"gamma inf", Gamma(1, 50, math.Inf(1)), 0.02, 0},
		{"thinned, even", Thinned(1, 200, func(time.Duration) float64 { return 50 }), 0.02, 0.02},
	} {
		last, sum, square := time.Duration(0), 0.0, 0.0
		for at := range First(n, c.times) {
			gap := (at - last).Seconds()
			if gap < 0 {
				t.Fatalf("%s: %v after %v", c.name, at, last)
			}
			sum, square, last = sum+gap, square+gap*gap, at
		}
		mean := sum / n
		dev := math.Sqrt(max(0, square/n-mean*mean))
		if math.Abs(mean-c.mean) > 0.02*c.mean || math.Abs(dev-c.dev) > 0.02*c.mean {
			t.Errorf("%s: gaps of %.5f s, deviation %.5f; want %.5f, %.5f", c.name, mean, dev, c.mean, c.dev)
		}
	}
	for at := range First(3, Fixed(math.Inf(1))) {
		if at != 0 {
			t.Errorf("infinite rate: %v", at)
		}
	}
}

func TestWaves(t *testing.T) {
	w := Waves{Low: 10, High: 100, Rise: 10 * time.Second, Hold: 20 * time.Second, Fall: 10 * time.Second, Rest: 20 * time.Second}
	for at, want := range map[time.Duration]float64{0: 10, 5 * time.Second: 55, 10 * time.Second: 100, 29 * time.Second: 100, 35 * time.Second: 55, 40 * time.Second: 10,
		59 * time.Second: 10, 65 * time.Second: 55} {
		if got := w.Rate(at); math.Abs(got-want) > 1e-9 {
			t.Errorf("rate at %v: %v, want %v", at, got, want)
		}
	}
	// Counts of each 10 s over many waves follow the rate.
	var counts [6]float64
	const waves = 200
	for at := range Until(waves*time.Minute, Thinned(3, 100, w.Rate)) {
		counts[int(at/(10*time.Second))%6]++
	}
	for i, want := range []float64{550, 1000, 1000, 550, 100, 100} {
		if got := counts[i] / waves; math.Abs(got-want) > 5*math.Sqrt(want/waves) {
			t.Errorf("from %d s: %.1f arrivals, want %.0f", 10*i, got, want)
		}
	}
}

func TestPercentilesAreNumpys(t *testing.T) {
	d := NewDistribution([]time.Duration{40, 10, 30, 20})
	for p, want := range map[float64]time.Duration{0: 10, 25: 17, 50: 25, 90: 37, 99: 39, 100: 40} {
		if got := d.Percentile(p); got != want {
			t.Errorf("p%v: %v, want %v", p, got, want)
		}
	}
	if d.Mean() != 25 || d.Std() != 11 || Distribution(nil).Percentile(50) != 0 || Distribution(nil).Std() != 0 {
		t.Errorf("mean %v, deviation %v", d.Mean(), d.Std())
	}
}
