package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Bounds of what one document may become. References (*name) let a small text stand for an enormous one.
const (
	maxDepth      = 500
	maxReferenced = 500_000
)

// yaml11 are the plain words that YAML 1.1 reads as booleans. kubectl reads manifests that way, so `value: on` is refused
// here as it is in a cluster, instead of meaning a text here and a boolean there.
var (
	yaml11True  = []string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
	yaml11False = []string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
)

// toJSON writes a YAML document as JSON. Unlike a conversion by way of Go maps it keeps the keys that stand twice, so that
// the strict decoder sees them.
func toJSON(document *yaml.Node) ([]byte, error) {
	w := treeWriter{}
	if err := w.value(document, 0, false); err != nil {
		return nil, err
	}
	return w.out, nil
}

type treeWriter struct {
	out        []byte
	referenced int
}

// enter counts a node. inside tells that it is reached through a reference.
func (w *treeWriter) enter(n *yaml.Node, depth int, inside bool) error {
	if depth > maxDepth {
		return fmt.Errorf("line %d: nested deeper than %d levels", n.Line, maxDepth)
	}
	if inside {
		if w.referenced++; w.referenced > maxReferenced {
			return fmt.Errorf("line %d: the references (*name) of the document stand for more than %d values", n.Line, maxReferenced)
		}
	}
	return nil
}

func (w *treeWriter) value(n *yaml.Node, depth int, inside bool) error {
	if err := w.enter(n, depth, inside); err != nil {
		return err
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return w.value(n.Content[0], depth, inside)
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1, true)
	case yaml.SequenceNode:
		return w.sequence(n, depth, inside)
	case yaml.MappingNode:
		return w.mapping(n, depth, inside)
	case yaml.ScalarNode:
		text, err := scalar(n)
		w.out = append(w.out, text...)
		return err
	}
	return fmt.Errorf("line %d: not a value", n.Line)
}

func (w *treeWriter) sequence(n *yaml.Node, depth int, inside bool) error {
	w.out = append(w.out, '[')
	for i, item := range n.Content {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(item, depth+1, inside); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *treeWriter) mapping(n *yaml.Node, depth int, inside bool) error {
	pairs, err := w.pairs(n, depth, inside)
	if err != nil {
		return err
	}
	w.out = append(w.out, '{')
	for i, p := range pairs {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(append(w.out, text(p.key)...), ':')
		if err := w.value(p.value, depth+1, inside || p.merged); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

type pair struct {
	key    string
	value  *yaml.Node
	merged bool
}

// pairs returns the entries of a mapping; those that << brings in come last and only where the mapping has no such key.
func (w *treeWriter) pairs(n *yaml.Node, depth int, inside bool) ([]pair, error) {
	var out []pair
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: a key must be a single value, not a list or an object", key.Line)
		case key.ShortTag() == "!!merge":
			merges = append(merges, value)
		default:
			out = append(out, pair{key: key.Value, value: value})
		}
	}
	for _, m := range merges {
		merged, err := w.merged(m, depth+1, inside)
		if err != nil {
			return nil, err
		}
		own := keys(out)
		for _, p := range merged {
			if !own[p.key] {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

func keys(pairs []pair) map[string]bool {
	out := make(map[string]bool, len(pairs))
	for _, p := range pairs {
		out[p.key] = true
	}
	return out
}

// merged returns the entries that the value of a << key stands for: a mapping, or a list of mappings of which the earlier
// wins.
func (w *treeWriter) merged(n *yaml.Node, depth int, inside bool) ([]pair, error) {
	if err := w.enter(n, depth, inside); err != nil {
		return nil, err
	}
	var out []pair
	switch n.Kind {
	case yaml.AliasNode:
		return w.merged(n.Alias, depth+1, true)
	case yaml.MappingNode:
		entries, err := w.pairs(n, depth, inside)
		if err != nil {
			return nil, err
		}
		out = entries
	case yaml.SequenceNode:
		for _, item := range n.Content {
			entries, err := w.merged(item, depth+1, inside)
			if err != nil {
				return nil, err
			}
			own := keys(out)
			out = append(out, slices.DeleteFunc(entries, func(p pair) bool { return own[p.key] })...)
		}
	default:
		return nil, fmt.Errorf("line %d: << needs an object, or a list of objects", n.Line)
	}
	for i := range out {
		out[i].merged = true
		if w.referenced++; w.referenced > maxReferenced {
			return nil, fmt.Errorf("line %d: the references (*name) of the document stand for more than %d values", n.Line, maxReferenced)
		}
	}
	return out, nil
}

// scalar writes a single value as kubectl would read it.
func scalar(n *yaml.Node) ([]byte, error) {
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch tag := n.ShortTag(); {
	case tag == "!!str" && plain && slices.Contains(yaml11True, n.Value):
		return []byte("true"), nil
	case tag == "!!str" && plain && slices.Contains(yaml11False, n.Value):
		return []byte("false"), nil
	case tag == "!!str", tag == "!!timestamp", tag == "!!merge":
		return text(n.Value), nil
	case tag == "!!null":
		return []byte("null"), nil
	case tag == "!!bool", tag == "!!int", tag == "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, errors.New(yamlMessage(err))
		}
		out, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("line %d: %s is not a number that JSON knows", n.Line, n.Value)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("line %d: values of the type %s are not read; write plain text or a number", n.Line, tag)
	}
}

// text writes a string, which always has a JSON form.
func text(s string) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("manifest: %v", err))
	}
	return out
}
