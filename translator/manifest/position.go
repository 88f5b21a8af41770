package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// typeError is the decoder's error for a value of the wrong type.
type typeError = json.UnmarshalTypeError

// fault is a decoding error as its author has to see it.
type fault struct{ path, message string }

// locate finds the path of a value of the wrong type. The decoder gives the offset behind the value's first token, and a
// path without indices.
func locate(raw []byte, err error) fault {
	var wrong *typeError
	if !errors.As(err, &wrong) {
		return fault{message: err.Error()}
	}
	out := fault{path: wrong.Field, message: fmt.Sprintf("%s is expected here, not %s", expected(wrong.Type), written(wrong.Value))}
	if expected(wrong.Type) == wantText && wrong.Value != "array" && wrong.Value != "object" {
		out.message += "; put it in quotes"
	}
	_ = walk(raw, func(path string, _ json.Token, end int64) {
		if end == wrong.Offset {
			out.path = path
		}
	})
	return out
}

// describe gives a decoding error with its path.
func describe(raw []byte, err error) error {
	f := locate(raw, err)
	if f.path == "" {
		return errors.New(f.message)
	}
	return fmt.Errorf("%s: %s", f.path, f.message)
}

const wantText = "text"

func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the kinds that fields of manifests have
	case reflect.String:
		return wantText
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number in range"
}

func written(value string) string {
	switch kind, number, _ := strings.Cut(value, " "); {
	case number != "":
		return number
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	case kind == "string":
		return "text"
	case kind == "bool":
		return "true or false (which yes, no, on and off mean too)"
	}
	return "a number"
}

// nulls returns the paths of the nulls below spec.
func nulls(raw []byte) []string {
	const most = 100 // as many as the strict decoder lists
	var out []string
	_ = walk(raw, func(path string, token json.Token, _ int64) {
		if token == nil && len(out) < most && (path == "spec" || strings.HasPrefix(path, "spec.")) {
			out = append(out, path)
		}
	})
	return out
}

// frame is an object or a list around the current token.
type frame struct {
	list  bool
	index int
	key   string
	// named tells that key has been read and its value comes next.
	named bool
}

// walk visits every value with its path, its first token and the offset behind that token.
func walk(raw []byte, visit func(path string, token json.Token, end int64)) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var stack []frame
	for {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			stack = stack[:len(stack)-1]
			leave(stack)
			continue
		}
		if top := len(stack) - 1; top >= 0 && !stack[top].list && !stack[top].named {
			stack[top].key, stack[top].named = token.(string), true
			continue
		}
		visit(pathOf(stack), token, decoder.InputOffset())
		if delim, ok := token.(json.Delim); ok {
			stack = append(stack, frame{list: delim == '['})
			continue
		}
		leave(stack)
	}
}

// leave moves on behind a value.
func leave(stack []frame) {
	if len(stack) > 0 {
		stack[len(stack)-1].index++
		stack[len(stack)-1].named = false
	}
}

func pathOf(stack []frame) string {
	var b strings.Builder
	for _, f := range stack {
		switch {
		case f.list:
			b.WriteString("[" + strconv.Itoa(f.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + f.key)
		default:
			b.WriteString(f.key)
		}
	}
	return b.String()
}
