package fleet

import (
	"fmt"
	"strings"
)

// Address is where a fleet is.
type Address struct {
	Name    string
	Servers []Server
	// Nodes are the addresses that are asked for /metrics; nil: the Servers. A fleet behind a balancer needs them.
	Nodes []string
}

// Server is where requests go: a balancer, or a node.
type Server struct {
	URL   string
	Model string // the only one that it is asked for; "": all
}

// ParseAddress reads NAME=URL,... in which a URL may be MODEL@URL.
func ParseAddress(text string) (Address, error) {
	name, list, err := named(text)
	if err != nil {
		return Address{}, err
	}
	a := Address{Name: name}
	for _, item := range list {
		s := Server{URL: item}
		// A URL may have an @ of its own, but none before its scheme.
		if at := strings.Index(item, "@"); at >= 0 && !strings.Contains(item[:at], "://") {
			if s.Model, s.URL = item[:at], item[at+1:]; s.Model == "" {
				return Address{}, fmt.Errorf("%q: no model before @", item)
			}
		}
		a.Servers = append(a.Servers, s)
	}
	return a, nil
}

// ParseNodes reads NAME=URL,... into the fleet of that name.
func ParseNodes(text string, fleets []Address) error {
	name, list, err := named(text)
	if err != nil {
		return err
	}
	for i := range fleets {
		if fleets[i].Name == name {
			if fleets[i].Nodes != nil {
				return fmt.Errorf("%q has nodes already", name)
			}
			fleets[i].Nodes = list
			return nil
		}
	}
	return fmt.Errorf("there is no fleet %q", name)
}

func named(text string) (name string, list []string, err error) {
	name, rest, ok := strings.Cut(text, "=")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.Contains(name, "://") {
		return "", nil, fmt.Errorf("%q: want NAME=ADDRESS,...", text)
	}
	for item := range strings.SplitSeq(rest, ",") {
		if item = strings.TrimSpace(item); item == "" {
			return "", nil, fmt.Errorf("%q: an empty address", text)
		}
		list = append(list, item)
	}
	return name, list, nil
}
