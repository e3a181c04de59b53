package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/openinfer-go/openinfer/bench/load"
)

func (c Config) checkDataset() error {
	fromFile := c.Dataset == "sharegpt" || c.Dataset == "custom"
	switch {
	case !slices.Contains(Datasets, c.Dataset):
		return fmt.Errorf("--dataset-name %s: there are %s", c.Dataset, strings.Join(Datasets, ", "))
	case fromFile && c.DatasetPath == "":
		return fmt.Errorf("--dataset-name %s: --dataset-path is missing", c.Dataset)
	case !fromFile && c.DatasetPath != "":
		return fmt.Errorf("--dataset-path %s: --dataset-name %s is made here; sharegpt and custom are read", c.DatasetPath, c.Dataset)
	case c.CustomOutput < 1:
		return fmt.Errorf("--custom-output-len %d: at least 1", c.CustomOutput)
	case c.ShareGPTOutput < 0:
		return fmt.Errorf("--sharegpt-output-len %d: at least 1", c.ShareGPTOutput)
	}
	var err error
	switch c.Dataset {
	case "random":
		err = c.Random.Check()
	case "prefix":
		err = c.Prefixes.Check()
	case "agents":
		err = c.Agents.Check()
	}
	if err != nil {
		return fmt.Errorf("--dataset-name %s: %w", c.Dataset, err)
	}
	return nil
}

// requests makes the dataset, and a line about its lengths.
func (c Config) requests(ctx context.Context, client *load.Client) (iter.Seq[*load.Request], string, error) {
	switch c.Dataset {
	case "custom":
		all, err := load.ReadPrompts(c.DatasetPath, c.CustomOutput)
		if err != nil {
			return nil, "", fmt.Errorf("--dataset-path: %w", err)
		}
		load.Shuffle(c.Seed, all)
		return c.ofFile(ctx, client, all, "lengths are the file's")
	case "sharegpt":
		exchanges, err := load.ReadShareGPT(c.DatasetPath)
		if err != nil {
			return nil, "", fmt.Errorf("--dataset-path: %w", err)
		}
		note := "lengths by the server's /tokenize"
		count := func(text string) int {
			n, ok := client.CountTokens(ctx, text)
			if !ok {
				n = (len(text) + 3) / 4
			}
			return n
		}
		if _, ok := client.CountTokens(ctx, "a few words"); !ok {
			note = "lengths taken as a token for four bytes (the server has no /tokenize)"
			count = func(text string) int { return (len(text) + 3) / 4 }
		}
		all := load.Choose(c.Seed, c.NumPrompts, exchanges, c.ShareGPTOutput, count)
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		if len(all) == 0 {
			return nil, "", fmt.Errorf("--dataset-path: %s: of %d conversations none has a fitting length", c.DatasetPath, len(exchanges))
		}
		return c.ofFile(ctx, client, all, note)
	}
	speller, err := load.Calibrate(ctx, client)
	if err != nil {
		return nil, "", fmt.Errorf("calibrating lengths: %w", err)
	}
	switch c.Dataset {
	case "random":
		return c.Random.Requests(c.Seed, speller), "Dataset random: " + speller.String(), nil
	case "prefix":
		return c.Prefixes.Requests(c.Seed, speller), "Dataset prefix: " + speller.String(), nil
	}
	if speller.IDs != nil { // conversations are text
		if speller, err = load.CalibrateWords(ctx, client); err != nil {
			return nil, "", fmt.Errorf("calibrating lengths: %w", err)
		}
	}
	return c.Agents.Requests(c.Seed, speller), fmt.Sprintf("Dataset agents: %d conversations of %d turns; %v", c.NumPrompts, c.Agents.Turns, speller), nil
}

// ofFile probes with the first request, so that the server's own words say what is wrong with it.
func (c Config) ofFile(ctx context.Context, client *load.Client, all []*load.Request, note string) (iter.Seq[*load.Request], string, error) {
	first := *all[0]
	first.MaxTokens = 1
	if _, err := client.Probe(ctx, &first); err != nil {
		return nil, "", fmt.Errorf("the first request of the file: %w", err)
	}
	note = fmt.Sprintf("Dataset %s: %d requests of %s; %s", c.Dataset, min(len(all), c.NumPrompts), c.DatasetPath, note)
	if len(all) < c.NumPrompts {
		note += fmt.Sprintf("; they are sent again and again until there are %d", c.NumPrompts)
	}
	return load.Repeat(all), note, nil
}

// extra are the fields that every body has.
func (c Config) extra() (map[string]any, error) {
	extra := map[string]any{}
	if c.Temperature != nil {
		extra["temperature"] = *c.Temperature
	}
	if c.IgnoreEOS || c.Dataset == "random" { // random prompts have no natural end, and vLLM's tool does the same
		extra["ignore_eos"] = true
	}
	if c.ExtraBody != "" {
		var more map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.ExtraBody), &more); err != nil || more == nil {
			return nil, fmt.Errorf("--extra-body %s: not a JSON object", c.ExtraBody)
		}
		for name, value := range more {
			if name == "stream" {
				return nil, errors.New("--extra-body: stream: only streams are measured")
			}
			extra[name] = value
		}
	}
	return extra, nil
}
