package judge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// Client is a running judge. Its methods may be called by several goroutines; the
// judge answers one of them at a time.
type Client struct {
	process *exec.Cmd
	input   io.WriteCloser
	orders  *json.Encoder
	answers *json.Decoder
	notes   *notes
	// cancelled tells that the context ended, and the process with it.
	cancelled func() bool

	mutex sync.Mutex
	next  int64
	// broken is the error that ended the conversation.
	broken error
}

// Start runs the judge at the path, or the one that Binary finds when the path is
// empty. The judge ends with the context, or by Close.
func Start(ctx context.Context, path string) (*Client, error) {
	if path == "" {
		found, err := Binary()
		if err != nil {
			return nil, err
		}

		path = found
	}

	process := exec.CommandContext(ctx, path)
	head := &notes{}
	process.Stderr = head

	input, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("judge %s: %w", path, err)
	}

	output, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("judge %s: %w", path, err)
	}

	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("judge %s: %w; build it with `make build`", path, err)
	}

	return &Client{
		process: process, input: input, notes: head, cancelled: func() bool { return ctx.Err() != nil },
		orders: json.NewEncoder(input), answers: json.NewDecoder(output),
	}, nil
}

// Load fills the named world, in place of what was in it. The error says that the
// world could not be read; a policy that Authorino refuses is in Loaded.
func (c *Client) Load(name string, world World) (Loaded, error) {
	reply, err := c.ask(order{World: name, Load: &world})

	return Loaded{Policies: reply.Policies, AuthConfigs: reply.AuthConfigs}, err
}

// Check judges requests in the named world. The results have the requests' order.
func (c *Client) Check(name string, requests ...Request) ([]Result, error) {
	if len(requests) == 0 {
		return nil, nil
	}

	reply, err := c.ask(order{World: name, Checks: requests})
	if err != nil {
		return nil, err
	}

	if len(reply.Results) != len(requests) {
		return nil, fmt.Errorf("judge: %d results for %d requests; the binary is of another version, run `make build`",
			len(reply.Results), len(requests))
	}

	return reply.Results, nil
}

// Bench measures Authorino's Check of a request for about the given time, one second
// when zero.
func (c *Client) Bench(name string, request Request, duration time.Duration) (Measurement, error) {
	o := benchOrder{Request: request}
	if duration > 0 {
		o.Benchtime = duration.String()
	}

	reply, err := c.ask(order{World: name, Bench: &o})
	if err != nil {
		return Measurement{}, err
	}

	if reply.Bench == nil {
		return Measurement{}, errors.New("judge: no measurement; the binary is of another version, run `make build`")
	}

	return *reply.Bench, nil
}

// Drop forgets the named world.
func (c *Client) Drop(name string) error {
	_, err := c.ask(order{World: name, Drop: true})

	return err
}

// Close ends the judge.
func (c *Client) Close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	if errors.Is(c.broken, errClosed) {
		return nil
	}

	wasBroken := c.broken != nil
	c.broken = errClosed

	// The judge ends by itself when its input does.
	_ = c.input.Close()

	if err := c.process.Wait(); err != nil && !wasBroken && !c.cancelled() {
		return fmt.Errorf("judge: %w%s", err, c.notes)
	}

	return nil
}

var errClosed = errors.New("judge: closed")

func (c *Client) ask(o order) (answer, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	if c.broken != nil {
		return answer{}, c.broken
	}

	c.next++
	o.ID = c.next

	// The writer runs beside the reader: an order may be larger than the pipe.
	written := make(chan error, 1)
	go func() { written <- c.orders.Encode(o) }()

	var reply answer

	readErr := c.answers.Decode(&reply)
	if readErr != nil {
		// Nobody reads any more, so a writer that is still busy must not wait.
		_ = c.input.Close()
	}

	writeErr := <-written

	switch {
	case readErr != nil:
		return answer{}, c.died(errors.Join(readErr, writeErr))
	case writeErr != nil:
		return answer{}, c.died(writeErr)
	case reply.ID != o.ID && reply.Error == "":
		return answer{}, c.died(fmt.Errorf("answer %d to order %d", reply.ID, o.ID))
	case reply.Error != "":
		return answer{}, fmt.Errorf("judge: world %q: %s", o.World, reply.Error)
	}

	return reply, nil
}

// died notes the end of the conversation. The usual cause is a request or a policy
// that makes Authorino panic, and its message is then among the notes.
func (c *Client) died(cause error) error {
	// Waiting for the process completes the notes.
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
	c.broken = fmt.Errorf("judge: its process ended (%w); Authorino would have ended too if it panicked%s", cause, c.notes)

	return c.broken
}
