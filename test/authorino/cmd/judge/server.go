package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"accesspolicy-operator/test/authorino/pipeline"
)

// lineLimit is far above the largest AuthPolicy that etcd takes; it keeps a caller
// that forgot the line end from filling the memory.
const lineLimit = 64 << 20

// server holds the loaded worlds. It answers one order at a time.
type server struct {
	worlds map[string]*pipeline.Judge
}

func newServer() *server {
	return &server{worlds: map[string]*pipeline.Judge{}}
}

// serve answers until the input ends.
func (s *server) serve(input io.Reader, output io.Writer) error {
	reader := bufio.NewReader(input)
	encoder := json.NewEncoder(output)

	for {
		line, err := readLine(reader)
		if len(bytes.TrimSpace(line)) > 0 || errors.Is(err, errTooLong) {
			reply := answer{Error: errTooLong.Error()}
			if !errors.Is(err, errTooLong) {
				reply = s.handle(line)
			}

			if err := encoder.Encode(reply); err != nil {
				return fmt.Errorf("writing an answer: %w", err)
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil && !errors.Is(err, errTooLong) {
			return fmt.Errorf("reading an order: %w", err)
		}
	}
}

var errTooLong = fmt.Errorf("line of more than %d bytes: split the checks into several orders", lineLimit)

// readLine reads up to the line end. A line above the limit is read to its end and
// thrown away.
func readLine(reader *bufio.Reader) ([]byte, error) {
	var (
		line    []byte
		tooLong bool
	)

	for {
		part, err := reader.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > lineLimit; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}

		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && err == nil:
			return nil, errTooLong
		default:
			return line, err
		}
	}
}

// handle answers one line. Nothing that stands in it ends the process, unless it makes
// Authorino panic in a goroutine of its own.
func (s *server) handle(line []byte) (reply answer) {
	var o order

	defer func() {
		reply.ID = o.ID

		if panicked := recover(); panicked != nil {
			reply.Error = fmt.Sprintf("panic: %v", panicked)
		}
	}()

	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(&o); err != nil {
		return answer{Error: fmt.Sprintf("order: %v", err)}
	}

	if decoder.More() {
		return answer{Error: "order: more than one object in a line"}
	}

	if err := s.do(o, &reply); err != nil {
		return answer{Error: err.Error()}
	}

	return reply
}

func (s *server) do(o order, reply *answer) error {
	asked := 0

	for _, present := range []bool{o.Load != nil, o.Checks != nil, o.Bench != nil, o.Drop} {
		if present {
			asked++
		}
	}

	if asked != 1 {
		return fmt.Errorf("order: it has %d of load, checks, bench and drop; give one", asked)
	}

	switch {
	case o.Drop:
		s.drop(o.World)

		return nil
	case o.Load != nil:
		return s.load(o, reply)
	}

	judge, found := s.worlds[o.World]
	if !found {
		return fmt.Errorf("world %q: not loaded; load it first", o.World)
	}

	if o.Bench != nil {
		return bench(judge, *o.Bench, reply)
	}

	return checks(judge, o.Checks, reply)
}

func (s *server) drop(world string) {
	if judge, found := s.worlds[world]; found {
		judge.Close()
		delete(s.worlds, world)
	}
}

// load replaces the world only when the new one could be read.
func (s *server) load(o order, reply *answer) error {
	judge, err := pipeline.Load(*o.Load)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}

	s.drop(o.World)
	s.worlds[o.World] = judge
	reply.Policies, reply.AuthConfigs = judge.Policies(), judge.AuthConfigs()

	return nil
}

func checks(judge *pipeline.Judge, requests []pipeline.Request, reply *answer) error {
	for i, request := range requests {
		result, err := judge.Check(request)
		if err != nil {
			return fmt.Errorf("checks[%d]: %w", i, err)
		}

		reply.Results = append(reply.Results, result)
	}

	return nil
}

func bench(judge *pipeline.Judge, o benchOrder, reply *answer) error {
	var duration time.Duration

	if o.Benchtime != "" {
		parsed, err := time.ParseDuration(o.Benchtime)
		if err != nil {
			return fmt.Errorf("bench.benchtime: %w; write a duration such as 500ms", err)
		}

		duration = parsed
	}

	measured, err := judge.Bench(o.Request, duration)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}

	reply.Bench = &measured

	return nil
}
