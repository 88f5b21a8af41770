package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSource is the greatest size of one source in bytes. An object in a cluster has at most 1.5 MiB; this leaves room for
// thousands of policies, and bounds the memory that the syntax tree of a hostile file takes.
const MaxSource = 16 << 20

// maxMarks bounds the characters of a YAML source that separate values. The syntax tree takes some 200 bytes for each value,
// so that a file of nothing but commas would need gigabytes. Ten thousand policies have a quarter of it.
const maxMarks = 2_000_000

const marks = ",:[{\n"

// ErrTooLarge is in the chain of the error for a source over MaxSource.
var ErrTooLarge = fmt.Errorf("larger than %d MiB; split it into several files", MaxSource>>20)

var byteOrderMark = []byte("\xef\xbb\xbf")

// eachDocument gives every document of a source as JSON, in which a key that stands twice stands twice still. Empty
// documents are counted and passed over.
func eachDocument(data []byte, yield func(number int, raw []byte) error) error {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if err := checkText(data); err != nil {
		return err
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		objects, jsonErr := jsonObjects(data)
		if jsonErr == nil {
			return eachOf(objects, yield)
		}
		// YAML in braces looks like JSON at its beginning. The error is that of JSON as long as nothing tells otherwise.
		read := 0
		err := eachYAML(data, func(number int, raw []byte) error {
			read = number
			return yield(number, raw)
		})
		var syntax *syntaxError
		if read == 0 && errors.As(err, &syntax) {
			return jsonErr
		}
		return err
	}
	return eachYAML(data, yield)
}

// checkText refuses what no reader of YAML takes, with the line, which those do not tell.
func checkText(data []byte) error {
	if len(data) > MaxSource {
		return ErrTooLarge
	}
	if !utf8.Valid(data) {
		at := 0
		for rest := data; len(rest) > 0; {
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size == 1 {
				break
			}
			at, rest = at+size, rest[size:]
		}
		return fmt.Errorf("line %d: not UTF-8 text; save the file as UTF-8", lineAt(data, at))
	}
	if at := bytes.IndexFunc(data, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' }); at >= 0 {
		return fmt.Errorf("line %d: control character U+%04X; remove it", lineAt(data, at), data[at])
	}
	return nil
}

func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), len(data))], []byte("\n"))
}

// syntaxError tells a text that cannot be read from an object that cannot be taken.
type syntaxError struct{ text string }

func (e *syntaxError) Error() string { return e.text }

func jsonObjects(data []byte) ([]rawJSON, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var out []rawJSON
	for {
		var raw rawJSON
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			offset := int64(len(data))
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) {
				offset = syntax.Offset
			}
			return nil, fmt.Errorf("document %d: line %d: %w", len(out)+1, lineAt(data, int(offset)), err)
		}
		out = append(out, raw)
	}
}

func eachOf(objects []rawJSON, yield func(int, []byte) error) error {
	for i, raw := range objects {
		if err := yield(i+1, raw); err != nil {
			return err
		}
	}
	return nil
}

// maxValues bounds the syntax tree, which takes some 200 bytes for a value of two. A source full of policies has a tenth.
const maxValues = 2_000_000

// separators counts what stands between values: there is at most a key and a value for each.
func separators(data []byte) int {
	n := 0
	for _, c := range data {
		switch c {
		case ',', '[', '{', '\n':
			n++
		}
	}
	return n
}

func eachYAML(data []byte, yield func(int, []byte) error) error {
	if separators(data) > maxValues {
		return &syntaxError{fmt.Sprintf("more than %d values and lines; split it into several files", maxValues)}
	}
	if n := countAny(data, marks); n > maxMarks {
		return fmt.Errorf("about %d values, more than are read from one YAML file; split it, or write it as JSON", n)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for number := 1; ; number++ {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &syntaxError{fmt.Sprintf("document %d: %s", number, yamlMessage(err))}
		}
		raw, err := toJSON(&node)
		if err != nil {
			return &syntaxError{fmt.Sprintf("document %d: %s", number, err)}
		}
		if string(raw) == "null" {
			continue
		}
		if err := yield(number, raw); err != nil {
			return err
		}
	}
}

func countAny(data []byte, chars string) int {
	n := 0
	for i := range len(chars) {
		n += bytes.Count(data, []byte{chars[i]})
	}
	return n
}

// yamlMessage gives an error of the YAML reader without its prefix. It leaves the line out when it is the first one.
func yamlMessage(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if !strings.HasPrefix(text, "line ") && !strings.HasPrefix(text, "unknown anchor") {
		text = "line 1: " + text
	}
	return text
}
