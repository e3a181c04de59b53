// Package planview shows an engine.Forecast to a person, as a page or as text: of one card all that is known, of several
// one row for each.
//
// It owns words and order, and computes nothing but units: every number is the forecast's.
package planview

import (
	"fmt"
	"strings"

	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/page"
)

// New is the forecast as a page. command is what made it, "" when that is not to be told.
func New(f *engine.Forecast, command string) *page.Page {
	p := &page.Page{
		Title:  "Plan: " + strings.Join(names(f), ", "),
		Notice: "Simulated: times are those of a card's data sheet, no card was measured.",
		Footer: "Made by openinfer plan.",
	}
	if len(f.Cards) == 1 {
		c := f.Cards[0]
		p.Title += " on " + c.Description
		p.Notice = fmt.Sprintf("Simulated %s: times are those of its data sheet, no card was measured.", c.Description)
		p.Lead = verdict(c)
	}
	add := func(title, lead string, blocks ...page.Block) {
		p.Sections = append(p.Sections, page.Section{Title: title, Lead: lead, Blocks: blocks})
	}
	if len(f.Cards) == 1 {
		c := f.Cards[0]
		add("Card", "", card(c))
		add("Models", "", models(f, c))
		add("Memory", "", memory(c)...)
		add("Requests at once", fmt.Sprintf("A request is its context and an answer of up to %s tokens.", page.Tokens(f.AnswerTokens)), requests(f, c)...)
		add("Prompts", fmt.Sprintf("Nothing else running, nothing in the cache, in steps of %d tokens.", f.BatchedTokens), prompts(f, c))
		add("Decoding", fmt.Sprintf("Tokens a second of all requests at once, and the time for each token of one, in the middle of %.0f s (or of the answer). "+
			"Over capacity: requests x (context + %s) tokens, and their recurrent states, are more than the cache.", f.SustainSeconds, page.Tokens(f.AnswerTokens)), decoding(f, c)...)
		add("Targets", "", targets(f, c))
	} else {
		add("Models", "", models(f, nil))
		add("Cards", "", cards(f), speeds(f, "Decoding, tok/s", fewest), speeds(f, "Prompts, tok/s", prompt))
	}
	if command != "" {
		add("Command", "", page.Code(command))
	}
	return p
}

func names(f *engine.Forecast) []string {
	list := make([]string, len(f.Models))
	for i, m := range f.Models {
		list[i] = m.Name
	}
	return list
}

// verdict is the plan in a sentence.
func verdict(c *engine.CardForecast) string {
	switch {
	case c.Refused != "" && c.MissingBytes > 0:
		return fmt.Sprintf("A server would not start: %s more memory are needed. %s", page.Bytes(c.MissingBytes), c.Refused)
	case c.Refused != "":
		return "A server would not start. " + c.Refused
	case c.Together && len(c.Models) == 1:
		return fmt.Sprintf("It fits, with %s of KV cache: up to %d tokens of context.", page.Bytes(c.Memory.KVBytes), c.Memory.Models[0].CacheTokens)
	case c.Together:
		return fmt.Sprintf("All %d models fit together, with %s of KV cache for all: %d tokens for each at once.", len(c.Models), page.Bytes(c.Memory.KVBytes), c.Resident.TokensEach)
	}
	var parked []string
	for _, m := range c.Memory.Models {
		if m.Parked {
			parked = append(parked, m.Name)
		}
	}
	return fmt.Sprintf("Not all models fit together: they take turns, and %s %s parked at first.", strings.Join(parked, ", "), map[bool]string{true: "is", false: "are"}[len(parked) == 1])
}

func card(c *engine.CardForecast) page.Block {
	return page.Facts{
		{Name: "card", Value: c.Description + " (simulated)", Note: c.Source},
		{Name: "memory", Value: page.Bytes(c.MemoryBytes), Note: page.Bytes(c.UsableBytes) + " usable"},
		{Name: "bandwidth", Value: fmt.Sprintf("%.0f GB/s", c.Bandwidth/1e9)},
		{Name: "rate", Value: fmt.Sprintf("%.0f TFLOP/s", c.Rate/1e12), Note: "of products with coded weights"},
		{Name: "host link", Value: fmt.Sprintf("%.0f GB/s", c.HostBandwidth/1e9)},
	}
}

// models tells what they are, and of one card whether each fits alone.
func models(f *engine.Forecast, c *engine.CardForecast) page.Block {
	t := page.Table{Columns: []string{"model", "architecture", "parameters", "weights", "body", "head", "embedding", "stored as", "KV cache", "KV per token", "state a request", "scratch", "longest context"}}
	if c != nil {
		t.Columns = append(t.Columns, "alone on the card")
	}
	for i, m := range f.Models {
		embedding, state := "is the head", "-"
		if m.EmbeddingBytes > 0 {
			embedding = page.Bytes(m.EmbeddingBytes) + " in the host's memory"
		}
		if m.StateBytes > 0 {
			state = page.Bytes(m.StateBytes)
		}
		row := page.Cells(m.Name, m.Architecture, fmt.Sprintf("%.2f B", float64(m.Parameters)/1e9), page.Bytes(m.WeightBytes), page.Bytes(m.BodyBytes), page.Bytes(m.HeadBytes),
			embedding, m.Weights, m.KVCacheDType, page.Bytes(m.TokenBytes), state, page.Bytes(m.ScratchBytes), fmt.Sprint(m.MaxPosition))
		if c != nil {
			switch alone := c.Models[i].Alone; {
			case alone != nil:
				row = append(row, page.Cell{Text: fmt.Sprintf("%d tokens", alone.Models[0].CacheTokens)})
			default:
				row = append(row, page.Cell{Text: "does not fit", Note: short(c.Models[i].MissingBytes), Kind: page.Bad})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	t.Note = "Weights are what the card holds: body and head. A token takes that much KV cache until a sliding window leaves it behind."
	return t
}

func short(missing int64) string {
	if missing == 0 {
		return ""
	}
	return page.Bytes(missing) + " short"
}

// memory is the server's plan, what takes turns, and which models fit together.
func memory(c *engine.CardForecast) (blocks []page.Block) {
	if c.Memory == nil {
		blocks = append(blocks, page.Text(verdict(c)))
	} else {
		blocks = append(blocks, page.Text("What the server prints when it starts:"), page.Code(c.Memory.String()))
	}
	if c.Memory != nil && !c.Together {
		t := page.Table{Caption: "Taking turns", Columns: []string{"model", "at first", "weights", "a switch to it", "parks, when all are idle"},
			Note: "The scheduler's rule: room is made by models without work, longest unused first; else by those that have work, longest there first, once their running " +
				"answers have ended. A switch is the weights over the host link, when the host has them in memory; steps of other models go on meanwhile."}
		for i, m := range c.Models {
			first, parks := "resident", "-"
			if c.Memory.Models[i].Parked {
				first, parks = "parked", strings.Join(m.Parks, ", ")
				if len(m.Parks) == 0 {
					parks = "nobody"
				}
			}
			t.Rows = append(t.Rows, page.Cells(m.Name, first, page.Bytes(c.Memory.Models[i].WeightBytes), page.Seconds(m.LoadSeconds), parks))
		}
		blocks = append(blocks, t)
	}
	if len(c.Sets) > 0 {
		t := page.Table{Caption: "Sets that fit together, and to which no other model could be added", Columns: []string{"models", "weights", "KV cache", "tokens for each at once"}}
		t.Note = "Best is the set of the most models with a request of the shortest context above 0 for each at once; of several the one with the most tokens for each. " +
			"Where no set has that much room it is the one with the most tokens."
		best := -1
		for i, s := range c.Sets {
			if strings.Join(s.Models, "\n") == strings.Join(c.Best.Models, "\n") {
				best = i
			}
		}
		row := func(s engine.SetForecast, kind page.Kind, note string) {
			r := page.Cells("", page.Bytes(s.WeightBytes), page.Bytes(s.KVBytes), fmt.Sprint(s.TokensEach))
			r[0] = page.Cell{Text: strings.Join(s.Models, ", "), Kind: kind, Note: note}
			t.Rows = append(t.Rows, r)
		}
		if best < 0 {
			row(*c.Best, page.Best, "best")
		}
		for i, s := range c.Sets {
			if i == best {
				row(s, page.Best, "best")
			} else {
				row(s, page.Usual, "")
			}
		}
		blocks = append(blocks, t)
	}
	return blocks
}

// contexts is a table with a row a model and a column a context.
func contexts(f *engine.Forecast, c *engine.CardForecast, from int, cell func(m *engine.ModelForecast, x *engine.ContextForecast) page.Cell) page.Table {
	t := page.Table{Columns: []string{"model"}}
	for _, n := range f.Contexts {
		if n >= from {
			t.Columns = append(t.Columns, page.Tokens(n))
		}
	}
	for i := range c.Models {
		m := &c.Models[i]
		row := page.Cells(m.Name)
		for k := range m.Contexts {
			switch x := &m.Contexts[k]; {
			case x.Context < from:
			case x.TooLong:
				row = append(row, page.Cell{Text: "too long", Kind: page.Muted})
			default:
				row = append(row, cell(m, x))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// requests is how many run at once: of one model, and of all that are there at first.
func requests(f *engine.Forecast, c *engine.CardForecast) []page.Block {
	t := contexts(f, c, 0, func(m *engine.ModelForecast, x *engine.ContextForecast) page.Cell {
		switch {
		case m.Alone == nil:
			return page.Cell{Text: "does not fit", Kind: page.Muted}
		case c.Memory == nil || len(c.Models) == 1:
			return page.Cell{Text: fmt.Sprint(x.RequestsAlone)}
		}
		return page.Cell{Text: fmt.Sprint(x.Requests), Note: fmt.Sprintf("%d alone", x.RequestsAlone)}
	})
	t.Caption = "Requests of one model at once, by context"
	if len(c.Models) == 1 {
		return []page.Block{t}
	}
	t.Note = "Beside the other models' weights while nobody asks them, and with the card to the model alone."
	if c.Resident == nil {
		return []page.Block{t}
	}
	each := page.Table{Caption: "Requests of each model at once, by context", Columns: []string{"models"},
		Note: "Models whose longest context is shorter take no part in a column."}
	row := page.Cells(strings.Join(c.Resident.Models, ", "))
	for i, n := range f.Contexts {
		each.Columns = append(each.Columns, page.Tokens(n))
		row = append(row, page.Cell{Text: fmt.Sprint(c.Resident.RequestsEach[i])})
	}
	each.Columns = append(each.Columns, "tokens for each")
	each.Rows = []page.Row{append(row, page.Cell{Text: fmt.Sprint(c.Resident.TokensEach)})}
	return []page.Block{t, each}
}

func prompts(f *engine.Forecast, c *engine.CardForecast) page.Block {
	t := contexts(f, c, 1, func(_ *engine.ModelForecast, x *engine.ContextForecast) page.Cell {
		if x.TTFT == 0 {
			return page.Cell{Text: "does not fit", Kind: page.Muted}
		}
		return page.Cell{Text: page.Rate(x.PrefillRate), Note: page.Seconds(x.TTFT)}
	})
	t.Caption = "Prompt tokens a second, and the time to the first token, by length"
	return t
}

func decoding(f *engine.Forecast, c *engine.CardForecast) (blocks []page.Block) {
	for _, m := range c.Models {
		t := page.Table{Caption: m.Name, Columns: []string{"context"}}
		for _, n := range f.Concurrency {
			t.Columns = append(t.Columns, fmt.Sprint(n))
		}
		for _, x := range m.Contexts {
			row := page.Cells(page.Tokens(x.Context))
			for range f.Concurrency {
				row = append(row, page.Cell{Text: "too long", Kind: page.Muted})
			}
			for i, d := range x.Decode {
				row[1+i] = page.Cell{Text: page.Rate(d.Rate), Note: page.Seconds(d.TPOT)}
				if d.OverCapacity {
					row[1+i] = page.Cell{Text: "over", Kind: page.Muted}
				}
			}
			t.Rows = append(t.Rows, row)
		}
		blocks = append(blocks, t)
	}
	return blocks
}

func targets(f *engine.Forecast, c *engine.CardForecast) page.Block {
	t := contexts(f, c, 0, func(_ *engine.ModelForecast, x *engine.ContextForecast) page.Cell {
		return page.Cell{Text: fmt.Sprint(x.LargestBatch)}
	})
	t.Caption = "The most requests at once that keep the time for each token, by context, and the longest prompt that keeps the time to the first"
	t.Columns = append(t.Columns, "TPOT", "TTFT", "longest prompt")
	for i, m := range f.Models {
		t.Rows[i] = append(t.Rows[i], page.Cells(page.Seconds(m.TPOT), page.Seconds(m.TTFT), fmt.Sprint(c.Models[i].LongestPrompt))...)
	}
	return t
}

// cards is a row for each card.
func cards(f *engine.Forecast) page.Block {
	t := page.Table{Columns: []string{"card", "memory", "bandwidth", "rate", "all models", "KV cache", "tokens for each at once"},
		Note: "All cards are simulated. --card NAME tells more of one."}
	for _, c := range f.Cards {
		row := page.Cells(c.Card, page.Bytes(c.MemoryBytes), fmt.Sprintf("%.0f GB/s", c.Bandwidth/1e9), fmt.Sprintf("%.0f TFLOP/s", c.Rate/1e12))
		switch {
		case c.Memory == nil:
			row = append(row, page.Cell{Text: "do not fit", Note: short(c.MissingBytes), Kind: page.Bad}, page.Cell{Text: "-"}, page.Cell{Text: "-"})
		default:
			fit := page.Cell{Text: "together", Kind: page.Best}
			if len(c.Models) == 1 {
				fit.Text = "fits"
			}
			if !c.Together {
				fit = page.Cell{Text: fmt.Sprintf("take turns: %d of %d at first", len(c.Resident.Models), len(c.Models))}
			}
			row = append(row, fit, page.Cell{Text: page.Bytes(c.Memory.KVBytes)}, page.Cell{Text: fmt.Sprint(c.Resident.TokensEach)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// speeds is a table with a row a card and a column a model.
func speeds(f *engine.Forecast, caption string, cell func(m *engine.ModelForecast) page.Cell) page.Block {
	t := page.Table{Caption: caption, Columns: append([]string{"card"}, names(f)...)}
	for _, c := range f.Cards {
		row := page.Cells(c.Card)
		for i := range c.Models {
			row = append(row, cell(&c.Models[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// fewest is the rate of the first cell that fits: the shortest context and the fewest requests.
func fewest(m *engine.ModelForecast) page.Cell {
	for _, x := range m.Contexts {
		for _, d := range x.Decode {
			if d.OverCapacity {
				continue
			}
			note := "at " + page.Tokens(x.Context)
			if d.Requests > 1 {
				note += fmt.Sprintf(", %d requests", d.Requests)
			}
			return page.Cell{Text: page.Rate(d.Rate), Note: note}
		}
	}
	return page.Cell{Text: "does not fit", Kind: page.Muted}
}

// prompt is the rate of the shortest prompt.
func prompt(m *engine.ModelForecast) page.Cell {
	for _, x := range m.Contexts {
		if x.TTFT > 0 {
			return page.Cell{Text: page.Rate(x.PrefillRate), Note: "of " + page.Tokens(x.Context)}
		}
	}
	return page.Cell{Text: "-", Kind: page.Muted}
}
